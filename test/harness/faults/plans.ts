import type { Random } from "../random.ts";

/*
 * What an agent does: a small program in its input. It depends on this input and on the results of its own operations
 * only.
 */

export interface Plan {
  /** Unique. The id of a sub-run begins with that of its parent. */
  readonly id: string;
  readonly acts: readonly Act[];
  /** Whether it ends by throwing. */
  readonly fails: boolean;
}

export type Act =
  | { readonly do: "say"; readonly text: string }
  | StepAct
  | AskAct
  | SleepAct
  | ReceiveAct
  /** Several at once. */
  | { readonly do: "all"; readonly acts: readonly Act[] }
  /** A sub-run. */
  | { readonly do: "run"; readonly agent: "durable" | "plain"; readonly plan: Plan }
  /** Reads and sets the state of the session. */
  | { readonly do: "state" };

export interface StepAct {
  readonly do: "step";
  readonly name: string;
  /** How long its body takes. */
  readonly ms: number;
  /** How much of that time it blocks the event loop, as a long computation does. */
  readonly holdMs: number;
  /** How many of its attempts fail. */
  readonly failures: number;
  /** How many texts its body emits. */
  readonly tokens: number;
  /** Whether the body stops when its signal aborts. */
  readonly heeds: boolean;
}

export interface AskAct {
  readonly do: "ask";
  /** By `context.ask`, or by a `yield`, which has no schema and no deadline. */
  readonly by: "ask" | "yield";
  readonly schema: boolean;
  /** Its timeout; null for none. */
  readonly timeoutMs: number | null;
  /** Whether it has a default; otherwise the run fails at the deadline. */
  readonly defaults: boolean;
}

export interface SleepAct {
  readonly do: "sleep";
  readonly ms: number;
}

export interface ReceiveAct {
  readonly do: "receive";
  readonly name: MessageName;
  /** How long it waits; null for ever. 0: it takes only a message that is there. */
  readonly timeoutMs: number | null;
  /** Whether it has a default; otherwise it rejects at the deadline, and the run goes on. */
  readonly defaults: boolean;
}

/** The names of messages. An `order` has to fit a schema, a `note` may be anything. */
export const MESSAGE_NAMES = ["note", "order"] as const;
export type MessageName = (typeof MESSAGE_NAMES)[number];

interface Place {
  readonly id: string;
  readonly depth: number;
  /** Whether the act runs beside others. */
  readonly isBeside: boolean;
  /** Whether the run is durable: it may then start sub-runs of every kind. */
  readonly durable: boolean;
}

const NAMES = ["fetch", "plan", "call", "look up"] as const;
const MAX_DEPTH = 2;
/** Several of them side by side take longer than a lease. */
const HOLD_MS = 800;

/** A random plan. */
export function randomPlan(random: Random, id: string, durable: boolean, depth = 0): Plan {
  let subRuns = 0;
  const place = { id, depth, durable } as const;
  const nextId = () => `${id}.${subRuns++}`;
  const acts = Array.from({ length: 1 + random.below(depth === 0 ? 5 : 3) }, () =>
    act(random, { ...place, isBeside: false }, nextId),
  );
  return { id, acts, fails: random.chance(0.05) };
}

function act(random: Random, place: Place, nextId: () => string): Act {
  const { depth, isBeside, durable } = place;
  const make = random.weighted<() => Act>([
    [5, () => stepAct(random, isBeside)],
    [isBeside ? 2 : 4, () => askAct(random, isBeside)],
    [isBeside ? 0.7 : 1.5, () => sleepAct(random)],
    [isBeside ? 1 : 2, () => receiveAct(random)],
    [isBeside ? 0 : 1, () => ({ do: "say", text: random.pick(NAMES) })],
    [isBeside ? 0 : 0.5, () => ({ do: "state" })],
    [isBeside ? 0 : 2.5, () => all(random, place, nextId)],
    [depth < MAX_DEPTH ? 2 : 0, () => subRun(random, nextId(), depth, durable)],
  ]);
  return make();
}

function stepAct(random: Random, isBeside: boolean): StepAct {
  return {
    do: "step",
    name: random.pick(NAMES),
    ms: random.weighted([
      [3, 0],
      [3, 10],
      [3, 80],
      [2, 300],
      [0.6, 1_200],
      [0.2, 3_000],
    ]),
    holdMs: isBeside && random.chance(0.04) ? HOLD_MS : 0,
    failures: random.chance(0.12) ? 1 + random.below(2) : 0,
    tokens: !isBeside && random.chance(0.3) ? 1 + random.below(4) : 0,
    heeds: random.chance(0.5),
  };
}

function askAct(random: Random, isBeside: boolean): AskAct {
  if (!isBeside && random.chance(0.2))
    return { do: "ask", by: "yield", schema: false, timeoutMs: null, defaults: false };
  const timeoutMs = random.chance(0.4) ? random.pick([150, 400, 1_000, 2_500]) : null;
  return { do: "ask", by: "ask", schema: random.chance(0.5), timeoutMs, defaults: random.chance(0.8) };
}

function sleepAct(random: Random): SleepAct {
  return { do: "sleep", ms: random.pick([0, 40, 300, 1_200, 3_000]) };
}

function receiveAct(random: Random): ReceiveAct {
  const timeoutMs = random.chance(0.5) ? random.pick([0, 150, 600, 2_000]) : null;
  return { do: "receive", name: random.pick(MESSAGE_NAMES), timeoutMs, defaults: random.chance(0.5) };
}

function all(random: Random, place: Place, nextId: () => string): Act {
  const acts = Array.from({ length: 2 + random.below(3) }, () => act(random, { ...place, isBeside: true }, nextId));
  return { do: "all", acts };
}

function subRun(random: Random, id: string, depth: number, durable: boolean): Act {
  const isDurable = random.chance(durable ? 0.7 : 0.6);
  return { do: "run", agent: isDurable ? "durable" : "plain", plan: randomPlan(random, id, isDurable, depth + 1) };
}
