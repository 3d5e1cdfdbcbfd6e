import { CadenzaError } from "../../core/errors.ts";
import type { CreatedEntry, Growing, Labels } from "../../core/log.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { Queued, Rate, Slot } from "../../core/slots.ts";
import { agentNameSchema } from "../../protocol/agent.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import { badArgument, checkAmount, checkCount, checkFunction, checkKeys, checkObject } from "./check.ts";
import { noLabels } from "./labels.ts";

/** The highest priority, and the lowest below 0. */
const MOST = 10;
/** The longest key of a limit, in UTF-16 units. */
const MAX_KEY = 255;
/** How many limits an agent may have. */
const MAX_LIMITS = 8;

/** A limit that runs of several agents may share: over all processes of a durable store that persists. */
export interface LimitOptions {
  /** 1 to 63 letters, digits, `-` or `_`. Agents that name the same limit share it, and should give the same numbers. */
  readonly name: string;
  /** A text of at most 255 characters: each has a limit of its own. Called once, when the run is created. Default: one for all. */
  readonly key?: ((run: QueuedRun) => string) | undefined;
  /** How many runs are active at the same time, from 1 on. Default: any number. */
  readonly max?: number | undefined;
  /**
   * How many runs begin: at most `count` in any `perMs` milliseconds, by the store's clock. A run counts once, also if it
   * waits for answers meanwhile. Default: any number.
   */
  readonly rate?: Rate | undefined;
  /**
   * `queue`: a run stays `created` until all its limits allow it. `reject`: `createRun` throws `limit_reached` for a run that
   * would have to wait, whichever of its limits it would wait for. Default: `queue`.
   */
  readonly whenFull?: "queue" | "reject" | undefined;
}

/** A new run, as the functions of its agent's limits see it. */
export interface QueuedRun {
  readonly tenant: string;
  /** Who asks for it; null if the application named none. */
  readonly principal: JsonValue;
  readonly session_id: string;
  readonly labels: Labels;
  readonly input: readonly Message[];
}

/** The options of an agent that say how its runs are queued. */
export interface QueueingOptions {
  /**
   * Limits that several agents may share, or of which each customer has its own. A run needs a permit of all of them at once, and
   * holds none while it waits. Sub-runs need none. Not together with `concurrency: { per: "process" }`. Default: none.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const hourly = { count: 100, perMs: 3_600_000 };
   * const runtime = new AgentRuntime();
   * runtime.register(
   *   "research",
   *   { limits: [{ name: "customer", key: ({ tenant }) => tenant, max: 2, rate: hourly }, { name: "browser", max: 10 }] },
   *   async () => "Found.",
   * );
   * const run = await runtime.scope({ tenant: "acme" }).createRun({ agent_name: "research", input: "" });
   * console.log(run.status); // → completed
   * ```
   */
  readonly limits?: readonly LimitOptions[] | undefined;
  /**
   * A whole number from -10 to 10: where runs wait, a higher one goes first. `createRun` may give a run its own.
   * Default: 0.
   */
  readonly priority?: number | ((run: QueuedRun) => number) | undefined;
  /**
   * Whose runs take turns, where many wait: a text of at most 255 characters. A customer with many runs does not hold up one
   * with few. Default: the tenant.
   */
  readonly fairBy?: ((run: QueuedRun) => string) | undefined;
}

/** Throws `invalid_argument` for invalid options. `per`: what the `concurrency` of the agent counts for. */
export function checkQueueing({ limits, priority, fairBy }: QueueingOptions, per: string | undefined): void {
  if (fairBy !== undefined) checkFunction("options.fairBy", fairBy);
  if (priority !== undefined && typeof priority !== "function") checkPriority("options.priority", priority);
  if (limits === undefined) return;
  if (!Array.isArray(limits) || limits.length > MAX_LIMITS)
    throw badArgument("options.limits", `a list of at most ${MAX_LIMITS} limits`, limits);
  if (per === "process" && limits.length > 0)
    throw badArgument("options.limits", 'none, since concurrency has per "process"', limits);
  const names = new Set<string>();
  for (const [index, limit] of limits.entries()) checkLimit(`options.limits.${index}`, limit, names);
}

