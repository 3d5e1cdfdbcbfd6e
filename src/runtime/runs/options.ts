import { containedLogger } from "../../core/background.ts";
import type { Clock, Ids, Logger, Store } from "../../core/ports.ts";
import { engineKey } from "../../core/ports.ts";
import type { Rate } from "../../core/slots.ts";
import { MemoryStore } from "../../stores/memory/memory.ts";
import { StepCounts } from "../../stores/memory/step-counts.ts";
import {
  badArgument,
  checkCount,
  checkFigure,
  checkFunction,
  checkKey,
  checkKeys,
  checkObject,
  maxLengths,
  readId,
} from "../agent/check.ts";
import type { Interceptor, Interceptors } from "../agent/interceptors.ts";
import { readInterceptors } from "../agent/interceptors.ts";
import { MAX_LOG, readLogsOf } from "../log/fold-log.ts";
import type { StepLimit } from "../log/step-limits.ts";
import { StepLimits } from "../log/step-limits.ts";
import { StoreClock } from "../log/store-clock.ts";
import { guarded } from "../log/store-failures.ts";
import { guardedClock, machineClock, silentLogger, systemIds } from "../log/system.ts";
import { Feed } from "../log/watch.ts";
import type { AuditRecord } from "./audit.ts";
import { Audit } from "./audit.ts";
import type { ReadRule, RetentionOptions } from "./retention.ts";
import { checkGenerations, readRules } from "./retention.ts";

/** The options of a runtime. All are optional. Durations are in milliseconds. `Infinity` switches a limit off. */
export interface RuntimeOptions {
  /** The store that keeps the runs. Durable runs need a durable one, as of `cadenza/sqlite`. Default: a store in memory. */
  readonly store?: Store | undefined;
  /** How long ended runs and unused sessions are kept. Runs that have not ended are always kept. */
  readonly retention?: RetentionOptions | undefined;
  /** The limits above which requests are refused or runs fail. */
  readonly limits?: LimitOptions | undefined;
  /**
   * Limits of steps, by name: an attempt at a step that names one waits until it may begin. On a durable store that persists
   * the store counts, for all its processes and by its clock, and each of them declares the same; otherwise this process
   * counts. Default: none.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime({ stepLimits: { mail: { max: 2, rate: { count: 50, perMs: 1_000 } } } });
   * runtime.register("notify", (_input, { step }) => step("send", () => "sent", { limit: "mail" }));
   * console.log((await runtime.createRun({ agent_name: "notify", input: "" })).status); // → completed
   * ```
   */
  readonly stepLimits?: Readonly<Record<string, StepLimit>> | undefined;
  /**
   * Whether this process executes runs. `false`: it accepts, shows, answers and cancels the runs of the store, and other
   * processes execute them; `register` then means {@link AgentRuntime.declare}. `max`: while it executes so many runs, it
   * takes no more from the store, and durable runs whose time has come wait there. A run is executed while it is loaded
   * and catches up, and while its agent or a step is at work: not while it waits, also for a sub-run or a slot. New runs of this
   * process, and those that are answered in it, count and are not held up. Anything else than the default needs a store that
   * processes share. Default: `{ max: 1_000 }`.
   */
  readonly work?: boolean | { readonly max?: number | undefined } | undefined;
  /**
   * How long a run may be active, in milliseconds: how long its agent, a step or a sub-run is at work. What it waits
   * for does not count, nor the queue for a slot, nor an outage of the store. A run that exceeds it fails with the reason
   * `run_timeout`. An agent or a call may set its own. Default: `Infinity`.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * How long a question may be answered. After that its default is the answer, or the run fails with the reason
   * `await_timeout`. A question may set its own. Default: `Infinity`.
   */
  readonly awaitTimeoutMs?: number | undefined;
  /** How much time a stopped agent has for its `finally` blocks. Then its run ends without it. Default: 500. */
  readonly cancelGraceMs?: number | undefined;
  /** What wraps the calls, steps and questions of all agents, the outermost first. Default: none. */
  readonly interceptors?: readonly Interceptor[] | undefined;
  /** Whether clients see the message of any error that an agent throws, not only of an `AgentError`. Default: false. */
  readonly exposeErrors?: boolean | undefined;
  /**
   * Called with a record of each call that changes something, and of each request over HTTP that is refused for want of
   * rights: who, what, and what came of it. See {@link AuditRecord}. It is called at most once for each, when the store has
   * the change, and before the caller gets its result; for a new run perhaps after that. It is not waited for. What it
   * throws, or rejects with, goes to the logger, and has no other effect. Default: none.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime({
   *   onAudit: ({ action, outcome, by }) => console.log(action, outcome, by), // → create done { name: 'Ada' }
   * });
   * runtime.register("echo", (input) => input);
   * await runtime.scope({ principal: { name: "Ada" } }).createRun({ agent_name: "echo", input: "Hello" });
   * ```
   */
  readonly onAudit?: ((record: AuditRecord) => unknown) | undefined;
  /** Takes the messages that no caller waits for. Default: a logger that drops them. */
  readonly logger?: Logger | undefined;
  /** The time and the timers. Default: the machine's. */
  readonly clock?: Clock | undefined;
  /** Makes UUIDs, which are kept in lower case with dashes, and tokens. Default: random ones. */
  readonly ids?: Ids | undefined;
}

