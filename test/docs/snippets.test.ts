import { beforeAll, describe, expect, it } from "vitest";
import { blocksOf, examplesOf, readPages, readSources } from "./pages.ts";
import { compile, snippetsOf } from "./snippets.ts";

const sources = readSources();
const examples = sources.flatMap(examplesOf);
const pages = [...readPages(), ...examples];
const snippets = pages.flatMap(snippetsOf);

describe("every ts block in the documentation, and every example in a comment of the source,", () => {
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

it("every example in a comment is one ts block, so that it is compiled and run", () => {
  expect(examples.length).toBeGreaterThan(15);
  for (const example of examples) expect(blocksOf(example).map(({ language }) => language)).toEqual(["ts"]);
  const tags = sources.flatMap(({ text }) => text.match(/@example/g) ?? []);
  expect(tags).toHaveLength(examples.length);
});

it("an example that does not compile is found, with its line", () => {
  const text = `/**\n * Adds.\n *\n * @example\n * \`\`\`ts\n * const sum: number = "3";\n * \`\`\`\n */`;
  const [example] = examplesOf({ path: "src/add.ts", text });
  expect([...compile(snippetsOf(example ?? { path: "", text: "" }))]).toEqual([
    ["src/add.ts:6", ["line 6: Type 'string' is not assignable to type 'number'."]],
  ]);
});
