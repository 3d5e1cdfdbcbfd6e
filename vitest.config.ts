import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { ClosingLineReporter } from "./scripts/closing-line-reporter.ts";

const source = fileURLToPath(new URL("./src", import.meta.url));

export default defineConfig({
  resolve: {
    // Tests and examples import the library as its users do; here these names mean the sources.
    alias: [
      { find: /^cadenza$/, replacement: `${source}/index.ts` },
      { find: /^cadenza\/(\w+)$/, replacement: `${source}/$1.ts` },
    ],
  },
  test: {
    include: ["test/**/*.test.ts"],
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
