import { build } from "esbuild";
import { expect, it } from "vitest";
import { blocksOf, ROOT, readPage } from "./pages.ts";

const skill = readPage("skills/cadenza/SKILL.md");

it("the skill has the name of its folder, and says when to use it", () => {
  const [, name, description = ""] = /^---\nname: (.+)\ndescription: (.+)\n---\n/.exec(skill.text) ?? [];
  expect(name).toBe("cadenza");
  expect(description).toMatch(/Use it where/);
  expect(description.length).toBeLessThanOrEqual(1_024);
});

it("the skill has ten recipes, each with a program", () => {
  const recipes = skill.text.split(/^## (?=\d+\. )/m).slice(1);
  expect(recipes.map((text) => Number.parseInt(text, 10))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  for (const text of recipes) expect(blocksOf({ path: "", text }).map(({ language }) => language)).toContain("ts");
});

it("the page of the skill is built", async () => {
  const pages = blocksOf(skill).filter(({ language }) => language === "tsx");
  expect(pages).toHaveLength(1);
  for (const { code } of pages) {
    const { outputFiles, warnings } = await build({
      stdin: { contents: code, loader: "tsx", resolveDir: ROOT },
      alias: { "cadenza/client": `${ROOT}src/client.ts` },
      ...{ bundle: true, write: false, format: "esm", target: "es2022", jsx: "automatic" },
    });
    expect(warnings).toEqual([]);
    expect(outputFiles?.[0]?.text).toContain("chat-17");
  }
});
