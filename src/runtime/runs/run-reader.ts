import { aboutStored } from "../../core/about-run.ts";
import { onceAborted } from "../../core/background.ts";
import type { CadenzaError } from "../../core/errors.ts";
import { noSession, notFound } from "../../core/errors.ts";
import { frozen } from "../../core/frozen.ts";
import type { CreatedEntry, Entry } from "../../core/log.ts";
import type { FoundRun, Mismatch, RunHead, RunKey, Store, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { RunSummary } from "../../core/record.ts";
import { originRecord, questionRecord, runRecord, runSummary, transcript } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, generationNumber, isFinal, openQuestions } from "../../core/state.ts";
import { isoTime } from "../../core/time.ts";
import { left, usageOfGeneration } from "../../core/usage.ts";
import { userOf } from "../../core/user.ts";
import type { Message } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import { noLabels } from "../agent/labels.ts";
import type { LogSource, StreamHost, StreamStart } from "../log/event-stream.ts";
import { EventStream } from "../log/event-stream.ts";
import { findStored, foldAll, foldLog, foldStored, READ_CHUNK, saidBefore, snapshotOf } from "../log/fold-log.ts";
import { closedError, isLost, notLoadedError } from "../log/refusals.ts";
import { allRuns } from "./deleting.ts";
import type { LiveRun, LiveRuns } from "./live-run.ts";
import type { Settings } from "./options.ts";
import type { RemoteRuns } from "./remote-runs.ts";
import type { RunDetails, Session } from "./requests.ts";

/** What a reader needs of the runs of its runtime. */
interface ReaderRuns extends Pick<LiveRuns, "shared" | "find"> {
  readonly remote: RemoteRuns | undefined;
  /** Whether the store is not asked any more. */
  readonly isOver: boolean;
  /** Resolves when what has been decided so far of the runs of a tenant is in the store, as far as the store takes it. */
  settled(tenant: string): Promise<void>;
}

/** Reads runs that are loaded in this process, executed by another process, evicted or ended. */
export class RunReader {
  /** What streams need to follow a run from process to process. */
  readonly streams: StreamHost;
  readonly #settings: Settings;
  readonly #runs: ReaderRuns;

  /** The user of whom alone the runs and sessions exist. Undefined: all runs and sessions of the tenant exist. */
  readonly onlyOf: string | undefined;

  constructor(settings: Settings, runs: ReaderRuns, onlyOf: string | undefined) {
    this.#settings = settings;
    this.#runs = runs;
    this.onlyOf = onlyOf;
    const { shared } = runs;
    const holding = { hold: () => shared.hold(), letGo: () => shared.letGo() };
    const { clock } = shared;
    this.streams = { clock, find: (key, from) => this.#findAgain(key, from), waitsForCode: false, ...holding };
  }

  /** Calls back for a run that exists for the user in `onlyOf`: the one door to a run. Throws `run_not_found` for others. */
  ifSeen<T>(key: RunKey, callback: () => MaybePromise<T>): MaybePromise<T> {
    return this.onlyOf === undefined ? callback() : this.#checkCreator(key).then(callback);
  }

  async #checkCreator(key: RunKey): Promise<void> {
    const created = await this.#createdOf(key);
    if (created === undefined || userOf(created.principal) !== this.onlyOf) throw notFound(key.run_id);
  }

  /** The current record of a run. Throws `run_not_found`. */
  async current(key: RunKey): Promise<Run> {
    const run = this.#runs.find(key);
    if (run === undefined) return this.recordOf(key);
    await this.#refresh(run);
    return run.log.lost ? this.recordOf(key) : run.log.record();
  }

