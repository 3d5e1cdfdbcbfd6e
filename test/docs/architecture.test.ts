import { existsSync, readFileSync } from "node:fs";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { ROOT, readPage, readSources } from "./pages.ts";

const page = readPage("docs/project/architecture.md");
const sources = new Map(readSources().map(({ path, text }) => [path, text]));
/** Each file with a function: side by side in a row of a table, or one after the other in a sentence. */
const places = [...page.text.matchAll(/`([\w/-]+\.ts)`(?: \| | )`(#?\w+)`/g)].map(
  ([, file = "", name = ""]) => [file, name] as const,
);

describe("docs/project/architecture.md", () => {
  it("names only files that exist", () => {
    const files = new Set([...page.text.matchAll(/`([\w/-]+\.ts)`/g)].map(([, file = ""]) => file));

    expect(files.size).toBeGreaterThan(40);
    expect([...files].filter((file) => !isThere(file))).toEqual([]);
  });

  it("shows the life of a run", () => {
    expect(places.length).toBeGreaterThan(80);
  });

  it.each(places)("%s has the function %s", (file, name) => {
    expect(functionsOf(sources.get(`src/${file}`) ?? "")).toContain(name);
  });

  it.each(["docs/project/architecture.md", "CONTRIBUTING.md"])("%s shows each folder of the sources", (path) => {
    const [, layout = ""] = readFileSync(ROOT + path, "utf8").split("```\nsrc/\n");
    const folders = [...sources.keys()].flatMap((file) => /^src\/(\w+)\//.exec(file)?.[1] ?? []);
    const shown = [...(layout.split("```")[0]?.matchAll(/^[├└]─ ([\w]+)\//gm) ?? [])].map(([, name]) => name);
    expect(new Set(shown)).toEqual(new Set(folders));
  });

  it("has the activities of the residency table", () => {
    const row = /^\| residency \| .*$/m.exec(page.text)?.[0] ?? "";
    const [, table = ""] = sources.get("src/durable/recovery/keeping-owners.ts")?.split("const activities = {") ?? [];
    const names = [...((table.split("}\n")[0] ?? "").split("as const")[0]?.matchAll(/^ {2}(\w+):/gm) ?? [])];
    expect(names.length).toBeGreaterThan(0);
    expect([...row.matchAll(/`(\w+)`/g)].map(([, name]) => name)).toEqual(names.map(([, name]) => name));
  });

  it("no member has two comments", () => {
    const twice = [...sources].filter(([, text]) => /\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*\/\*\*/.test(text));
    expect(twice.map(([path]) => path)).toEqual([]);
  });

  it("would notice a function that is not there", () => {
    const text = "class A { #b() {} get c() { return 1; } d = 2; }\nfunction e() {}\nconst f = () => 1; // g()";
    expect(functionsOf(text)).toEqual(["#b", "c", "e"]);
  });
});

/** The path from the root, from `src/`, or from a folder of `src/`. */
function isThere(file: string): boolean {
  return (
    existsSync(ROOT + file) || [...sources.keys()].some((path) => path === `src/${file}` || path.endsWith(`/${file}`))
  );
}

/** The names of the functions, methods and getters of a file. */
function functionsOf(text: string): readonly string[] {
  const names: string[] = [];
  const visit = (node: ts.Node): void => {
    const isNamed = ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node) || ts.isGetAccessor(node);
    if (isNamed && node.name !== undefined) names.push(node.name.getText());
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile("file.ts", text, ts.ScriptTarget.Latest, true));
  return names;
}
