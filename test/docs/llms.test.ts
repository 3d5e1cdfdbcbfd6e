import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { temporaryFolder } from "../harness/sqlite-files.ts";
import { currentLlms, openingOf } from "./llms.ts";
import { ROOT } from "./pages.ts";

/** A folder with these pages. */
function folderWith(pages: Readonly<Record<string, string>>): string {
  const folder = temporaryFolder();
  onTestFinished(() => folder.remove());
  const others = { "README.md": "# R\n\nR.", "examples/README.md": "# E\n\nE.", "CHANGELOG.md": "# C\n\nC." };
  const all = { "package.json": '{ "description": "What it is." }', ...others, ...pages };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(folder.path, path)), { recursive: true });
    writeFileSync(join(folder.path, path), text);
  }
  return folder.path;
}

it("llms.txt has the title and the first sentence of each page: `npm run generate -- llms` writes it", () => {
  expect(readFileSync(`${ROOT}llms.txt`, "utf8")).toBe(currentLlms(ROOT));
});

it("each page has a title and a sentence that ends", () => {
  const lines = currentLlms(ROOT).match(/^- .*$/gm) ?? [];
  expect(lines.length).toBeGreaterThan(25);
  for (const line of lines) expect(line).toMatch(/^- \[[^\]]+\]\(\S+\.md\): \S.*[.!?]$/);
});

it("the pages are in the order of the index, under its headings", () => {
  const folder = folderWith({
    "docs/README.md":
      "# Pages\n\n## Begin\n\n[B](b.md#x), then [A](./guides/a.md).\n\n## Look up\n\n- [C](c.md), [B](b.md)\n",
    "docs/guides/a.md": "# A\n\nAbout `a`. More.",
    "docs/b.md": "# B\n\nAbout b.",
    "docs/c.md": "# C\n\nAbout c.",
    "docs/d.md": "# D\n\nAbout d.",
  });
  const [, sections] = currentLlms(folder).split("## Skill\n\n");
  expect(sections?.split("\n\n## Optional")[0]).toBe(`## Begin

- [B](docs/b.md): About b.
- [A](docs/guides/a.md): About \`a\`.

## Look up

- [C](docs/c.md): About c.

## More pages

- [D](docs/d.md): About d.`);
});

it("the pages have a section for each folder where there is no index", () => {
  const folder = folderWith({ "docs/b.md": "# B\n\nAbout b.", "docs/guides/a.md": "# A\n\nAbout a." });
  expect(currentLlms(folder)).toContain(
    "## Pages\n\n- [B](docs/b.md): About b.\n\n## Guides\n\n- [A](docs/guides/a.md)",
  );
});

it.each([
  [
    "# `a` 1.0\n\n```ts\nNo.\n```\n\n| a |\n\nThe\n[first](x.md) one: 1.5 of it! Then",
    "a 1.0",
    "The first one: 1.5 of it!",
  ],
  ["---\nname: x\ndescription: Use it. Always.\n---\n# X\n\nText.", "X", "Use it."],
  ["# A\n\n## B\n\n<img>\n\nIt begins so:\n\n```ts\n```", "A", "It begins so."],
])("%j has a title and a sentence", (page, title, sentence) => {
  expect(openingOf(page)).toEqual({ title, sentence });
});
