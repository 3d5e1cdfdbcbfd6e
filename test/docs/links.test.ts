import { expect, it } from "vitest";
import { deadLinks } from "./links.ts";
import { ROOT, readPages } from "./pages.ts";

it.each(readPages().map(({ path }) => path))("%s has no dead links", (path) => {
  expect(deadLinks(ROOT, path)).toEqual([]);
});
