import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { runTests } from "../harness/commands/vitest.ts";

const TESTS = [
  "test/http/fuzz.test.ts",
  "test/faces/hostile.test.ts",
  "test/faces/hostile-calls.test.ts",
  "test/faces/broken-streams.test.ts",
  "test/http/event-stream.test.ts",
  "test/http/stalled-readers.test.ts",
  "test/runtime/details.test.ts",
];

export const trial = command({
  about: "Runs the tests with random requests, readers and streams at their full size.",
  options: { seed },
  run: ({ seed }, report) => runTests(report, TESTS, { CADENZA_FUZZ: "full", CADENZA_SEED: `${seed}` }),
});
