import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const fixture = fileURLToPath(new URL("./node-test.fixture.ts", import.meta.url));
const root = fileURLToPath(new URL("../..", import.meta.url));

it("the testing kit and the store contract run under node --test", { timeout: 60_000 }, async () => {
  const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...env } = process.env;
  const args = ["--import", "tsx", "--test-reporter", "tap", "--test", fixture];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env });
  expect(stdout).toMatch(/^# pass 7$/m);
  expect(stdout).toMatch(/^# fail 0$/m);
});
