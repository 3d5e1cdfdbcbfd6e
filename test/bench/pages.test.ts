import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { renderFiles } from "./pages.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

it.each([...renderFiles()])("%s shows the kept figures (npm run bench -- pages)", (path, text) => {
  expect(readFileSync(ROOT + path, "utf8")).toBe(text);
});
