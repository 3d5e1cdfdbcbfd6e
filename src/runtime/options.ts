import type { Clock, Ids, Logger, Store } from "../core/ports.ts";
import { MemoryStore } from "../stores/memory.ts";
import { badArgument, checkAmount, checkKeys, checkObject } from "./check.ts";
import { namingFailures } from "./store-failures.ts";
import { silentLogger, systemClock, systemIds } from "./system.ts";

/** How a runtime is made. Every property may be left out. Durations are in milliseconds; `Infinity` switches a limit off. */
export interface RuntimeOptions {
  /** Where runs are kept. Default: in memory. */
  readonly store?: Store | undefined;
  /** What is forgotten, and when. Runs that have not ended are never forgotten. */
  readonly retention?: RetentionOptions | undefined;
  /** What is refused. */
  readonly limits?: LimitOptions | undefined;
  /** How long a run may be active; waiting for answers does not count. Agents may set their own. Default: `Infinity`. */
  readonly timeoutMs?: number | undefined;
  /** How long a question stands. A question may set its own. Default: `Infinity`. */
  readonly awaitTimeoutMs?: number | undefined;
  /** How long an agent that is stopped has for its `finally` blocks. Default: 500. */
  readonly cancelGraceMs?: number | undefined;
  /** How durable runs are owned, and brought back. */
  readonly durability?: DurabilityOptions | undefined;
  /** For tests: runs every durable agent again from its log after each commit. Default: false. */
  readonly alwaysReplay?: boolean | undefined;
  /** Shows callers the message of any error that an agent throws, not only of an `AgentError`. Default: false. */
  readonly exposeErrors?: boolean | undefined;
  /** Where the library says what nobody else can be told. Default: nowhere. */
  readonly logger?: Logger | undefined;
  /** Default: the machine's. */
  readonly clock?: Clock | undefined;
  /** Default: random. */
  readonly ids?: Ids | undefined;
}

/** What a runtime forgets. A store that persists forgets nothing unless it is told to. An idempotency key lives as long as its run. */
export interface RetentionOptions {
  /** How many ended runs are kept. Default: 10,000 in a store that does not persist, else `Infinity`. */
  readonly maxRuns?: number | undefined;
  /** How long an ended run is kept. Default: one hour in a store that does not persist, else `Infinity`. */
  readonly maxAgeMs?: number | undefined;
  /** How long a session is kept that no run uses. Default: one day in a store that does not persist, else `Infinity`. */
  readonly maxIdleSessionMs?: number | undefined;
}

/** How durable runs are owned, and brought back. Durations are in milliseconds; `Infinity` switches a limit off. */
export interface DurabilityOptions {
  /** How long this process owns its runs without a sign of life; after that, others take them over. Default: 10,000. */
  readonly leaseMs?: number | undefined;
  /** How often the process gives a sign of life, and looks for what others have asked of its runs. Default: 3,000. */
  readonly heartbeatMs?: number | undefined;
  /** How often the store is asked for runs that need somebody. Default: 1,000. */
  readonly scanMs?: number | undefined;
  /** How long a run that waits for an answer stays in memory; it comes back when it is needed. Default: 60,000. */
  readonly evictAfterMs?: number | undefined;
  /**
   * How often a run may be taken over from processes that died while they executed it, without getting any further; it fails with the
   * reason `crash_loop` then, since it probably brings them down. A run that only waits is not counted. Default: 5.
   */
  readonly maxTakeovers?: number | undefined;
}

/** What a runtime refuses, with `limit_reached` and the name of the limit. */
export interface LimitOptions {
  /** Runs that have not ended, in this process. Default: 10,000. */
  readonly maxLiveRuns?: number | undefined;
  /** How many runs may be above a sub-run: the run that started it, the one that started that, and so on. Default: 32. */
  readonly maxDepth?: number | undefined;
  /** Runs that wait for a slot under their agent's `concurrency`. Default: 1,000. */
  readonly maxQueuedRuns?: number | undefined;
  /** Entries in the log of one run; one more fails it. Default: 1,000,000. */
  readonly maxLogEntries?: number | undefined;
  /** Bytes in the content of one part, in UTF-8. Default: 10 MiB. */
  readonly maxPartBytes?: number | undefined;
  /** Entries of one run that wait for the store before `yield` and `emit` wait. Default: 1,000. */
  readonly maxBacklog?: number | undefined;
}

