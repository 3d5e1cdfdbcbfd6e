import { aboutRun } from "../../core/about-run.ts";
import { blockedError } from "../../core/blocked-error.ts";
import type { Command } from "../../core/commands.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { NewLog } from "../../core/fork.ts";
import { newerPart } from "../../core/format.ts";
import type { ReceivedEntry } from "../../core/log.ts";
import type { RunKey, SessionChange, Store, StoredRun } from "../../core/ports.ts";
import { engineKey } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { isFinal } from "../../core/state.ts";
import { waitFor } from "../../core/time.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Agent } from "../agent/agent.ts";
import type { Answer } from "../agent/answer.ts";
import type { Residence } from "../execution/operations.ts";
import type { LogSource } from "../log/event-stream.ts";
import { foldLog } from "../log/fold-log.ts";
import { isLost } from "../log/refusals.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "../log/store-failures.ts";
import type { LiveRun, LiveRuns, SubRunFound } from "./live-run.ts";

/** The runs of the store that cannot continue. */
export interface RemoteReport {
  /**
   * The oldest 1,000 blocked runs of all processes: their code does not match their log. Nothing is written to them until
   * matching code is registered.
   */
  readonly blocked: readonly {
    readonly run_id: string;
    readonly agent_name: string;
    readonly version: string | null;
    /** The index in the log, from 0, of the first entry that does not match. */
    readonly position: number;
    /** What the log holds there. */
    readonly expected: string;
    /** What the code did instead. */
    readonly asked: string;
    /** A newer version of the library has written the entry, and the one that has read it does not know it. */
    readonly newer?: true;
  }[];
  /**
   * How many runs that no process executes have an agent or a version that is not registered here. It counts due and waiting
   * runs.
   */
  readonly unregistered: number;
  /** What waits for which slot, of the first 100 slots that runs of any process wait for. */
  readonly lines: readonly {
    /** The agent whose `concurrency` limits them; for one of its `limits`, the agent of the next run. */
    readonly agent_name: string;
    /** What has the slots: the agent, one of its tenants, one of its sessions, or all runs that have the limit. */
    readonly per: "agent" | "tenant" | "session" | "limit";
    /** The name of the limit and what its `key` gave, null without one; null for a slot under `concurrency`. */
    readonly limit: { readonly name: string; readonly key: string | null } | null;
    /** The tenant that has them; null: all have the same. */
    readonly tenant: string | null;
    /** The session that has them; null: all have the same. */
    readonly session_id: string | null;
    /** How many slots there are, as the next run has it; null: any number. */
    readonly max: number | null;
    /** How often a run gets one, as the next run has it; null: at any time. */
    readonly rate: { readonly count: number; readonly per_ms: number } | null;
    /** When the rate lets the next run begin; null if it does now. */
    readonly next_at: string | null;
    /** How many runs hold one. */
    readonly held: number;
    /** How many wait, counted up to 1,001: that is, more than 1,000. */
    readonly waiting: number;
    /** Since when the next run is due. */
    readonly since: string;
    /** The run that has waited longest. It gets the next slot that is free. */
    readonly next: { readonly tenant: string; readonly run_id: string; readonly version: string | null };
  }[];
  /**
   * The runs that this process took and could not load, because their log cannot be read. Loading each is tried again
   * after a pause. Other runs are not affected.
   */
  readonly damaged: readonly {
    readonly run_id: string;
    readonly tenant: string;
    /** How often this process has tried to load it. */
    readonly attempts: number;
    readonly message: string;
  }[];
  /** How many values durable agents emitted again that differ from the log. The log counts. */
  readonly differences: number;
  /**
   * How long ago this process last told the store that it lives, in milliseconds. Other processes take its runs over when
   * it is late for long. Null: it has not.
   */
  readonly heartbeatAgeMs: number | null;
}

/** A run to add to the store without beginning it here. */
export interface AddedRun {
  readonly key: RunKey;
  readonly log: NewLog;
  readonly session: SessionChange | undefined;
  readonly idempotencyKey: string | undefined;
  readonly agent: Agent;
}

/** Who has given a message its idempotency key. */
export type KeyGiver = "sender" | "runtime";

/** What arrives in a process for a run that is not loaded there. */
export type RemotePost =
  /** The run is to stop. `by`: who asks for it. */
  | { readonly type: "cancel"; readonly by: JsonValue | undefined }
  /**
   * A message. `keyBy`: who has given it its key. The log may hold the same message, or another one under the key: then the
   * post rejects with `idempotency_conflict`.
   */
  | MessagePost
  /**
   * An answer that this process cannot validate. The post resolves when another process has taken it, rejects as that
   * process refuses it, and rejects with `answer_pending` if no process has decided in time.
   */
  | { readonly type: "answer"; readonly answer: Answer }
  /** Questions of a run below it, to be shown or settled: see `tellAbove`. */
  | { readonly type: "questions"; readonly commands: readonly Command[] };

interface MessagePost {
  readonly type: "message";
  readonly entry: ReceivedEntry;
  readonly keyBy: KeyGiver;
}

/**
 * What a post resolves with: the state of the run after it. A message resolves with whether the run did not have it before,
 * because the log is not read for most messages.
 */
