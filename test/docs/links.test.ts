import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import type { Page } from "./pages.ts";
import { ROOT, readPage, readPages } from "./pages.ts";

it.each(readPages().map((page) => [page.path, page] as const))("%s links to what is there", (_, page) => {
  expect(linksOf(page).filter((target) => !isThere(page.path, target))).toEqual([]);
});

/** The targets of a page's links within the repository. */
function linksOf({ text }: Page): readonly string[] {
  const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

function isThere(from: string, target: string): boolean {
  const [file = "", anchor] = target.split("#");
  const path = file === "" ? from : join(dirname(from), file);
  return existsSync(ROOT + path) && (anchor === undefined || anchorsOf(readPage(path)).includes(anchor));
}

/** The anchors of a page's headings, as they are made from their texts. */
function anchorsOf({ text }: Page): readonly string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
}
