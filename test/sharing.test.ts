import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** Calls that change modules for every later file in the same process. */
const CHANGES_MODULES = /\bvi\.(?:mock|doMock|resetModules)\(/;

test("a file that replaces or reloads modules is run alone", () => {
  const config = readFileSync(`${ROOT}vitest.config.ts`, "utf8");
  const files = readdirSync(`${ROOT}test`, { recursive: true, encoding: "utf8" })
    .map((path) => `test/${path.replaceAll("\\", "/")}`)
    .filter((path) => path.endsWith(".test.ts") && !path.includes("/node_modules/"))
    .filter((path) => CHANGES_MODULES.test(readFileSync(ROOT + path, "utf8")));

  expect(files.length).toBeGreaterThan(1);
  expect(files.filter((file) => !config.includes(`"${file}"`))).toEqual([]);
});
