import { beforeAll, describe, expect, it } from "vitest";
import { blocksOf, readPages } from "./pages.ts";
import { compile, run, snippetsOf } from "./snippets.ts";

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

  it.each(snippets.map((snippet) => [snippet.name, snippet] as const))("runs: %s", async (_, snippet) => {
    const spoken = await run(snippet);
    // A page that says what is printed says all of it.
    if (spoken !== undefined && spoken.promised.length > 0) expect(spoken.said).toEqual(spoken.promised);
  });

  it("that is not run says why", () => {
    const notes = pages.flatMap((page) =>
      blocksOf(page).flatMap(({ language, note }) => (language === "ts" ? [note] : [])),
    );
    for (const note of notes.filter((text) => text !== "")) expect(note).toMatch(/^no-run — \S/);
  });
});
