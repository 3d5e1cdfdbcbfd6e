import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
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
      { extends: true, test: { name: "once", include: ["test/**/*.test.ts"] } },
      {
        extends: true,
        test: {
          name: "replayed",
          include: repeatable.map((name) => `test/runtime/${name}.test.ts`),
          setupFiles: "test/helpers/not-repeatable.ts",
          env: { CADENZA_REPLAY: process.env["CADENZA_REPLAY"] ?? "memory" },
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
