import { expect, it } from "vitest";
import { deadLinks } from "./links.ts";
import { ROOT, readPages } from "./pages.ts";

it.each(readPages().map(({ path }) => path))("%s links to what is there", (path) => {
  expect(deadLinks(ROOT, path)).toEqual([]);
});