/** The limits of a runtime. An error with the code `limit_reached` names the limit. */
export interface LimitOptions {
  /**
   * How many runs that have not ended may be loaded in this process when it accepts a new one. In a store that outlives the
   * process, runs that it has taken from the store do not count, nor durable runs that only wait: the one that waits longest
   * is evicted for the next one. Runs that are answered go on all the same, and count. Default: 10,000.
   */
  readonly maxLiveRuns?: number | undefined;
  /** How many ancestors a sub-run may have: its parent, the parent's parent, and so on. Default: 32. */
  readonly maxDepth?: number | undefined;
  /** How many runs may wait for a slot under their agent's `concurrency`. Default: 1,000. */
  readonly maxQueuedRuns?: number | undefined;
  /** How many entries the log of one run may have. A run that exceeds it fails. Default: 1,000,000. */
  readonly maxLogEntries?: number | undefined;
  /**
   * How many characters the log of one run may have as JSON, in a persistent store. A run that exceeds it fails, and a log that
   * exceeds it is not read as a whole: calls that need all of it reject. Default: 268,435,456 (256 MiB).
   */
  readonly maxLogBytes?: number | undefined;
  /** How many messages may wait until the agent of their run receives them. Default: 10,000. */
  readonly maxWaitingMessages?: number | undefined;
  /** How many bytes of UTF-8 the data of these may have as JSON, in all. Default: 16 MiB. */
  readonly maxWaitingBytes?: number | undefined;
  /** How many bytes of UTF-8 the content of one part that an agent emits may have. Default: 10 MiB. */
  readonly maxPartBytes?: number | undefined;
  /**
   * How many bytes of UTF-8 the result of a durable step may have as JSON. A step with a larger result fails, and is not
   * tried again. Default: 10 MiB.
   */
  readonly maxStepBytes?: number | undefined;
  /**
   * How many stored runs a list, or the search for the run with a message's labels, may look at in a persistent store. A
   * page that needs more of them is refused, never given in part. Default: 10,000.
   */
  readonly maxExaminedRuns?: number | undefined;
  /** How many entries of one run may wait for the store. Above it, `yield` and `emit` wait. Default: 1,000. */
  readonly maxBacklog?: number | undefined;
  /** Limits of each tenant. */
  readonly perTenant?: TenantLimits | undefined;
}

