import { readFileSync } from "node:fs";
import { AgentRuntime } from "cadenza";
import type { Entry, Store, StoredRun } from "cadenza/store";
import { durable } from "cadenza/store";
import type { Member } from "./fleet.ts";
import type { OrderedRun } from "./load.ts";
import type { Act, WitnessLine } from "./messages.ts";
import { answerTo, durability, wordFor } from "./messages.ts";

/** By how long a body of a step may outlast the lease of its process, and another one of it, in milliseconds. */
const SLACK_MS = 1_000;

/** What there is to judge of a trial. */
export interface Evidence {
  readonly store: Store;
  readonly runs: readonly OrderedRun[];
  readonly members: readonly Member[];
  /** The lines of all processes. */
  readonly lines: readonly WitnessLine[];
  /** The libraries that a newer one has stopped, by their names. */
  readonly stopped: ReadonlyMap<string, Stop>;
}

/** When a newer library has made a store one that an older one cannot write: at some time in between. */
export interface Stop {
  readonly from: number;
  readonly by: number;
}

export interface Judgement {
  readonly wrong: readonly string[];
  readonly figures: Readonly<Record<string, number>>;
}

/** One execution of the body of a step. `to`: when it was over, or its process was gone. */
interface Body {
  readonly id: string;
  readonly process: string;
  readonly from: number;
  readonly to: number;
  readonly how: WitnessLine["is"] | "gone";
}

export function readLines(witness: string): readonly WitnessLine[] {
  const lines = readFileSync(witness, "utf8").split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as WitnessLine);
}

/** Judges each run by its log, and each body of a step by what it has left outside of the library. Closes the store. */
export async function judge(evidence: Evidence): Promise<Judgement> {
  const judging = new Judging(evidence);
  const runtime = new AgentRuntime({ store: durable(evidence.store, durability), work: false });
  for (const run of evidence.runs) await judging.judgeRun(run, runtime);
  judging.judgeBodies();
  await runtime.close({ drainMs: 0 });
  return judging;
}

class Judging implements Judgement {
  readonly wrong: string[] = [];
  readonly figures: Record<string, number> = {
    ...{ runs: 0, results: 0, "repeated after a kill": 0, "repeated where the library has stopped": 0, "at once": 0 },
    ...{ patched: 0 },
  };
  readonly #evidence: Evidence;
  readonly #members: ReadonlyMap<string, Member>;
  /** The bodies by run and key. */
  readonly #bodies = new Map<string, Body[]>();
  /** The bodies whose results are in a log. */
  readonly #recorded = new Set<string>();

  constructor(evidence: Evidence) {
    this.#evidence = evidence;
    this.#members = new Map(evidence.members.map((member) => [member.name, member]));
    const ends = new Map(evidence.lines.flatMap((line) => (line.is === "began" ? [] : [[line.body, line]])));
    for (const { is, run, key, body, process, at } of evidence.lines) {
      if (is !== "began") continue;
      const end = ends.get(body);
      const gone = this.#members.get(process)?.goneAt ?? Number.POSITIVE_INFINITY;
      const bodies = this.#bodies.get(`${run} ${key}`) ?? [];
      this.#bodies.set(`${run} ${key}`, bodies);
      bodies.push({ id: body, process, from: at, to: end?.at ?? gone, how: end?.is ?? "gone" });
    }
  }

  async judgeRun({ label, acts, run_id }: OrderedRun, runtime: AgentRuntime): Promise<void> {
    const { store } = this.#evidence;
    const stored = await store.findByIdempotencyKey("", label);
    if (run_id === undefined || stored?.key.run_id !== run_id) {
      this.wrong.push(`${label} is lost: ${run_id} was acknowledged, and ${stored?.key.run_id} is stored`);
      return;
    }
    this.figures["runs"] = (this.figures["runs"] ?? 0) + 1;
    await this.#told(label, acts, stored, runtime);
  }

  /** What a run has told, which is wrong if that is not what its code tells with the results of its log. */
  async #told(label: string, acts: readonly Act[], stored: StoredRun, runtime: AgentRuntime): Promise<string> {
    const { key, head, position } = stored;
    const name = `${label} (${key.run_id})`;
    const entries = (await this.#evidence.store.read(key, 0, position)) ?? [];
    if (head.status !== "completed")
      this.wrong.push(`${name} is ${head.status}: ${JSON.stringify(entries.at(-1))?.slice(0, 500)}`);
    const results = this.#results(name, key.run_id, entries);
    const { children } = await runtime.details(key.run_id);
    const below: string[] = [];
    for (const child of children) {
      const found = await this.#evidence.store.find({ tenant: key.tenant, run_id: child });
      if (found === undefined) {
        this.wrong.push(`${name} has lost its sub-run ${child}`);
        continue;
      }
      const number = acts.flatMap((act, index) => (act === "sub" ? [index] : []))[below.length];
      const told = await this.#told(`${label}/${number}`, ["step", "ask", "step"], found, runtime);
      below.push(`completed: ${told}`);
    }
    const isPatched = entries.some(({ type }) => type === "patched");
    if (isPatched) this.figures["patched"] = (this.figures["patched"] ?? 0) + 1;
    const expected = JSON.stringify(toldBy(label, acts, results, below));
    const told = lastText(entries);
    if (told !== expected) this.wrong.push(`${name} has told ${told} in place of ${expected}`);
    if (!isPatched && [...results.keys()].some((one) => one.startsWith("new#")))
      this.wrong.push(`${name} has executed new code without the patch`);
    return told;
  }

