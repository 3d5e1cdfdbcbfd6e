import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { median } from "./figures.ts";
import { format } from "./table.ts";
import { takeTurns } from "./turns.ts";

const SOURCES = fileURLToPath(new URL("../../src/index.ts", import.meta.url));
const FROM_SOURCES = { library: SOURCES, nodeOptions: ["--import", "tsx"] };

describe("the benchmark", () => {
  it("has subjects take turns, and keeps every round", async () => {
    const turns: string[] = [];
    const results = await takeTurns([{ case: "runs", subjects: ["bare-duties", "cadenza"] }], {
      ...FROM_SOURCES,
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

  it.each(["awaits", "streams", "parked", "live"])("measures %s of the library", async (name) => {
    const [first] = await takeTurns([{ case: name, subjects: ["cadenza"] }], {
      ...FROM_SOURCES,
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
    const library = `data:text/javascript,${encodeURIComponent(faulty)}`;
    const measured = takeTurns([{ case: "runs", subjects: ["cadenza"] }], { library, rounds: 1, quick: true });
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
