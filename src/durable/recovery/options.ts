import type { RunKey } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { badArgument, checkFigure, checkKeys, checkObject } from "../../runtime/agent/check.ts";

/**
 * How durable runs are owned, recovered and evicted. Durations are in milliseconds. `Infinity` switches a limit off.
 */
export interface DurabilityOptions {
  /**
   * How long the lease lasts after a heartbeat. Then other processes take over the runs of this one. Default: 10,000.
   */
  readonly leaseMs?: number | undefined;
  /**
   * The interval of heartbeats. Each renews the lease, and reads what other processes have written to the runs of this
   * one. It must be shorter than `leaseMs`. Default: 3,000, or three tenths of a shorter `leaseMs` than 10,000.
   */
  readonly heartbeatMs?: number | undefined;
  /** The interval at which the store is asked for runs that need work. Default: 1,000; with a `waker`: 30,000. */
  readonly scanMs?: number | undefined;
  /**
   * How long a run that waits for an answer stays loaded before it is evicted from memory. It is loaded again when it
   * is due. Default: 60,000. A store that ends with its process evicts nothing.
   */
  readonly evictAfterMs?: number | undefined;
  /**
   * How often in a row a run may be taken over without progress. After more take-overs it fails with the reason
   * `crash_loop`, since it probably crashes the processes that execute it. Taking over a run that only waits does not
   * count. Default: 5.
   */
  readonly maxTakeovers?: number | undefined;
  /**
   * How long the caller of `resume` waits for the verdict of another process, if only that process can validate the
   * answer. After that it gets `answer_pending`, and may repeat the answer with the same idempotency key. Default:
   * 10,000.
   */
  readonly answerTimeoutMs?: number | undefined;
  /**
   * Brings runs to workers, in place of the frequent scan and of the hints of the store. The scan still finds what a lost
   * wake-up has missed: see `scanMs`. Default: none.
   */
  readonly waker?: Waker | undefined;
  /** For tests: replays every durable agent after each commit. Default: false. */
  readonly alwaysReplay?: boolean | undefined;
}

/** The options with their defaults. */
export type DurabilitySettings = {
  readonly [Key in Exclude<keyof DurabilityOptions, "waker">]-?: Exclude<DurabilityOptions[Key], undefined>;
} & { readonly waker: Waker | undefined };

/** With a waker the scan is a net. */
const SCAN_WITH_WAKER_MS = 30_000;

/** After which part of a lease it is renewed. */
const HEARTBEAT = 0.3;

const defaults: DurabilitySettings = {
  leaseMs: 10_000,
  heartbeatMs: 3_000,
  scanMs: 1_000,
  evictAfterMs: 60_000,
  maxTakeovers: 5,
  answerTimeoutMs: 10_000,
  waker: undefined,
  alwaysReplay: false,
};

/** Reads the options. Throws `invalid_argument` for an unknown or invalid one. */
export function readDurability(options: DurabilityOptions): DurabilitySettings {
  checkObject("options", options);
  checkKeys("options", options, Object.keys(defaults));
  const { alwaysReplay = false, waker, ...given } = options;
  if (typeof alwaysReplay !== "boolean") throw badArgument("options.alwaysReplay", "true or false", alwaysReplay);
  if (waker !== undefined) checkWaker(waker);
  const scanMs = waker === undefined ? defaults.scanMs : SCAN_WITH_WAKER_MS;
  const read = { ...defaults, scanMs, alwaysReplay, waker };
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined) continue;
    checkFigure(`options.${key}`, value);
    Object.assign(read, { [key]: value });
  }
  const { leaseMs } = read;
  const { heartbeatMs = Math.min(read.heartbeatMs, HEARTBEAT * leaseMs) } = given;
  if (heartbeatMs < Number.POSITIVE_INFINITY && heartbeatMs >= leaseMs && heartbeatMs > 0)
    throw badArgument("options.heartbeatMs", `less than leaseMs (${leaseMs}), or Infinity`, heartbeatMs);
  return { ...read, heartbeatMs };
}

function checkWaker(waker: Waker): void {
  checkObject("options.waker", waker);
  for (const name of ["wake", "start", "stop"] as const)
    if (typeof waker[name] !== "function") throw badArgument(`options.waker.${name}`, "a function", waker[name]);
}

/** What a waker may use to choose a worker. */
export interface WakeHint {
  readonly agent_name: string;
  /** The version of the agent that the run was created with; null for an agent without versions. */
  readonly version: string | null;
  readonly tenant: string;
}

/**
 * Brings runs to workers: a queue or an engine that you have already. It decides nothing. A wake-up may be late, come
 * twice or never come: the workers look at the store, and their scan finds what a lost wake-up has missed. Each process
 * has a waker of its own, on the same queue.
 */
export interface Waker {
  /**
   * Keeps a wake-up for a run, and gives it to one of the workers at a time or later. `at` is in milliseconds since 1970,
   * and may have passed. Called in every process, and often for one run: of its wake-ups the one with the earliest time is
   * enough, and the others may be dropped. If it fails, the process scans the store at once.
   */
  wake(key: RunKey, at: number, hint: WakeHint): MaybePromise<void>;
  /**
   * Begins to give wake-ups to this process. Called once, in processes that execute runs, and again after it has failed.
   *
   * `look` works on the run of a wake-up. It never rejects, and may take as long as the run. It resolves with the time
   * at which this wake-up is to be given to a worker again, in milliseconds since 1970, or undefined when it is done
   * with. If the process dies meanwhile, give the wake-up to another worker.
   *
   * `capacity` says how many more runs this process may look at now.
   */
  start(look: (key: RunKey) => Promise<number | undefined>, capacity: () => number): MaybePromise<void>;
  /** Ends it: `look` is not called any more. Called when the runtime closes, in every process, after the last `look` has resolved. */
  stop(): MaybePromise<void>;
}
