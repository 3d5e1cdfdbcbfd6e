import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** Calls that change modules for every later file in the same process. */
const CHANGES_MODULES = /\bvi\.(?:mock|doMock|resetModules)\(/;
/** A promise of a module. What waits for it stays in memory until it settles. */
const SHARED_PROMISE = /^(?:export )?const \w+(?::[^=]+)? = new Promise/m;

test("a file that replaces or reloads modules is run alone", () => {
  const config = readFileSync(`${ROOT}vitest.config.ts`, "utf8");
  const files = filesIn("test").filter(
    (path) => path.endsWith(".test.ts") && CHANGES_MODULES.test(readFileSync(ROOT + path, "utf8")),
  );

  expect(files.length).toBeGreaterThan(1);
  expect(files.filter((file) => !config.includes(`"${file}"`))).toEqual([]);
});

test("no module shares a promise that never settles", () => {
  const files = ["src", "test", "scripts"].flatMap(filesIn).filter((path) => /\.[tm]?js$|\.tsx?$/.test(path));

  expect(files.filter((path) => SHARED_PROMISE.test(readFileSync(ROOT + path, "utf8")))).toEqual([]);
});

function filesIn(folder: string): string[] {
  return readdirSync(ROOT + folder, { recursive: true, encoding: "utf8" })
    .map((path) => `${folder}/${path.replaceAll("\\", "/")}`)
    .filter((path) => !path.includes("/node_modules/"));
}