/**
 * The limits of each tenant: what one tenant uses is no refusal and no loss to another. The errors name them as
 * `perTenant.liveRuns` and so on.
 *
 * @example
 * ```ts
 * import { AgentRuntime, CadenzaError } from "cadenza";
 *
 * const runtime = new AgentRuntime({ limits: { perTenant: { liveRuns: 1 } } });
 * runtime.register("asks", async (_input, { ask }) => void (await ask("Well?")));
 * const create = (tenant: string) => runtime.scope({ tenant }).createRun({ agent_name: "asks", input: "" });
 * await create("blue");
 * const refusal = await create("blue").catch((error: unknown) => error);
 * console.log(CadenzaError.is(refusal) && refusal.limit); // → perTenant.liveRuns
 * console.log((await create("red")).status); // → awaiting
 * ```
 */
export interface TenantLimits {
  /**
   * How many of its runs that have not ended may be loaded in this process; one more is refused. Default: half of
   * `maxLiveRuns`; all of them for the empty tenant, which applications without tenants have.
   */
  readonly liveRuns?: number | undefined;
  /**
   * How many of its runs may wait in this process for a slot; one more is refused. Default: half of `maxQueuedRuns`; all
   * of them for the empty tenant.
   */
  readonly queuedRuns?: number | undefined;
  /**
   * How many of its streams may be open at a time, in each HTTP handler of the runtime; one more is refused. Default:
   * half of the handler's `maxReaders`; all of them for the empty tenant.
   */
  readonly readers?: number | undefined;
  /**
   * How many of its ended runs are kept. Beyond that its runs that ended first are deleted. Default: `Infinity`.
   */
  readonly storedRuns?: number | undefined;
  /**
   * How many of its sessions are kept. Beyond that the ones that were changed first and that no run uses are deleted.
   * Default: 10,000, or `Infinity` in a persistent store.
   */
  readonly sessions?: number | undefined;
}

/** The options with their defaults. */
export interface Settings {
  readonly interceptors: Interceptors;
  /** Undefined: the application wants no records. */
  readonly onAudit: Audit | undefined;
  readonly timeoutMs: number;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly exposeErrors: boolean;
  readonly store: Store;
  /** Whether several processes can work on the runs of the store. */
  readonly isShared: boolean;
  /** The events of all runs of the store, for those that watch them. */
  readonly feed: Feed;
  readonly clock: StoreClock;
  readonly ids: Ids;
  readonly logger: Logger;
  /** How many runs this process may be executing when it takes more. Undefined: it executes none. */
  readonly work: number | undefined;
  readonly retention: Readonly<typeof retentionDefaults> & { readonly rules: readonly ReadRule[] };
  readonly limits: Required<{ [Key in Exclude<keyof LimitOptions, "perTenant">]: number }>;
  /** Without a number: a share of what all may use. */
  readonly perTenant: TenantLimits & { readonly storedRuns: number; readonly sessions: number };
  readonly stepLimits: StepLimits;
}

const HOUR_MS = 3_600_000;
const MAX_WORK = 1_000;
const MIB = 1024 * 1024;
/** The highest count of a rate: so many grants are kept. */
const MAX_COUNT = 100_000;
/** The longest time of a rate: 30 days. */
const LONGEST_MS = 30 * 24 * HOUR_MS;

const defaults = {
  timeoutMs: Number.POSITIVE_INFINITY,
  awaitTimeoutMs: Number.POSITIVE_INFINITY,
  cancelGraceMs: 500,
};
const retentionDefaults = {
  ...{ maxRuns: 10_000, maxAgeMs: HOUR_MS, maxIdleSessionMs: 24 * HOUR_MS },
  keepGenerations: Number.POSITIVE_INFINITY,
};
const persistentRetention = {
  maxRuns: Number.POSITIVE_INFINITY,
  maxAgeMs: Number.POSITIVE_INFINITY,
  maxIdleSessionMs: Number.POSITIVE_INFINITY,
  keepGenerations: Number.POSITIVE_INFINITY,
};
const limitDefaults = {
  maxLiveRuns: 10_000,
  maxDepth: 32,
  maxQueuedRuns: 1_000,
  maxLogEntries: 1_000_000,
  maxLogBytes: MAX_LOG,
  maxWaitingMessages: 10_000,
  maxWaitingBytes: 16 * MIB,
  maxPartBytes: 10 * MIB,
  maxStepBytes: 10 * MIB,
  maxExaminedRuns: 10_000,
  maxBacklog: 1_000,
};

