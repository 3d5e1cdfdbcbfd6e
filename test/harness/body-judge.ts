import type { Entry } from "cadenza/store";

/*
 * Judges what the bodies of steps do while they do it: each attempt is in the log before its body begins, begins once and
 * before the step has a result, in the process that owns the run, and beside no body of another process. What an earlier
 * generation has left at work may go on anywhere: its result is dropped.
 */

/** The body of a step in a process. */
export interface Body {
  readonly process: string;
  /** Its run, with the tenant if there are several. */
  readonly run_id: string;
  readonly key: string;
  readonly attempt: number;
}

/** A body that begins. */
export interface BeginningBody extends Body {
  /** The owner of the run in the store. Undefined: the store does not say. */
  readonly owner: string | null | undefined;
  /** The log of the run at this moment, or how long it is. Undefined: the store does not say. */
  readonly log: readonly Entry[] | number | undefined;
}

/** A step of a run. */
interface Step {
  readonly began: BeginningBody[];
  /** The processes whose agents have its result. An earlier report of another process may arrive later. */
  readonly gotBy: Set<string>;
}

export class BodyJudge {
  /** What is wrong. */
  readonly wrong: string[];
  /** The processes that may execute nothing. */
  readonly webs = new Set<string>();
  /** By run and key. */
  readonly #steps = new Map<string, Map<string, Step>>();
  /** The bodies that are being executed, by run. */
  readonly #working = new Map<string, Map<string, Body>>();

  constructor(wrong: string[]) {
    this.wrong = wrong;
  }

  /** How many steps have begun or have a result. */
  get steps(): number {
    return [...this.#steps.values()].reduce((sum, { size }) => sum + size, 0);
  }

  began(body: BeginningBody): void {
    const { process, run_id, key, attempt, owner, log } = body;
    const step = this.#step(run_id, key);
    const say = (what: string): void => void this.wrong.push(`${nameOf(body)} ${what}`);
    if (this.webs.has(process)) say("runs in a process that may execute nothing");
    if (step.gotBy.has(process)) say("begins although the step has its result");
    if (step.began.some((one) => one.attempt === attempt)) say("begins twice");
    step.began.push(body);
    if (owner !== undefined && owner !== process && !(owner ?? "").startsWith(`${process}/`))
      say(`runs, and the run belongs to ${owner}`);
    if (typeof log === "object") for (const what of misbegun(body, log)) say(what);
    const working = this.#working.get(run_id) ?? new Map<string, Body>();
    this.#working.set(run_id, working);
    for (const [name, other] of working)
      if (other.process !== process && generationOf(other) >= generationOf(body)) say(`runs while ${name} is running`);
    working.set(nameOf(body), body);
  }

  ended(body: Body): void {
    this.#working.get(body.run_id)?.delete(nameOf(body));
  }

  /** The agent of a run has been handed the result of an operation. */
  got({ process, run_id, key }: Omit<Body, "attempt">): void {
    this.#step(run_id, key).gotBy.add(process);
  }

  /** A process executes nothing any more, or other processes may take over what it executes. */
  left(process: string): void {
    for (const working of this.#working.values())
      for (const [name, body] of working) if (body.process === process) working.delete(name);
  }

  /** What is wrong with the bodies of a run, by its log in the end. */
  misran(run_id: string, log: readonly Entry[]): string[] {
    const wrong: string[] = [];
    for (const [key, { began, gotBy }] of this.#steps.get(run_id) ?? []) {
      for (const body of began) {
        const length = typeof body.log === "number" ? body.log : log.length;
        for (const what of misbegun(body, log.slice(0, length), typeof body.log !== "number"))
          wrong.push(`${nameOf(body)} ${what}`);
      }
      if (gotBy.size > 0 && began.length > 0 && !log.some((entry) => entry.type === "step" && entry.key === key))
        wrong.push(`the result of ${key} of ${run_id} is lost`);
    }
    return wrong;
  }

  #step(run_id: string, key: string): Step {
    const steps = this.#steps.get(run_id) ?? new Map<string, Step>();
    this.#steps.set(run_id, steps);
    const step = steps.get(key) ?? { began: [], gotBy: new Set() };
    steps.set(key, step);
    return step;
  }
}

/** What is wrong with a body that begins when the log is this one, or `later`, when it has grown. */
function* misbegun({ key, attempt }: Body, log: readonly Entry[], later = false): Iterable<string> {
  if (!log.some((entry) => entry.type === "intent" && entry.key === key && entry.attempt === attempt))
    yield "runs without an intent in the log";
  if (later) return;
  if (log.some((entry) => entry.type === "step" && entry.key === key)) yield "runs again, and the step has a result";
  if (log.some(({ type }) => type === "ended")) yield "runs, and the run has ended";
}

/** The generation to which the step belongs: `plan#2.1` to the second, `plan#1` to the first. */
function generationOf({ key }: Body): number {
  return Number(/#(\d+)\.\d+$/.exec(key)?.[1] ?? 1);
}

function nameOf({ process, run_id, key, attempt }: Body): string {
  return `${process}: attempt ${attempt} at ${key} of ${run_id}`;
}