  #results(name: string, run_id: string, entries: readonly Entry[]): ReadonlyMap<string, string> {
    const results = new Map<string, string>();
    for (const entry of entries) {
      if (entry.type !== "step" || entry.error !== null || !isOfStep(entry.key)) continue;
      const result = String(entry.result);
      if (results.has(entry.key)) this.wrong.push(`${name} has two results of ${entry.key}`);
      results.set(entry.key, result);
      this.#recorded.add(result);
      this.figures["results"] = (this.figures["results"] ?? 0) + 1;
      const bodies = this.#bodies.get(`${run_id} ${entry.key}`) ?? [];
      if (!bodies.some(({ id, how }) => id === result && how === "ended"))
        this.wrong.push(`${name} has a result of ${entry.key} that no body has left`);
    }
    return results;
  }

  /** Bodies without a recorded result need a reason, and no two of one step are executed at once. */
  judgeBodies(): void {
    for (const [name, bodies] of this.#bodies) {
      for (const body of bodies)
        if (body.how === "ended" && !this.#recorded.has(body.id)) this.#judgeRepeated(name, body);
      const sorted = bodies.toSorted((one, other) => one.from - other.from);
      for (const [index, body] of sorted.entries()) {
        const next = sorted[index + 1];
        const ms = next === undefined ? 0 : body.to - next.from;
        if (ms <= 0) continue;
        this.figures["at once"] = (this.figures["at once"] ?? 0) + 1;
        if (ms > SLACK_MS)
          this.wrong.push(`${name} was executed by ${body.process} and ${next?.process} at once for ${ms} ms`);
      }
    }
  }

  #judgeRepeated(name: string, { process, to }: Body): void {
    const member = this.#members.get(process);
    const never = { from: Number.POSITIVE_INFINITY, by: Number.POSITIVE_INFINITY };
    const { from, by } = this.#evidence.stopped.get(member?.library ?? "") ?? never;
    const count = (why: string): void => {
      this.figures[why] = (this.figures[why] ?? 0) + 1;
    };
    if ((member?.goneAt ?? Number.POSITIVE_INFINITY) - to <= durability.leaseMs) count("repeated after a kill");
    else if (to >= from) {
      count("repeated where the library has stopped");
      if (to > by + durability.leaseMs + SLACK_MS)
        this.wrong.push(`${name} was executed by ${process} ${to - by} ms after its library cannot write`);
    } else this.wrong.push(`${name} was executed by ${process}, which lived on, and its result is not in the log`);
  }
}

function isOfStep(key: string): boolean {
  return /^(step|slow|retry|left|right|old|new)#\d+$/.test(key);
}

/** What the code tells, with these results of its steps and sub-runs. */
function toldBy(
  label: string,
  acts: readonly Act[],
  results: ReadonlyMap<string, string>,
  below: readonly string[],
): readonly string[] {
  const counts = new Map<string, number>();
  const next = (name: string): string => {
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return `${name}#${count}`;
  };
  const resultOf = (name: string): string => results.get(next(name)) ?? "nothing";
  let subs = 0;
  const told: string[] = [];
  for (const [number, act] of acts.entries()) {
    if (act === "ask") told.push(answerTo(`${label}/${number}`));
    if (act === "receive") told.push(wordFor(label));
    if (act === "sub") told.push(below[subs++] ?? "nothing");
    if (act === "step" || act === "slow" || act === "retry") told.push(resultOf(act));
    if (act === "both") told.push(resultOf("left"), resultOf("right"));
    // Once it has the patch, it has it for good.
    if (act === "patch") told.push(resultOf(results.has(`new#${(counts.get("new") ?? 0) + 1}`) ? "new" : "old"));
  }
  return told;
}

/** What an agent has emitted last: what it returned. */
function lastText(entries: readonly Entry[]): string {
  const last = entries.findLast(({ type }) => type === "emitted");
  const { part, message } = (last ?? {}) as {
    readonly part?: { readonly content?: string };
    readonly message?: { readonly parts: readonly { readonly content?: string }[] };
  };
  return part?.content ?? message?.parts.at(-1)?.content ?? "nothing";
}
