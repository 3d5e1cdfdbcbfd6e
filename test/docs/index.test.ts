import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { pathsOfDocs, readPage } from "./pages.ts";

const INDEX = "docs/README.md";
const API = "docs/reference/api/";
const TITLE = /^# (.+)$/m;

/** The pages that an index names, by their paths: the text of the link, and the sentence behind it. */
function entriesOf(index: string): ReadonlyMap<string, { readonly title: string; readonly about: string }> {
  const rows = readPage(index).text.matchAll(/^- \[(.+?)\]\(([^)#]+)\): (.+)$/gm);
  return new Map(
    [...rows].map(([, title = "", target = "", about = ""]) => [join(dirname(index), target), { title, about }]),
  );
}

it.each(pathsOfDocs().filter((path) => path !== INDEX))("%s is in the index by its title, with a sentence", (path) => {
  const [, title] = TITLE.exec(readPage(path).text) ?? [];
  const index = path.startsWith(API) && path !== `${API}README.md` ? `${API}README.md` : INDEX;
  expect(entriesOf(index).get(path)).toEqual({ title, about: expect.stringMatching(/^.{20,}\.$/) });
});

it.each(pathsOfDocs().filter((path) => /^docs\/(?:tutorial|concepts|guides)\//.test(path)))(
  "%s says what to read next",
  (path) => {
    expect(readPage(path).text).toMatch(/^(?:Read next: |## Read next$)/m);
  },
);
