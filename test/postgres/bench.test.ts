import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "tsup";
import { afterAll, beforeAll, describe, expect, inject, it, vi } from "vitest";
import { takeTurns } from "../bench/turns.ts";
import { missingServer } from "../harness/postgres-stores.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Under `node_modules`, so that what is built finds its packages. */
const CACHE = join(ROOT, "node_modules/.cache/");
const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`the benchmark on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let folder: string;

  beforeAll(async () => {
    mkdirSync(CACHE, { recursive: true });
    folder = mkdtempSync(join(CACHE, "cadenza-bench-"));
    await build({
      config: false,
      entry: { index: join(ROOT, "src/index.ts"), postgres: join(ROOT, "src/postgres.ts") },
      outDir: folder,
      format: ["esm"],
      target: "node20",
      outExtension: () => ({ js: ".mjs" }),
      splitting: true,
      dts: false,
      silent: true,
    });
    vi.stubEnv("CADENZA_BENCH_POSTGRES", JSON.stringify(inject("postgres")[18]));
  });
  afterAll(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each([
    ["one process", "cadenza", ["runs", "cycles"]],
    ["one process", "floor", ["runs", "cycles"]],
    ["appends", "cadenza", ["single", "batched", "hot"]],
  ])("measures %s of %s", async (name, subject, figures) => {
    const library = join(folder, "index.mjs");
    const results = await takeTurns([{ case: name, subjects: [subject] }], { library, rounds: 1, quick: true });
    expect(results.map(({ figure }) => figure)).toEqual(figures);
    for (const { values } of results) expect(values[0]).toBeGreaterThan(0);
  });
});
