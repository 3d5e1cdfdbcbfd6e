import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const DEMO = fileURLToPath(new URL("../../examples/durable-approval/demo.ts", import.meta.url));

it("a booking goes on where it was after each of two kills", { timeout: 120_000 }, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--import", "tsx", DEMO]);
  const lines = stdout.split("\n").map((line) => line.trim());
  const count = (text: string) => lines.filter((line) => line.includes(text)).length;

  expect(count("kill -9")).toBe(2);
  expect(count("(searching for a train)")).toBe(1);
  expect(lines).toContain("(booking, attempt 2)");
  expect(lines.filter((line) => line.startsWith("Booked: ticket"))).toEqual([
    expect.stringMatching(/^Booked: ticket [0-9a-f]{8}\.$/),
  ]);
  expect(lines.at(-2)).toBe("Done.");
});
