import { expect, it } from "vitest";
import { faultOf, PROCESS_TIMEOUT_MS } from "../harness/processes.ts";
import { runMain } from "./run-main.ts";

it("the cluster ships all orders although a worker is killed", { timeout: 2 * PROCESS_TIMEOUT_MS }, async ({
  skip,
}) => {
  const ended = await runMain("cluster/main.ts");
  const [missing] = /npm has no PostgreSQL.*/.exec(ended.stderr) ?? [];
  if (missing !== undefined) skip(missing);
  expect(faultOf(ended)).toBeUndefined();
  const lines = ended.stdout.trimEnd().split("\n");
  expect(lines[3]).toMatch(/^kill -9 of worker [123], in the middle of \d+ steps$/);
  expect(lines[4]).toMatch(/^\d+\.\d s later all runs of worker [123] go on: \d+ at worker [123]/);
  expect(lines.at(-1)).toBe("All orders were shipped, and each step was done once.");
});
