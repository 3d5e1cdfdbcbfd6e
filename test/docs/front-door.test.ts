import { describe, expect, it } from "vitest";
import { readPage } from "./pages.ts";

const COLUMNS = 120;
const SCREEN = 60;

describe("the first screen of the README", () => {
  const [screen = ""] = readPage("README.md").text.split(/^## /m);

  it(`ends within ${SCREEN} lines of ${COLUMNS} columns`, () => {
    // Links and pictures show their text alone.
    const shown = screen.replaceAll(/\]\([^)]*\)/g, "]").replaceAll(/<img [^>]*>/g, "");
    const lines = shown.split("\n").map(({ length }) => Math.max(1, Math.ceil(length / COLUMNS)));
    expect(lines.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(SCREEN);
  });

  it("has a picture, a program with a model, a step and a question, and how to begin", () => {
    for (const text of ["docs/pictures/killed.webp", ".step(", ".ask(", "generateText(", "npm ci && npm run demo"])
      expect(screen).toContain(text);
  });
});

describe("docs/project/comparison.md", () => {
  const { text } = readPage("docs/project/comparison.md");
  const rows = [...text.matchAll(/^\| \[(.+?)\]\(#(.+?)\) \| (.+?) \|/gm)];
  const sections = new Map(
    text
      .split(/^## /m)
      .slice(1)
      .map((section) => [section.slice(0, section.indexOf("\n")), section]),
  );

  it("has a version and a section for each project, with what is better there, what differs, and where that was read", () => {
    expect(rows).toHaveLength(11);
    for (const [, project, anchor = "", version] of rows) {
      const section = [...sections].find(([title]) => title.toLowerCase().replaceAll(" ", "-") === anchor)?.[1];
      expect(version, project).toMatch(/`.+` \d+\.\d+\.\d+/);
      for (const part of ["- **Better there**: ", "- **Different here**: ", "- Read"]) expect(section).toContain(part);
      expect(section?.split("\n- Read")[1], project).toMatch(/https:\/\//);
    }
  });
});
