import { command } from "../harness/commands/commands.ts";
import { runTests } from "../harness/commands/vitest.ts";

export const trial = command({
  about: "Runs the replayed tests of the runtime on SQLite.",
  options: {},
  run: (_, report) => runTests(report, ["--project", "replayed"], { CADENZA_REPLAY: "sqlite" }),
});