const tenantDefaults = {
  liveRuns: undefined,
  queuedRuns: undefined,
  readers: undefined,
  storedRuns: Number.POSITIVE_INFINITY,
  sessions: 10_000,
};
const persistentTenants = { ...tenantDefaults, sessions: Number.POSITIVE_INFINITY };

const names = [
  "store",
  "work",
  "retention",
  "limits",
  "stepLimits",
  "timeoutMs",
  "awaitTimeoutMs",
  "cancelGraceMs",
  "exposeErrors",
  "interceptors",
  "onAudit",
  "logger",
  "clock",
  "ids",
];
const portMethods = {
  store: [
    "create",
    "append",
    "post",
    "claim",
    "take",
    "renew",
    "release",
    "find",
    "read",
    "findByIdempotencyKey",
    "list",
    "moved",
    "owned",
    "blocked",
    "backlog",
    "lines",
    "session",
    "makeSession",
    "putSession",
    "counters",
    "prune",
    "delete",
    "deleteSession",
    "trim",
    "close",
  ],
  clock: ["now", "setTimeout", "turn"],
  ids: ["uuid", "token"],
  logger: ["debug", "info", "warn", "error"],
};

/** Reads the options of a runtime. Throws `invalid_argument` for an unknown or invalid option. */
export function readOptions(options: RuntimeOptions): Settings {
  checkObject("options", options);
  checkKeys("options", options, names);
  const { exposeErrors = false } = options;
  if (typeof exposeErrors !== "boolean") throw badArgument("options.exposeErrors", "true or false", exposeErrors);
  const { onAudit } = options;
  if (onAudit !== undefined) checkFunction("options.onAudit", onAudit);
  // What the host gives may fail. From here on nothing meets its logger or its clock as they are.
  const logger = options.logger === undefined ? silentLogger : containedLogger(port("logger", options.logger));
  const clock = options.clock === undefined ? machineClock(logger) : guardedClock(port("clock", options.clock), logger);
  const store = options.store === undefined ? new MemoryStore({ clock }) : port("store", options.store);
  const isShared = store.persistent && Reflect.get(store, engineKey) !== undefined;
  const safeStore = guarded(store, () => feed.look());
  const standard = store.persistent ? persistentTenants : tenantDefaults;
  const { limits, perTenant } = readLimits(options.limits, standard);
  readLogsOf(safeStore, { maxLogBytes: limits.maxLogBytes, clock });
  const storeClock = new StoreClock(clock, safeStore);
  const feed = new Feed(safeStore, storeClock, logger);
  return {
    store: safeStore,
    isShared,
    feed,
    work: readWork(options.work, isShared),
    clock: storeClock,
    ids: options.ids === undefined ? systemIds : checkedIds(port("ids", options.ids)),
    logger,
    exposeErrors,
    interceptors: readInterceptors(options.interceptors),
    onAudit: onAudit && new Audit(onAudit, storeClock, logger),
    ...amounts("options", defaults, {
      timeoutMs: options.timeoutMs,
      awaitTimeoutMs: options.awaitTimeoutMs,
      cancelGraceMs: options.cancelGraceMs,
    }),
    retention: readRetention(options.retention, store.persistent ? persistentRetention : retentionDefaults),
    limits,
    perTenant,
    stepLimits: readStepLimits(options.stepLimits, storeClock, logger),
  };
}

function readRetention(given: RetentionOptions = {}, standard: typeof retentionDefaults): Settings["retention"] {
  checkObject("options.retention", given);
  checkKeys("options.retention", given, [...Object.keys(standard), "rules"]);
  const { rules, ...figures } = given;
  const general = amounts("options.retention", standard, figures);
  checkGenerations(general.keepGenerations);
  return { ...general, rules: readRules(rules, general.maxAgeMs) };
}

