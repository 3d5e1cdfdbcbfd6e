import { beforeAll, describe, expect, it } from "vitest";
import { blocksOf, readPages } from "./pages.ts";
import { compile, snippetsOf } from "./snippets.ts";

const pages = readPages();
const snippets = pages.flatMap(snippetsOf);

describe("every ts block in the documentation", () => {
  let faults: ReadonlyMap<string, readonly string[]>;
  beforeAll(() => {
    faults = compile(snippets);
  }, 120_000);

  it.each(snippets.map(({ name }) => name))("compiles: %s", (name) => {
    expect(faults.get(name)).toEqual([]);
  });

  it("that is not run everywhere says why", () => {
    const notes = pages.flatMap((page) =>
      blocksOf(page).flatMap(({ language, note }) => (language === "ts" ? [note] : [])),
    );
    for (const note of notes.filter((text) => text !== "")) expect(note).toMatch(/^(no-run|node \d+\.\d+) — \S/);
  });
});
