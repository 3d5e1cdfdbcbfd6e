import { command } from "../harness/commands/commands.ts";
import { runTests } from "../harness/commands/vitest.ts";

export const trial = command({
  about: "Runs all tests, with all cases of those that else try a share of them.",
  options: {},
  run: (_, report) => runTests(report, [], { CADENZA_TESTS: "all" }),
});