export type Posted<Post extends RemotePost> = Post extends MessagePost ? boolean : RunState;

/**
 * How far a process stops. `taking`: it takes no more runs, and executes the loaded ones. `executing`: it executes no run
 * any more, and readers that wait for other processes end.
 */
export type Stop = "taking" | "executing";

/**
 * The runs of a durable store that are not loaded in this process. In any other store only this process executes runs, and a
 * run that it has not loaded has ended.
 */
export interface RemoteRuns {
  /** Called before a run is written: this process begins to own runs. Undefined: no other process can execute the run. */
  residenceOf(run: LiveRun): Residence | undefined;
  /**
   * Adds a run for any process that executes its agent, when a slot is free. Resolves when the store has it. Rejects with
   * `idempotency_conflict` if the key has made another run, and with `limit_reached` if it must not wait for a slot.
   */
  create(run: AddedRun): Promise<void>;
  /**
   * The run, loaded in this process. Undefined: it has ended, it is blocked, another process executes it, its agent or
   * version is not registered here, or this runtime is closed.
   */
  load(key: RunKey): Promise<LiveRun | undefined>;
  /** Writes what has arrived for a run that is not loaded here to the log of the run. Wakes the run if it has more to do. */
  post<Post extends RemotePost>(key: RunKey, post: Post): Promise<Posted<Post>>;
  /** The log of a run that is not loaded here. A promise: code that was just registered is tried on it. Look again then. */
  logOf(stored: StoredRun): LogSource | Promise<void>;
  /** The runs of the store that cannot continue, and how this process does. */
  report(): Promise<RemoteReport>;
  /** This process stops: first `taking`, later `executing`. Resolves when it has. */
  stop(what: Stop): Promise<void>;
}

/** Makes the remote runs of one runtime. */
export type Engine = (runs: LiveRuns) => RemoteRuns;

/** A store that brings what durable runs need. See `durable` in `cadenza/store`. */
export interface DurableStore extends Store {
  readonly [engineKey]: Engine;
}

/** The engine that a store brings. Undefined: the store is not durable. */
export function engineOf(store: Store | undefined): Engine | undefined {
  return (store as Partial<DurableStore> | undefined)?.[engineKey];
}

const MAX_MOVES = 5;

/** Tries an action on a run again if another process claims the run meanwhile. */
export async function unlessLost<T>(act: () => Promise<T>): Promise<T> {
  for (let move = 1; ; move++) {
    try {
      return await act();
    } catch (error) {
      if (!isLost(error) || move === MAX_MOVES) throw error;
    }
  }
}

/** Finds a sub-run that is not loaded here, and loads it if this process may. */
export async function findElsewhere(remote: RemoteRuns, store: Store, key: RunKey): Promise<SubRunFound> {
  const run = await remote.load(key);
  if (run !== undefined) return run;
  const stored = await store.find(key);
  if (stored === undefined) return undefined;
  const { created, head, position } = stored;
  const read = (): MaybePromise<RunState | undefined> => foldLog(store, key, position);
  if (!isFinal(head.status)) {
    const blocked = head.blocked === null ? undefined : blockedError(key.run_id, created.agent_name, head.blocked);
    const log = remote.logOf(stored);
    return { blocked, position, read, log: isPromise<unknown>(log) ? undefined : log };
  }
  const state = await read();
  return state && { run: runRecord(state), state };
}

/** Cancels a run in any process. Does nothing if the run has ended or is not in the store. */
export async function cancelAnywhere(remote: RemoteRuns, key: RunKey): Promise<void> {
  try {
    const run = await remote.load(key);
    const isCancelled = run !== undefined && (await isStillHere(run.cancel()));
    if (!isCancelled) await remote.post(key, { type: "cancel", by: undefined });
  } catch (error) {
    const isOver = CadenzaError.is(error) && (error.code === "run_finished" || error.code === "run_not_found");
    if (!isOver) throw error;
  }
}

/**
 * Cancels a sub-run in any process. Tries until the cancel is committed: each failure rejects the callers that wait for the
 * parent's end.
 */
export async function cancelSurely(remote: RemoteRuns, key: RunKey, parent: LiveRun): Promise<void> {
  const { log, shared } = parent;
  const { clock, logger } = shared;
  for (let wait = FIRST_PAUSE_MS; !log.lost; wait = nextPauseMs(wait)) {
    try {
      await cancelAnywhere(remote, key);
      return;
    } catch (error) {
      const { run_id } = log.key;
      logger.error("A run does not end yet: a sub-run could not be cancelled. The cancel is tried again.", {
        ...aboutRun(log),
        sub_run_id: key.run_id,
        error,
      });
      const message = `Run ${run_id} does not end yet: its sub-run ${key.run_id} could not be cancelled. The cancel is tried again.`;
      log.refuse(new CadenzaError("store_failed", message, { run_id, cause: error }));
      if (newerPart(error) !== undefined) parent.residence?.note({ endNeeds: error });
    }
    await waitFor(clock, wait);
  }
}

/** Waits for an action on a live run. False: another process has claimed the run. */
async function isStillHere(act: Promise<unknown>): Promise<boolean> {
  try {
    await act;
    return true;
  } catch (error) {
    if (isLost(error)) return false;
    throw error;
  }
}
