import { expect, it } from "vitest";
import { deadAddresses, deadLinks } from "./links.ts";
import { ROOT, readPages, readSources } from "./pages.ts";

it.each(readPages().map(({ path }) => path))("%s has no dead links", (path) => {
  expect(deadLinks(ROOT, path)).toEqual([]);
});

it("pages and sources have no dead addresses of files of the repository", () => {
  for (const { path, text } of [...readPages(), ...readSources()])
    expect([path, deadAddresses(ROOT, text)]).toEqual([path, []]);
});