  /** Commits what was decided here, and reads what other processes have written to a run that waits. */
  async #refresh({ log, residence }: LiveRun): Promise<void> {
    // If the store fails to write, the caller gets the committed record.
    if (log.head === undefined || !log.isRetrying) {
      try {
        await log.acknowledge();
      } catch (error) {
        if (log.head === undefined) throw error;
      }
    }
    const refreshed = residence?.sync("if left");
    if (refreshed !== undefined) await refreshed;
  }

  /** What the record of a run has no field for. Throws `run_not_found`. */
  async details(key: RunKey): Promise<RunDetails> {
    const created = await this.#createdOf(key);
    if (created === undefined) throw notFound(key.run_id);
    const root_run_id = await this.#rootOf(key, created);
    const children = await this.#childrenOf(key);
    return this.#look(key, async (state, { blocked }) => {
      const first_generation = state.generation === null ? 1 : await this.#firstGeneration(key);
      return { ...detailsRecord(state, blocked, root_run_id, children), first_generation };
    });
  }

  /** The first generation of a run whose entries are kept. */
  async #firstGeneration(key: RunKey): Promise<number> {
    const [entry] = (await this.#settings.store.read(key, 1, 1)) ?? [];
    return entry?.type === "continued" ? entry.generation : 1;
  }

  /** What was said in a run so far. Throws `run_not_found`. */
  transcript(key: RunKey): Promise<readonly Message[]> {
    return this.#look(key, (state) => this.#said(key, state));
  }

  /** What was said in the run up to this state of it, in all generations. */
  async #said(key: RunKey, state: RunState): Promise<readonly Message[]> {
    const now = transcript(state);
    if (state.generation === null) return now;
    return [...(await saidBefore(this.#settings.store, key, state.generation.position)), ...now];
  }

  /** Reads the committed state of a run at one moment. Throws `run_not_found`. */
  async #look<T>(key: RunKey, read: (state: RunState, head: RunHead) => MaybePromise<T>): Promise<T> {
    const live = this.#runs.find(key);
    if (live !== undefined) {
      await this.#refresh(live);
      const { head, lost, backlog, state } = live.log;
      if (head !== undefined && !lost && backlog === 0) return read(state, head);
    }
    const { state, stored } = await foldAll(this.#settings.store, key);
    return read(state, stored.head);
  }

  /** The run at the top of a run's tree. If an ancestor was deleted, its id counts as the root. */
  async #rootOf(key: RunKey, created: CreatedEntry): Promise<string> {
    let root = key.run_id;
    for (let above: CreatedEntry | undefined = created; above?.parent !== undefined; ) {
      root = above.parent.run_id;
      above = await this.#createdOf({ ...key, run_id: root });
    }
    return root;
  }

  /** The ids of a run's direct sub-runs, in the order in which they were created. */
  async #childrenOf({ tenant, run_id }: RunKey): Promise<readonly string[]> {
    await this.#runs.settled(tenant);
    const ids = await allRuns(this.#settings.store, { tenant, parents: [run_id] }, ({ key }) => key.run_id);
    return ids.toReversed();
  }

  /** The first entry of a run; undefined if the run does not exist. */
  async #createdOf(key: RunKey): Promise<CreatedEntry | undefined> {
    return this.#runs.find(key)?.log.state.created ?? (await this.#settings.store.find(key))?.created;
  }

  /** The records of runs that the store has found. A run that cannot be read is left out and logged. */
  records(found: readonly FoundRun[]): Promise<readonly Run[]> {
    return this.#each(found, (run) => this.record(run));
  }

  /** As {@link records}, without the outputs. Few logs are read for them. */
  summaries(found: readonly FoundRun[]): Promise<readonly RunSummary[]> {
    return this.#each(found, async (run) => {
      const { key, created, head } = run;
      const isInHead = head.status !== "awaiting" && head.status !== "failed" && this.#runs.find(key) === undefined;
      if (isInHead) return runSummary(created, key.run_id, head.status, head.finished_at);
      const { output: _, ...summary } = await this.record(run);
      return summary;
    });
  }

  async #each<T>(found: readonly FoundRun[], read: (run: StoredRun) => Promise<T>): Promise<readonly T[]> {
    const records = await Promise.all(found.map((one) => this.#readOrDamage(one, read)));
    return records.filter((record) => record !== undefined);
  }

  async #readOrDamage<T>(found: FoundRun, read: (run: StoredRun) => Promise<T>): Promise<T | undefined> {
    try {
      if (found.created !== null) return await read(found);
      throw found.error;
    } catch (error) {
      this.#settings.logger.error("A run cannot be read, and is left out of a list.", { ...aboutStored(found), error });
      return undefined;
    }
  }

  /** A session with its messages. Throws `session_not_found`. */
  async session(tenant: string, id: string): Promise<Session> {
    const { store } = this.#settings;
    const found = await store.session({ tenant, session_id: id });
    if (found !== undefined) {
      const { creator, history, state } = found;
      if (this.onlyOf !== undefined && creator !== this.onlyOf) throw noSession(id);
      return { id, history, state };
    }
    const key = { tenant, run_id: id };
    const stored = await store.find(key);
    const isSeen = this.onlyOf === undefined || userOf(stored?.created.principal) === this.onlyOf;
    if (stored === undefined || stored.created.session_id !== id || !isSeen) throw noSession(id);
    // The session of a run that was created without one is stored only when another run joins it.
    const state = await foldLog(store, key, stored.position);
    return { id, history: state?.status === "completed" ? transcript(state) : [], state: null };
  }

  /** The record of a run that the store has found. The live run may be ahead of it. */
  async record(stored: StoredRun): Promise<Run> {
    const live = this.#runs.find(stored.key);
    if (live !== undefined && stored.position > live.log.committed) await live.residence?.sync("unless writing");
    // Of a new run that the store failed to acknowledge, nothing is committed here yet.
    if (live?.log.head !== undefined && !live.log.lost) return live.log.record();
    const { store } = this.#settings;
    const state = await foldStored(store, stored);
    // A list does not have what has arrived.
    const isOlder = state.status !== stored.head.status && stored.inbox === undefined;
    return runRecord(isOlder ? (await foldAll(store, stored.key)).state : state);
  }

  async recordOf(key: RunKey): Promise<Run> {
    return this.record(await findStored(this.#settings.store, key));
  }

  /** The record of a run when it rests, in any process, for a caller that waits until the signal aborts. */
  async rest(key: RunKey, signal?: AbortSignal): Promise<Run> {
    const live = this.#runs.find(key);
    return live === undefined ? this.#follow(key, "rest", signal) : live.rest(this, signal);
  }

  /** The same of a run that was lost here. If another process has claimed it, the wait continues there. */
  restOfLost(key: RunKey, error: CadenzaError, signal?: AbortSignal): Promise<Run> {
    const { shared } = this.#runs;
    return isLost(error) && !shared.isClosed
      ? shared.holdFor(this.#follow(key, "rest", signal))
      : Promise.reject(error);
  }

  /** The record of a run when it has ended, in any process. */
  end(key: RunKey, signal?: AbortSignal): Promise<Run> {
    return this.#follow(key, "end", signal, { ...this.streams, waitsForCode: true });
  }

  /** Rejects with the reason of the signal where that aborts, and asks the store nothing more. */
  async #follow(
    key: RunKey,
    until: "rest" | "end",
    signal: AbortSignal | undefined,
    streams = this.streams,
  ): Promise<Run> {
    signal?.throwIfAborted();
    const open = async (): Promise<StreamStart> => {
      const source = await this.source(key);
      const state = await this.stateBefore(source);
      return { source, after: state?.events ?? 0, until, state, passesGaps: true };
    };
    const stream = new EventStream(open(), streams);
    const unfollow = signal && onceAborted(this.#settings.logger, signal, () => stream.return());
    try {
      for await (const _ of stream) {
        // The loop ends when the run rests, or has ended.
      }
    } finally {
      unfollow?.();
    }
    signal?.throwIfAborted();
    return this.recordOf(key);
  }

  /** The log of a run that is loaded here, if it has as much as was read of it, or else what the store has. */
  #find(key: RunKey, from = 0): MaybePromise<LogSource | undefined> {
    const live = this.#runs.find(key);
    if (live !== undefined && !live.log.lost && live.log.committed >= from) return live.log;
    const stored = this.#settings.store.find(key);
    return isPromise(stored) ? stored.then((run) => this.#logOf(run, from)) : this.#logOf(stored, from);
  }

  #logOf(stored: StoredRun | undefined, from: number): MaybePromise<LogSource | undefined> {
    if (stored === undefined) return undefined;
    const { remote } = this.#runs;
    if (remote === undefined) {
      const { key, head } = stored;
      return new EndedLog(this.#settings.store, stored, isFinal(head.status) ? undefined : notLoadedError(key.run_id));
    }
    const log = remote.logOf(stored);
    return log instanceof Promise ? log.then(() => this.#find(stored.key, from)) : log;
  }

  /** A state of a log at or before an event, from which its reader may begin. Undefined: it begins with the first entry. */
  stateBefore({ key, committed }: LogSource, event?: number): Promise<RunState | undefined> {
    return snapshotOf(this.#settings.store, key, committed, event);
  }

  /** Finds the log of a run that has left this process, for a reader that waits for more events. */
  #findAgain(key: RunKey, from: number): MaybePromise<LogSource | undefined> {
    if (this.#runs.isOver) throw closedError();
    return this.#find(key, from);
  }

  async source(key: RunKey): Promise<LogSource> {
    const source = await this.#find(key);
    if (source === undefined) throw notFound(key.run_id);
    return source;
  }
}

function detailsRecord(
  state: RunState,
  blocked: Mismatch | null,
  root_run_id: string,
  children: readonly string[],
): Omit<RunDetails, "first_generation"> {
  const { run_id, status, started, ended, usage } = state;
  const { agent_name, session_id, version = null, at, start_at } = createdEntry(state);
  const { durable = false, metadata = null, labels = noLabels, parent, budget } = createdEntry(state);
  return {
    ...{ run_id, agent_name, session_id, version, durable, status },
    ...{ metadata: frozen(metadata), labels: frozen(labels) },
    created_at: isoTime(at),
    start_at: start_at === undefined ? null : isoTime(start_at),
    started_at: started === null ? null : isoTime(started.at),
    finished_at: ended === null ? null : isoTime(ended.at),
    parent_run_id: parent?.run_id ?? null,
    root_run_id,
    origin: originRecord(createdEntry(state)),
    cancelled_by: frozen(state.cancelled?.by ?? null),
    generation: generationNumber(state),
    children,
    usage,
    budget: budget === undefined ? null : { ...budget, remaining_tokens: left(budget, usageOfGeneration(state)) },
    last_event_id: state.events,
    await_requests: openQuestions(state).map(({ asked }) => questionRecord(state, asked)),
    waits_for: [...openQuestions(state).map(({ asked }) => asked.await_id), ...(state.waits?.keys() ?? [])],
    blocked,
  };
}

/** The log of a run that has ended. */
class EndedLog implements LogSource {
  readonly key: RunKey;
  readonly committed: number;
  /** Why the log has no end. */
  readonly blocked: CadenzaError | undefined;
  readonly #store: Store;

  constructor(store: Store, { key, position }: StoredRun, blocked: CadenzaError | undefined) {
    this.#store = store;
    this.key = key;
    this.committed = position;
    this.blocked = blocked;
  }

  /** A reader finds no other source of the log. */
  get lost(): boolean {
    return false;
  }

  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    return this.#store.read(this.key, from, Math.min(READ_CHUNK, this.committed - from));
  }

  watch(): void {
    // Nothing follows.
  }

  unwatch(): void {
    // Nothing follows.
  }
}