export type DurabilitySettings = Required<{ readonly [Key in keyof DurabilityOptions]: number }>;

/** The options with their defaults. */
export interface Settings {
  readonly timeoutMs: number;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly exposeErrors: boolean;
  readonly alwaysReplay: boolean;
  readonly durability: DurabilitySettings;
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
  readonly retention: Required<{ [Key in keyof RetentionOptions]: number }>;
  readonly limits: Required<{ [Key in keyof LimitOptions]: number }>;
}

const HOUR_MS = 3_600_000;
const MIB = 1024 * 1024;

const defaults = {
  timeoutMs: Number.POSITIVE_INFINITY,
  awaitTimeoutMs: Number.POSITIVE_INFINITY,
  cancelGraceMs: 500,
};
const durabilityDefaults = {
  leaseMs: 10_000,
  heartbeatMs: 3_000,
  scanMs: 1_000,
  evictAfterMs: 60_000,
  maxTakeovers: 5,
};
const retentionDefaults = { maxRuns: 10_000, maxAgeMs: HOUR_MS, maxIdleSessionMs: 24 * HOUR_MS };
const persistentRetention = {
  maxRuns: Number.POSITIVE_INFINITY,
  maxAgeMs: Number.POSITIVE_INFINITY,
  maxIdleSessionMs: Number.POSITIVE_INFINITY,
};
const limitDefaults = {
  maxLiveRuns: 10_000,
  maxDepth: 32,
  maxQueuedRuns: 1_000,
  maxLogEntries: 1_000_000,
  maxPartBytes: 10 * MIB,
  maxBacklog: 1_000,
};

const names = [
  "store",
  "retention",
  "limits",
  "timeoutMs",
  "awaitTimeoutMs",
  "cancelGraceMs",
  "exposeErrors",
  "durability",
  "alwaysReplay",
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
    "session",
    "makeSession",
    "putSession",
    "counters",
    "prune",
    "close",
  ],
  clock: ["now", "setTimeout", "turn"],
  ids: ["uuid", "token"],
  logger: ["debug", "info", "warn", "error"],
};

/** Reads the options of a runtime. Throws `invalid_argument` for one that cannot be. */
export function readOptions(options: RuntimeOptions): Settings {
  checkObject("options", options);
  checkKeys("options", options, names);
  const { exposeErrors = false, alwaysReplay = false } = options;
  if (typeof alwaysReplay !== "boolean") throw badArgument("options.alwaysReplay", "true or false", alwaysReplay);
  if (typeof exposeErrors !== "boolean") throw badArgument("options.exposeErrors", "true or false", exposeErrors);
  const clock = port("clock", options.clock, () => systemClock);
  const store = port("store", options.store, () => new MemoryStore({ clock }));
  return {
    store: namingFailures(store),
    clock,
    ids: port("ids", options.ids, () => systemIds),
    logger: port("logger", options.logger, () => silentLogger),
    exposeErrors,
    alwaysReplay,
    durability: amounts("options.durability", durabilityDefaults, options.durability),
    ...amounts("options", defaults, {
      timeoutMs: options.timeoutMs,
      awaitTimeoutMs: options.awaitTimeoutMs,
      cancelGraceMs: options.cancelGraceMs,
    }),
    retention: amounts(
      "options.retention",
      store.persistent ? persistentRetention : retentionDefaults,
      options.retention,
    ),
    limits: amounts("options.limits", limitDefaults, options.limits),
  };
}

function amounts<Key extends string>(
  name: string,
  standard: Readonly<Record<Key, number>>,
  given: Partial<Readonly<Record<Key, number | undefined>>> = {},
): Record<Key, number> {
  checkObject(name, given);
  checkKeys(name, given, Object.keys(standard));
  const read: Record<Key, number> = { ...standard };
  for (const key of Object.keys(standard) as Key[]) {
    const value = given[key];
    if (value === undefined) continue;
    checkAmount(`${name}.${key}`, value);
    read[key] = value;
  }
  return read;
}

function port<Port extends object>(
  name: keyof typeof portMethods,
  given: Port | undefined,
  standard: () => Port,
): Port {
  if (given === undefined) return standard();
  checkObject(`options.${name}`, given);
  for (const method of portMethods[name]) {
    if (typeof (given as Record<string, unknown>)[method] !== "function")
      throw badArgument(`options.${name}`, `an object with a method ${method}`, given);
  }
  return given;
}
