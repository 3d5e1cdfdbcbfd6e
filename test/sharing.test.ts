import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/**
 * Calls that change modules or timers for others in the same process: for later files, or for sockets that earlier files
 * have left open.
 */
const CHANGES_OTHERS = /\bvi\.(?:mock|doMock|resetModules|useFakeTimers)\(/;
/** A promise of a module. What waits for it stays in memory until it settles. */
const SHARED_PROMISE = /^(?:export )?const \w+(?::[^=]+)? = new Promise/m;

it("a file that replaces modules or timers, or reloads modules, is named so that it is run alone", () => {
  const files = filesIn("test").filter(
    (path) => path.endsWith(".test.ts") && CHANGES_OTHERS.test(readFileSync(ROOT + path, "utf8")),
  );

  expect(files.length).toBeGreaterThan(1);
  expect(files.filter((file) => !file.endsWith(".alone.test.ts"))).toEqual([]);
});

it("no module shares a promise that never settles", () => {
  const files = ["src", "test", "scripts"].flatMap(filesIn).filter((path) => /\.[tm]?js$|\.tsx?$/.test(path));

  expect(files.filter((path) => SHARED_PROMISE.test(readFileSync(ROOT + path, "utf8")))).toEqual([]);
});

function filesIn(folder: string): string[] {
  return readdirSync(ROOT + folder, { recursive: true, encoding: "utf8" })
    .map((path) => `${folder}/${path.replaceAll("\\", "/")}`)
    .filter((path) => !path.includes("/node_modules/"));
}
