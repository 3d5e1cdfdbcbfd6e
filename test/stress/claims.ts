import type { Face } from "../harness/claims/oracle.ts";
import type { Wrong } from "../harness/claims/world.ts";
import { playClaims } from "../harness/claims/world.ts";
import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";

const FACES = ["acp", "chat", "agUi"] as const satisfies readonly Face[];

export const trial = command({
  about:
    "Sends bodies with claims and faults over each face. They are judged by an oracle that knows what a user may do and nothing of the library.",
  options: {
    seed,
    bodies: { about: "How many bodies are sent over each face.", default: 100_000 },
    faces: { about: "The faces.", default: FACES, oneOf: FACES },
  },
  async run({ seed, bodies, faces }, report) {
    for (const face of faces) {
      const { statuses, wrong } = await playClaims(face, String(seed), bodies);
      const counts = [...statuses].sort(([one], [other]) => one - other);
      report.say(`${face}: ${counts.map(([status, count]) => `${count} × ${status}`).join(", ")}`);
      for (const [what, [first, ...more]] of alike(wrong))
        report.wrong(`${face}: ${1 + more.length} × ${what}\n  at ${first.at}: ${first.what}\n  ${first.sent}`, {
          faces: [face],
          bodies: first.at + 1,
        });
    }
    return `${bodies} bodies over each of ${faces.join(", ")}`;
  },
});

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