/** The steps are counted here unless the engine of the store has them counted by it. */
function readStepLimits(given: RuntimeOptions["stepLimits"] = {}, clock: StoreClock, logger: Logger): StepLimits {
  checkObject("options.stepLimits", given);
  const limits = Object.fromEntries(Object.entries(given).map(([name, limit]) => [name, readStepLimit(name, limit)]));
  const counts = new StepCounts({ now: () => clock.monotonic() }, () => true);
  const counter = {
    grant: counts.grant.bind(counts),
    permit: counts.permit.bind(counts, ""),
  };
  return new StepLimits(limits, counter, clock, logger);
}

/** A copy, which the caller cannot change. An infinite `max` is left out. */
function readStepLimit(name: string, limit: StepLimit): StepLimit {
  checkKey("a name in options.stepLimits", name, maxLengths.limit);
  const path = `options.stepLimits.${name}`;
  checkObject(path, limit);
  checkKeys(path, limit, ["max", "rate"]);
  const { max, rate } = limit;
  if (max !== undefined) checkCount(`${path}.max`, max, 1);
  if (rate !== undefined) checkRate(`${path}.rate`, rate);
  else if (max === undefined) throw badArgument(path, "a limit with max, rate or both", limit);
  return { max: max === Number.POSITIVE_INFINITY ? undefined : max, rate: rate && { ...rate } };
}

function checkRate(path: string, rate: Rate): void {
  checkObject(path, rate);
  checkKeys(path, rate, ["count", "perMs"]);
  const { count, perMs } = rate;
  if (!(Number.isInteger(count) && count >= 1 && count <= MAX_COUNT))
    throw badArgument(`${path}.count`, `a whole number from 1 to ${MAX_COUNT}`, count);
  if (!(perMs > 0 && perMs <= LONGEST_MS))
    throw badArgument(`${path}.perMs`, `a number above 0, up to ${LONGEST_MS}`, perMs);
}

function readLimits(given: LimitOptions = {}, standard: typeof tenantDefaults): Pick<Settings, "limits" | "perTenant"> {
  checkObject("options.limits", given);
  checkKeys("options.limits", given, [...Object.keys(limitDefaults), "perTenant"]);
  const { perTenant, ...limits } = given;
  return {
    limits: amounts("options.limits", limitDefaults, limits),
    perTenant: amounts("options.limits.perTenant", standard, perTenant),
  };
}

/** The same ids, with each UUID in the form in which UUIDs are compared and stored. */
function checkedIds(ids: Ids): Ids {
  return { uuid: () => readId("options.ids.uuid()", ids.uuid()), token: () => ids.token() };
}

function readWork(given: RuntimeOptions["work"], shared: boolean): number | undefined {
  if (given === undefined || given === true) return MAX_WORK;
  if (!shared) throw badArgument("options.work", "true, because other processes do not see this store", given);
  if (given === false) return undefined;
  checkObject("options.work", given);
  checkKeys("options.work", given, ["max"]);
  const { max = MAX_WORK } = given;
  checkCount("options.work.max", max, 1);
  return max;
}

/** The given amounts, and the standard ones for those that are left out. */
function amounts<Standard extends Readonly<Record<string, number | undefined>>>(
  name: string,
  standard: Standard,
  given: { readonly [Key in keyof Standard]?: number | undefined } = {},
): { [Key in keyof Standard]: Standard[Key] | number } {
  checkObject(name, given);
  checkKeys(name, given, Object.keys(standard));
  const read: { [Key in keyof Standard]: Standard[Key] | number } = { ...standard };
  for (const key of Object.keys(standard) as (keyof Standard & string)[]) {
    const value = given[key];
    if (value === undefined) continue;
    checkFigure(`${name}.${key}`, value);
    read[key] = value;
  }
  return read;
}

function port<Port extends object>(name: keyof typeof portMethods, given: Port): Port {
  checkObject(`options.${name}`, given);
  for (const method of portMethods[name]) {
    if (typeof (given as Record<string, unknown>)[method] !== "function")
      throw badArgument(`options.${name}`, `an object with a method ${method}`, given);
  }
  return given;
}
