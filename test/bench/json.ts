import { command } from "../harness/commands/commands.ts";
import type { Shape } from "./json-shapes.ts";
import { parts, shapes } from "./json-shapes.ts";
import type { Target } from "./json-targets.ts";
import { openTargets } from "./json-targets.ts";

const TRIES = 3;
/** How often a request that was too slow is tried again after all others, at most. */
const MORE_TRIES = 10;

/** A request that costs too much: where it is sent, and its body. */
interface SlowRequest {
  readonly target: Target;
  readonly name: string;
  readonly shape: Shape;
  readonly ms: number;
}

export const bench = command({
  about:
    "Measures what a body of 10 MB costs, whatever its shape. Each shape is sent to every endpoint that takes JSON, with the limit on bytes switched off. Prints the CPU time of each request in milliseconds, the least of three, and what was answered. What was too slow is tried again after all others, since a shared machine is slow for minutes at a time.",
  options: {
    mb: { about: "The megabytes of a body.", default: 10 },
    most: { about: "The milliseconds that a request may cost.", default: 250 },
    only: { about: "A text in the names of the shapes that are sent.", default: "" },
  },
  async run({ mb, most, only }, report) {
    const bytes = mb * 1_000_000;
    const { forValues, forParts, close } = openTargets();
    const slow: SlowRequest[] = [];
    let [requests, worst] = [0, 0];
    for (const [all, targets] of [
      [shapes, forValues],
      [parts, forParts],
    ] as const) {
      for (const [name, shape] of Object.entries(all)) {
        if (!name.includes(only)) continue;
        const texts = textsOf(shape, bytes);
        const row: string[] = [];
        for (const target of targets) {
          const { ms, said } = await cost(target, texts, TRIES);
          requests += 1;
          if (ms > most) slow.push({ target, name, shape, ms });
          else worst = Math.max(worst, ms);
          row.push(`${ms > most ? "SLOW " : ""}${target.name} ${ms.toFixed(0)} (${said})`);
        }
        report.say(`${name.padEnd(34)} ${row.join(", ")}`);
      }
    }
    for (const { target, name, shape, ms: before } of slow) {
      const { ms } = await cost(target, textsOf(shape, bytes), MORE_TRIES);
      worst = Math.max(worst, Math.min(ms, before));
      const text = `once more: ${name}, ${target.name}: ${ms.toFixed(0)}, before ${before.toFixed(0)}`;
      if (Math.min(ms, before) <= most) report.say(text);
      else report.wrong(text, { only: name });
    }
    report.say(`at most ${worst.toFixed(0)} ms of CPU time`);
    await close();
    return `${requests} requests`;
  },
});

/** A shape as a body holds it, and as much of it as a string in a body of the length holds. */
interface Texts {
  readonly whole: string;
  readonly quoted: string;
}

function textsOf(shape: Shape, bytes: number): Texts {
  const whole = shape(bytes);
  return { whole, quoted: shape((bytes * bytes) / JSON.stringify(whole).length) };
}

/** The least CPU time of some requests with the shape, and what the last of them was answered. */
async function cost(
  { handler, path, body, quotes }: Target,
  { whole, quoted }: Texts,
  tries: number,
): Promise<{ readonly ms: number; readonly said: string }> {
  const sent = quotes === true ? quoted : whole;
  let ms = Number.POSITIVE_INFINITY;
  let said = "";
  for (let attempt = 0; attempt < tries; attempt++) {
    const url = `http://localhost${typeof path === "string" ? path : await path()}`;
    const headers = { "content-type": "application/json" };
    const bytes = new TextEncoder().encode(await body(sent));
    const request = new Request(url, { method: "POST", headers, body: bytes });
    const before = process.cpuUsage();
    const response = await handler(request);
    const answered = await response.text();
    const { user, system } = process.cpuUsage(before);
    ms = Math.min(ms, (user + system) / 1_000);
    said = `${response.status} ${/"reason":"(\w+)"/.exec(answered)?.[1] ?? ""}`.trim();
  }
  return { ms, said };
}
