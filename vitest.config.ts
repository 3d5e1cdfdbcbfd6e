import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { configDefaults, defineConfig } from "vitest/config";
import { ClosingLineReporter } from "./test/harness/closing-line-reporter.ts";
import { LongestFirst } from "./test/harness/longest-first.ts";

const source = fileURLToPath(new URL("./src", import.meta.url));

/**
 * The tests of the runtime run a second time, with every agent replayed after each commit. A test for which that cannot
 * hold says so by `unlessReplayed(reason)`.
 */
const replayed = ["test/runtime/**/*.test.ts"];
/** But for these: the model decides for itself how its agents run. */
const trials = ["test/runtime/trials/**"];

/**
 * The second stage: programs, servers and browsers in processes of their own. A test belongs to it by its name. It
 * begins when the first stage has ended. `npm run test:quick` runs the first stage alone.
 */
const system = ["test/**/*.system.test.ts"];

/** The tests that need a PostgreSQL server. They belong to the second stage, and share the servers that their setup starts. */
const postgres = ["test/postgres/**/*.test.ts"];

const secondStage = { sequence: { groupOrder: 1 } };

/**
 * The files that get a process of their own, named `….alone.test.ts`: they reload or replace modules, replace the timers
 * of a process, measure time or memory, or take long and should begin first. All others share a few processes,
 * so that modules are loaded once in each.
 */
const alone = ["test/**/*.alone.test.ts"];

export default defineConfig({
  resolve: {
    // Tests and examples import the library by its name, which means the sources here.
    alias: [
      { find: /^cadenza$/, replacement: `${source}/index.ts` },
      { find: /^cadenza\/([\w-]+(?:\/[\w-]+)?)$/, replacement: `${source}/$1.ts` },
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
          exclude: [...configDefaults.exclude, ...alone, ...system, ...postgres],
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: "replayed",
          include: replayed,
          exclude: [...configDefaults.exclude, ...alone, ...system, ...trials],
          isolate: false,
          env: { CADENZA_REPLAY: process.env["CADENZA_REPLAY"] ?? "memory" },
        },
      },
      {
        extends: true,
        test: {
          name: "system",
          include: system,
          globalSetup: "test/harness/installed.ts",
          isolate: false,
          ...secondStage,
          maxConcurrency: 2,
        },
      },
      {
        extends: true,
        test: {
          name: "postgres",
          include: postgres,
          globalSetup: "test/harness/postgres-servers.ts",
          isolate: false,
          ...secondStage,
        },
      },
    ],
    // Long enough for a busy machine with two cores.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 50_000 } },
    // Each project has a server of its own, which would transform the same sources once more, and so would the next run.
    experimental: { fsModuleCache: true },
    // Some files wait for a disk, a socket or another process, so one more of them runs than there are processors.
    maxWorkers: availableParallelism() + 1,
    // What a test makes is gone soon: a larger young generation is collected less often.
    execArgv: ["--max-semi-space-size=64"],
    sequence: { sequencer: LongestFirst },
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
