/**
 * Bodies with claims and faults over each face, judged by an oracle that knows what a user may do and nothing of the library:
 * `npm run test:claims -- --bodies 100000 --seed mine --faces acp,chat,agUi`. Prints how many bodies had which status, and
 * what was wrong. Exits with 1 if something was.
 */
import { parseArgs } from "node:util";
import type { Face } from "../test/harness/claims/oracle.ts";
import type { Wrong } from "../test/harness/claims/world.ts";
import { playClaims } from "../test/harness/claims/world.ts";

const { values } = parseArgs({
  options: {
    bodies: { type: "string", default: "100000" },
    seed: { type: "string", default: `${Date.now()}` },
    faces: { type: "string", default: "acp,chat,agUi" },
    show: { type: "string", default: "10" },
  },
});

console.log(`seed ${values.seed}`);
let hasWrong = false;
for (const face of values.faces.split(",") as Face[]) {
  const since = Date.now();
  const { bodies, statuses, wrong } = await playClaims(face, values.seed, Number(values.bodies));
  const seconds = Math.round((Date.now() - since) / 1_000);
  const counts = [...statuses].sort(([one], [other]) => one - other).map(([status, count]) => `${count} × ${status}`);
  console.log(`${face}: ${bodies} bodies in ${seconds} s: ${counts.join(", ")}; ${wrong.length} wrong`);
  for (const [what, [first, ...more]] of alike(wrong).slice(0, Number(values.show)))
    console.error(`${1 + more.length} × ${what}\n  at ${first.at}: ${first.what}\n  ${first.sent}`);
  hasWrong ||= wrong.length > 0;
}
process.exitCode = hasWrong ? 1 : 0;

/** What is wrong in the same way, the most frequent first. */
function alike(wrong: readonly Wrong[]): readonly (readonly [string, [Wrong, ...Wrong[]]])[] {
  const groups = new Map<string, [Wrong, ...Wrong[]]>();
  for (const one of wrong) {
    const name = one.what.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|[WMA]\d+[WMA]|\d+/g, "…").slice(0, 90);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [one]);
    else group.push(one);
  }
  return [...groups].sort(([, one], [, other]) => other.length - one.length);
}
