import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { ofOneTenant, tenantMutants } from "./tenants.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

it.each(tenantMutants)("the mutant finds its place: $name", ({ edits }) => {
  for (const { file, find, put } of edits) {
    expect([file, find, readFileSync(ROOT + file, "utf8").split(find).length - 1]).toEqual([file, find, 1]);
    expect(put).not.toBe(find);
  }
});

it("no mutant is in a function that a later step of the schema replaces: no process calls that text", () => {
  const folder = "src/stores/postgres/";
  const sources = readdirSync(ROOT + folder).map((name) => readFileSync(ROOT + folder + name, "utf8"));
  const edits = tenantMutants.flatMap((one) => one.edits).filter(({ file }) => file.startsWith(folder));
  for (const { file, find } of edits) {
    const source = readFileSync(ROOT + file, "utf8");
    const above = source.slice(0, source.indexOf(find) + find.length);
    const [, how, name] = [...above.matchAll(/^(.*)FUNCTION (\S+?)\(/gm)].at(-1) ?? [];
    const isReplaced = sources.some((one) => one.includes(`CREATE OR REPLACE FUNCTION ${name}(`));
    expect([file, find, how === "CREATE " && isReplaced]).toEqual([file, find, false]);
  }
});

it("each map of runs has a mutant that leaves the tenant out, or holds the runs of one tenant", () => {
  const mutated = tenantMutants.flatMap(({ edits }) => edits.map(({ file }) => file));
  const files = readdirSync(`${ROOT}src`, { recursive: true, encoding: "utf8" })
    .map((path) => `src/${path.replaceAll("\\", "/")}`)
    .filter((path) => path.endsWith(".ts"));
  for (const file of files) {
    const maps = readFileSync(ROOT + file, "utf8").match(/new RunMap\b/g)?.length ?? 0;
    const covered = ofOneTenant.includes(file) ? maps : mutated.filter((one) => one === file).length;
    expect([file, covered >= maps]).toEqual([file, true]);
  }
});
