import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "tsup";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { median } from "./figures.ts";
import { format } from "./rows.ts";
import { takeTurns } from "./turns.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Under `node_modules`, so that what is built finds its packages. */
const CACHE = join(ROOT, "node_modules/.cache/");

describe("the benchmark", () => {
  let folder: string;
  let library: string;

  // The sources as they are now, built once: each measurement has a process of its own, and need not compile them
  // again.
  beforeAll(async () => {
    mkdirSync(CACHE, { recursive: true });
    folder = mkdtempSync(join(CACHE, "cadenza-bench-"));
    library = join(folder, "index.mjs");
    await build({
      config: false,
      entry: Object.fromEntries(
        ["index", "http", "store", "sqlite"].map((name) => [name, join(ROOT, `src/${name}.ts`)]),
      ),
      outDir: folder,
      format: ["esm"],
      target: "node20",
      outExtension: () => ({ js: ".mjs" }),
      dts: false,
      silent: true,
    });
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("has subjects take turns, and keeps every round", async () => {
    const turns: string[] = [];
    const results = await takeTurns([{ case: "runs", subjects: ["bare-duties", "cadenza"] }], {
      library,
      rounds: 2,
      quick: true,
      onMeasured: (turn) => turns.push(turn),
    });
    expect(turns).toEqual([
      "runs, bare-duties, round 1 of 2",
      "runs, cadenza, round 1 of 2",
      "runs, bare-duties, round 2 of 2",
      "runs, cadenza, round 2 of 2",
    ]);
    expect(results.map(({ subject, figure }) => `${subject}: ${figure}`)).toEqual([
      "bare-duties: in turn",
      "bare-duties: 100 at once",
      "cadenza: in turn",
      "cadenza: 100 at once",
    ]);
    for (const { values } of results) expect(values).toEqual([expect.any(Number), expect.any(Number)]);
  });

  it.each(["awaits", "streams", "waiting", "live", "http", "sqlite"])("measures %s of the library", async (name) => {
    const [first] = await takeTurns([{ case: name, subjects: ["cadenza"] }], {
      library,
      rounds: 1,
      quick: true,
    });
    expect(first?.values[0]).toBeGreaterThan(0);
  });

  it.each([
    ["another text", `{ status: "completed", output: [{ parts: [{ content: "no" }] }] }`],
    ["no output", `{ status: "completed", output: [] }`],
    ["a run that has not completed", `{ status: "awaiting", output: [{ parts: [{ content: input }] }] }`],
  ])("does not count a library that answers with %s", async (_, run) => {
    const faulty = `
      export class MemoryStore {}
      export class AgentRuntime {
        register() {}
        async createRun({ input }) { return ${run}; }
      }`;
    const answering = `data:text/javascript,${encodeURIComponent(faulty)}`;
    const measured = takeTurns([{ case: "runs", subjects: ["cadenza"] }], {
      library: answering,
      rounds: 1,
      quick: true,
    });
    await expect(measured).rejects.toThrow("AssertionError");
  });
});

describe("figures", () => {
  it("have the one in the middle as their median", () => {
    expect(median([9, 1, 5])).toBe(5);
    expect(median([4, 1, 9, 2])).toBe(3);
  });

  it.each([
    [105_432.4, "105,432"],
    [99.94, "99.9"],
    [2.3456, "2.35"],
    [4, "4"],
  ])("show %d as %s", (value, text) => {
    expect(format(value)).toBe(text);
  });
});
