import { fileURLToPath } from "node:url";
import { configDefaults, defineConfig } from "vitest/config";
import { ClosingLineReporter } from "./scripts/closing-line-reporter.ts";

const source = fileURLToPath(new URL("./src", import.meta.url));

/** The tests of the runtime that are run a second time, with every agent run again from its log after each commit. */
const repeatable = [
  "asks",
  "bad-input",
  "cancel",
  "events",
  "misbehaving",
  "regressions",
  "runs",
  "sessions",
  "stores",
  "sub-runs",
  "yields",
];

/**
 * The second stage: programs, servers and browsers in processes of their own. A test belongs to it by its name. It begins when the first
 * stage, which is all that a change needs while it is made (`npm run test:quick`), is through.
 */
const system = ["test/**/*.system.test.ts"];

/**
 * The files that get a process of their own: they load modules anew or replace them, leave servers open, measure time or memory,
 * or are long and had better begin first. All others share a process for each processor: to load the same modules for each file
 * took a third of the time.
 */
const alone = [
  "test/durable/planted-faults.test.ts",
  "test/durable/evicted-runs.test.ts",
  "test/http/event-stream.test.ts",
  "test/http/stalled-readers.test.ts",
  "test/protocol/json-schema.test.ts",
  "test/runtime/leak.test.ts",
  "test/runtime/linear.test.ts",
  "test/runtime/model.test.ts",
  "test/stores/sqlite-missing.test.ts",
  "test/testing/examples.test.ts",
  "test/testing/time.test.ts",
];

export default defineConfig({
  resolve: {
    // Tests and examples import the library as its users do; here these names mean the sources.
    alias: [
      { find: /^cadenza$/, replacement: `${source}/index.ts` },
      { find: /^cadenza\/(\w+)$/, replacement: `${source}/$1.ts` },
    ],
  },
  test: {
    projects: [
      { extends: true, test: { name: "alone", include: alone } },
      {
        extends: true,
        test: {
          name: "once",
          include: ["test/**/*.test.ts"],
          exclude: [...configDefaults.exclude, ...alone, ...system],
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: "replayed",
          isolate: false,
          include: repeatable.map((name) => `test/runtime/${name}.test.ts`),
          setupFiles: "test/helpers/not-repeatable.ts",
          env: { CADENZA_REPLAY: process.env["CADENZA_REPLAY"] ?? "memory" },
        },
      },
      {
        extends: true,
        test: {
          name: "system",
          include: system,
          globalSetup: "test/helpers/installed.ts",
          sequence: { groupOrder: 1 },
          maxConcurrency: 2,
        },
      },
    ],
    // A busy machine with two cores is slow at times; a test that hangs is still found.
    testTimeout: 60_000,
    maxWorkers: "100%",
    reporters: ["default", new ClosingLineReporter()],
    coverage: {
      provider: "v8",
      include: ["src/**/*.ts"],
      reporter: [["text", { skipFull: true }]],
      thresholds: {
        lines: 90,
        branches: 90,
        functions: 90,
        statements: 90,
        "src/core/**": { lines: 100, branches: 100 },
      },
    },
  },
});
