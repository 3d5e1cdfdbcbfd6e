import type { AgentFunction, DurableContext } from "cadenza";
import type { Random } from "./random.ts";

/*
 * Pairs of small programs: what an agent did, and what it does after a change of its code. A change may block the runs of
 * the old program, or may not.
 */

export type Line =
  | { readonly does: "step" | "ask" | "sleep" | "say" | "run"; readonly name: string }
  | { readonly does: "loop"; readonly times: number; readonly body: Lines }
  | { readonly does: "all"; readonly branches: readonly Lines[] }
  | { readonly does: "patched"; readonly id: string; readonly body: Lines };

export type Lines = readonly Line[];

const NAMES = ["a", "b", "c"] as const;
const MOST = 4;

export function someLines(random: Random, depth = 2): Lines {
  return Array.from({ length: 1 + random.below(MOST) }, () => someLine(random, depth));
}

function someLine(random: Random, depth: number): Line {
  const kind = random.below(depth > 0 ? 10 : 7);
  const name = random.pick(NAMES);
  if (kind < 3) return { does: "step", name };
  if (kind < 4) return { does: "ask", name };
  if (kind < 5) return { does: "say", name };
  if (kind < 6) return { does: "sleep", name };
  if (kind < 7) return { does: "run", name };
  if (kind < 8) return { does: "loop", times: 1 + random.below(2), body: someLines(random, depth - 1) };
  if (kind < 9) return { does: "all", branches: [branch(random), branch(random)] };
  return { does: "patched", id: name, body: someLines(random, depth - 1) };
}

function branch(random: Random): Lines {
  return Array.from({ length: 1 + random.below(2) }, () => someLine(random, 0));
}

/** The program after up to three changes. */
export function changed(random: Random, lines: Lines): Lines {
  let result = lines;
  for (let changes = random.below(4); changes > 0; changes--) result = changedOnce(random, result);
  return result;
}

function changedOnce(random: Random, lines: Lines): Lines {
  const at = random.below(lines.length + 1);
  const [before, line, after] = [lines.slice(0, at), lines[at], lines.slice(at + 1)];
  const rest = line === undefined ? [] : [line];
  switch (random.below(6)) {
    case 0:
      return [...before, someLine(random, 1), ...rest, ...after];
    case 1:
      return [
        ...before,
        { does: "patched", id: `new ${random.below(2)}`, body: someLines(random, 1) },
        ...rest,
        ...after,
      ];
    case 2:
      return [...before, ...after];
    case 3:
      return [...before, ...after.slice(0, 1), ...rest, ...after.slice(1)];
    case 4:
      return line !== undefined && "name" in line
        ? [...before, { ...line, name: random.pick(NAMES) }, ...after]
        : lines;
    default:
      if (line?.does === "loop" || line?.does === "patched")
        return [...before, { ...line, body: changedOnce(random, line.body) }, ...after];
      return lines;
  }
}

/** The agent that does these lines. */
export function agentOf(lines: Lines): AgentFunction {
  return (async (_input: unknown, context: DurableContext) => {
    await perform(lines, context);
    return "end";
  }) as AgentFunction;
}

async function perform(lines: Lines, context: DurableContext): Promise<void> {
  for (const line of lines) {
    if (line.does === "loop") for (let time = 0; time < line.times; time++) await perform(line.body, context);
    else if (line.does === "all") await Promise.all(line.branches.map((one) => perform(one, context)));
    else if (line.does !== "patched") await performOne(line, context);
    else if (context.patched(line.id)) await perform(line.body, context);
  }
}

async function performOne(
  { does, name }: Extract<Line, { readonly name: string }>,
  { step, ask, sleep, emit, run }: DurableContext,
): Promise<void> {
  if (does === "step") await step(name, () => name);
  else if (does === "ask") await ask(name);
  else if (does === "sleep") await sleep(60_000, { name });
  else if (does === "say") await emit(name);
  else await run("child", name);
}
