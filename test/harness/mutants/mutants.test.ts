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
