import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, sep } from "node:path";

/*
 * `llms.txt`, the list of pages for coding assistants (https://llmstxt.org): `npm run generate -- llms` writes it from the
 * titles and first sentences of the pages, and a test compares the two.
 */

const INDEX = "docs/README.md";

interface Section {
  readonly title: string;
  readonly paths: string[];
}

/** What `llms.txt` should hold, by the files of a folder. */
export function currentLlms(root: string): string {
  const { description } = JSON.parse(read(root, "package.json")) as { readonly description: string };
  const pages = pagesIn(root, "docs").filter((path) => path !== INDEX);
  const sections = existsSync(join(root, INDEX)) ? byIndex(read(root, INDEX), pages) : byFolder(pages);
  return [
    "# Cadenza",
    `> ${description}`,
    "The rules, the imports and ten recipes are in the skill. Read it first, and a page below for what it does not say. Each page is in the package, in `node_modules/cadenza`.",
    section(root, { title: "Skill", paths: pagesIn(root, "skills") }),
    ...sections.map((one) => section(root, one)),
    section(root, { title: "Optional", paths: ["README.md", "examples/README.md", "CHANGELOG.md"] }),
  ].join("\n\n");
}

function pagesIn(root: string, folder: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  const files = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" });
  const pages = files.filter((file) => file.endsWith(".md")).map((file) => `${folder}/${file.split(sep).join("/")}`);
  return pages.sort();
}

/** The pages in the order in which an index links to them, under its headings. */
function byIndex(index: string, pages: readonly string[]): readonly Section[] {
  const sections: Section[] = [{ title: "Pages", paths: [] }];
  const left = new Set(pages);
  for (const [, heading, target] of index.matchAll(/^#{2,} (.+)$|\]\((?:\.\/)?([^)#\s:]+\.md)/gm)) {
    if (heading !== undefined) sections.push({ title: heading, paths: [] });
    const path = `docs/${target}`;
    if (left.delete(path)) sections.at(-1)?.paths.push(path);
  }
  sections.push({ title: "More pages", paths: [...left] });
  return sections.filter(({ paths }) => paths.length > 0);
}

/** The pages in alphabetical order: those of `docs/` first, and then a section for each folder below. */
function byFolder(pages: readonly string[]): readonly Section[] {
  const sections = new Map<string, Section>([["docs", { title: "Pages", paths: [] }]]);
  for (const path of pages) {
    const folder = path.slice(0, path.lastIndexOf("/"));
    const title = folder.slice(folder.lastIndexOf("/") + 1);
    const known = sections.get(folder) ?? { title: `${title.charAt(0).toUpperCase()}${title.slice(1)}`, paths: [] };
    sections.set(folder, known);
    known.paths.push(path);
  }
  return [...sections.values()].filter(({ paths }) => paths.length > 0);
}

function section(root: string, { title, paths }: Section): string {
  const lines = paths.map((path) => {
    const { title: name, sentence } = openingOf(read(root, path));
    return `- [${name}](${path}): ${sentence}\n`;
  });
  return `## ${title}\n\n${lines.join("")}`.trimEnd().concat(title === "Optional" ? "\n" : "");
}

/** The title of a page, and the first sentence of its prose. */
export function openingOf(page: string): { readonly title: string; readonly sentence: string } {
  const [, front = "", text = ""] = /^(?:---\n([\s\S]*?)\n---\n)?([\s\S]*)$/.exec(page) ?? [];
  const [, title = ""] = /^# (.+)$/m.exec(text) ?? [];
  const [, description] = /^description: (.+)$/m.exec(front) ?? [];
  const prose = text.replace(/^```[\s\S]*?^```$/gm, "").split(/\n\s*\n/);
  const paragraph = description ?? prose.find((block) => /^\s*[\p{L}`*[]/u.test(block)) ?? "";
  const plain = paragraph
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/\s+/g, " ")
    .trim();
  const [sentence = plain] = /^.*?[.!?](?=\s+[\p{Lu}`*]|$)/u.exec(plain) ?? [];
  return { title: plainOf(title), sentence: sentence.replace(/:$/, ".") };
}

function plainOf(title: string): string {
  return title.replaceAll("`", "");
}

function read(root: string, path: string): string {
  return readFileSync(join(root, path), "utf8");
}