function checkLimit(at: string, limit: LimitOptions, names: Set<string>): void {
  checkObject(at, limit);
  checkKeys(at, limit, ["name", "key", "max", "rate", "whenFull"]);
  const { name, key, max, rate, whenFull = "queue" } = limit;
  if (!agentNameSchema.safeParse(name).success || names.has(name))
    throw badArgument(`${at}.name`, "1 to 63 letters, digits, - or _, and no name of another limit", name);
  names.add(name);
  if (key !== undefined) checkFunction(`${at}.key`, key);
  if (max !== undefined) checkCount(`${at}.max`, max, 1);
  if (rate !== undefined) checkRate(`${at}.rate`, rate);
  if ((max ?? Number.POSITIVE_INFINITY) === Number.POSITIVE_INFINITY && rate === undefined)
    throw badArgument(at, "a limit with a finite max, a rate, or both", limit);
  if (whenFull !== "queue" && whenFull !== "reject")
    throw badArgument(`${at}.whenFull`, '"queue" or "reject"', whenFull);
}

function checkRate(at: string, rate: Rate): void {
  checkObject(at, rate);
  checkKeys(at, rate, ["count", "perMs"]);
  checkCount(`${at}.count`, rate.count, 1);
  checkAmount(`${at}.perMs`, rate.perMs);
  if (rate.count === Number.POSITIVE_INFINITY || rate.perMs === Number.POSITIVE_INFINITY || rate.perMs === 0)
    throw badArgument(at, "finite numbers, and perMs above 0", rate);
}

/** Throws `invalid_argument` unless the value is a priority. */
export function checkPriority(name: string, value: unknown): asserts value is number {
  if (typeof value !== "number" || !Number.isInteger(value) || Math.abs(value) > MOST)
    throw badArgument(name, `a whole number from -${MOST} to ${MOST}`, value);
}

/**
 * How a new run is queued. Undefined: its agent and its creator say nothing of it. `priority`: what the creator says. Throws
 * `invalid_argument` for what a function of the agent gives, or throws.
 */
export function queuedBy(
  options: QueueingOptions,
  tenant: string,
  created: CreatedEntry,
  own: number | undefined,
): Queued | undefined {
  const { limits, priority, fairBy } = options;
  if (limits === undefined && priority === undefined && fairBy === undefined && own === undefined) return undefined;
  return queueOf(options, tenant, created, own);
}

function queueOf(
  { limits, priority, fairBy }: QueueingOptions,
  tenant: string,
  { principal = null, session_id, labels = noLabels, input }: CreatedEntry,
  own: number | undefined,
): Queued {
  // What the functions do to their argument does not reach the run. Many agents have no such function.
  let copy: QueuedRun | undefined;
  const shown = (): QueuedRun => {
    copy ??= structuredClone({ tenant, principal, session_id, labels, input });
    return copy;
  };
  const queued: Growing<Queued> = {};
  if (limits !== undefined && limits.length > 0) {
    const slots = limits.map((limit) => slotBy(limit, shown));
    queued.slots = slots.sort((one, other) => (one.key < other.key ? -1 : 1));
  }
  const level = own ?? (typeof priority === "function" ? called("options.priority", priority, shown) : (priority ?? 0));
  checkPriority("options.priority", level);
  if (level !== 0) queued.priority = level;
  if (fairBy !== undefined) queued.fair = textBy("options.fairBy", fairBy, shown);
  return queued;
}

/** The keys of limits begin with a colon, which the name of no agent does. `waitingLine` reads them. */
function slotBy({ name, key, max, rate }: LimitOptions, shown: () => QueuedRun): Slot {
  const slot: Growing<Slot> = {
    key: key === undefined ? `:${name}` : `:${name}/${textBy(`limit ${name}: key`, key, shown)}`,
  };
  if (max !== undefined && max !== Number.POSITIVE_INFINITY) slot.max = max;
  if (rate !== undefined) slot.rate = { count: rate.count, perMs: rate.perMs };
  return slot;
}

function textBy(name: string, by: (run: QueuedRun) => string, shown: () => QueuedRun): string {
  const text: unknown = called(name, by, shown);
  if (typeof text !== "string" || text.length > MAX_KEY)
    throw badArgument(name, `a string of at most ${MAX_KEY} characters`, text);
  return text;
}

/** A promise is refused as a value, and must not end the process. */
function called<Value>(name: string, by: (run: QueuedRun) => Value, shown: () => QueuedRun): Value {
  try {
    const value = by(shown());
    if (isPromise(value)) value.then(ignore, ignore);
    return value;
  } catch (cause) {
    throw new CadenzaError("invalid_argument", `${name} threw for a new run.`, { cause });
  }
}
