import { CadenzaError } from "../core/errors.ts";
import type { FoundRun, RunKey, StoredRun } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import { runRecord, transcript } from "../core/record.ts";
import { initialState } from "../core/state.ts";
import type { Run } from "../protocol/run.ts";
import type { LogSource, StreamHost } from "./events.ts";
import { EventStream } from "./events.ts";
import { foldLog } from "./fold-log.ts";
import type { LiveRun } from "./live-run.ts";
import type { Settings } from "./options.ts";
import { closedError, isLost } from "./refusals.ts";
import type { RunDetails, Session } from "./requests.ts";
import type { Runs } from "./runs.ts";
import { StoredLog } from "./stored-log.ts";

/** Reads runs, wherever they are: loaded in this process, executed by another, or ended. */
export class RunReader {
  /** What streams need to follow a run where it goes. */
  readonly streams: StreamHost;
  readonly #settings: Settings;
  readonly #runs: Runs;

  constructor(settings: Settings, runs: Runs) {
    this.#settings = settings;
    this.#runs = runs;
    this.streams = { find: (key) => this.#findAgain(key), waitsForCode: false, hold: () => runs.hold() };
  }

  /** The run as it is now. Throws `run_not_found`. */
  async current(key: RunKey): Promise<Run> {
    const run = this.#runs.find(key);
    if (run === undefined) return this.recordOf(key);
    await this.#refresh(run);
    return run.log.lost ? this.recordOf(key) : run.log.record();
  }

  /** What was decided here is stored, as far as the store takes it; what other processes have written to a run without an owner is read. */
  async #refresh({ log }: LiveRun): Promise<void> {
    // A store that cannot write shows what it has.
    if (log.head === undefined || !log.isRetrying) {
      try {
        await log.commit(true);
      } catch (error) {
        if (log.head === undefined) throw error;
      }
    }
    if (log.head?.owner === null && this.#settings.store.persistent) await log.catchUp();
  }

  /** Whose sub-run the run is, if it is one. Throws `run_not_found`. */
  async details(key: RunKey): Promise<RunDetails> {
    const parent = await this.#parentOf(key);
    if (parent === undefined) throw notFound(key);
    let root = key.run_id;
    let above: string | null | undefined = parent;
    // A run above it that has been forgotten is the last one that is known.
    while (typeof above === "string") {
      root = above;
      above = await this.#parentOf({ ...key, run_id: root });
    }
    return { run_id: key.run_id, parent_run_id: parent, root_run_id: root };
  }

  /** The run that has started this one. Null: there is none. Undefined: there is no such run. */
  async #parentOf(key: RunKey): Promise<string | null | undefined> {
    const live = this.#runs.find(key);
    const created = live?.log.state.created ?? (await this.#settings.store.find(key))?.created;
    return created && (created.parent?.run_id ?? null);
  }

  /** The records of runs that the store has found. One that cannot be read is left out, and reported. */
  async records(found: readonly FoundRun[]): Promise<readonly Run[]> {
    const records = await Promise.all(found.map((one) => this.#recordOrDamage(one)));
    return records.filter((record) => record !== undefined);
  }

  async #recordOrDamage(found: FoundRun): Promise<Run | undefined> {
    try {
      if (found.created !== null) return await this.record(found);
      throw found.error;
    } catch (error) {
      const { run_id } = found.key;
      this.#settings.logger.error(`Run ${run_id} cannot be read, and is left out of a list.`, { run_id, error });
      return undefined;
    }
  }

  /** A session with its messages. Throws `session_not_found`. */
  async session(tenant: string, id: string): Promise<Session> {
    const { store } = this.#settings;
    const session = await store.session({ tenant, session_id: id });
    if (session !== undefined) return { id, ...session };
    const key = { tenant, run_id: id };
    const stored = await store.find(key);
    if (stored === undefined || stored.created.session_id !== id) {
      throw new CadenzaError("session_not_found", `There is no session ${id}.`, { session_id: id });
    }
    // The session of a run that named none has no record of its own until another run joins it.
    const state = await foldLog(store, key, initialState(id), stored.position);
    return { id, history: state?.status === "completed" ? transcript(state) : [], state: null };
  }

  /** A caller that waits for a run to rest follows it where it has gone. Any other error stays as it is. */
  restOf(run: LiveRun): MaybePromise<Run> {
    const rest = run.rest();
    if (!isPromise(rest)) return rest;
    return rest.catch((error: unknown) => {
      if (!isLost(error) || this.#runs.isClosed) throw error;
      return this.#restElsewhere(run.log.key);
    });
  }

  async stored(key: RunKey): Promise<StoredRun> {
    const stored = await this.#settings.store.find(key);
    if (stored === undefined) throw notFound(key);
    return stored;
  }

  /** The record of a run that the store has found. A live run may be further than that. */
  async record(stored: StoredRun): Promise<Run> {
    const live = this.#runs.find(stored.key);
    if (live !== undefined && stored.position > live.log.committed) await live.log.catchUp();
    if (live !== undefined && !live.log.lost) return live.log.record();
    const { key, position } = stored;
    const state = await foldLog(this.#settings.store, key, initialState(key.run_id), position);
    if (state === undefined || state.created === null) throw notFound(stored.key);
    return runRecord(state);
  }

  async recordOf(key: RunKey): Promise<Run> {
    return this.record(await this.stored(key));
  }

  /** The run when it rests, wherever it is executed. */
  async rest(key: RunKey): Promise<Run> {
    const live = this.#runs.find(key);
    return live === undefined ? this.#restElsewhere(key) : this.restOf(live);
  }

  async #restElsewhere(key: RunKey): Promise<Run> {
    const opening = this.source(key).then((source) => ({ source, after: 0, until: "rest" as const }));
    for await (const _ of new EventStream(opening, this.streams)) {
      // Reading to the end is the waiting.
    }
    return this.recordOf(key);
  }

  #find(key: RunKey): MaybePromise<LogSource | undefined> {
    const live = this.#runs.find(key);
    if (live !== undefined && !live.log.lost) return live.log;
    const stored = this.#settings.store.find(key);
    return isPromise(stored) ? stored.then((run) => this.#logOf(run)) : this.#logOf(stored);
  }

  #logOf(stored: StoredRun | undefined): MaybePromise<LogSource | undefined> {
    const runs = this.#runs;
    if (stored === undefined) return undefined;
    // Whether a run is still blocked shows when the code that was registered last has been tried.
    const trying = stored.head.blocked === null ? undefined : runs.loader.tried(stored.created.agent_name);
    return trying === undefined ? new StoredLog(runs, stored) : trying.then(() => this.#find(stored.key));
  }

  /** The log of a run that is not here any more, for a reader that waits for more of it. */
  #findAgain(key: RunKey): MaybePromise<LogSource | undefined> {
    if (this.#runs.isOver) throw closedError();
    return this.#find(key);
  }

  async source(key: RunKey): Promise<LogSource> {
    const source = await this.#find(key);
    if (source === undefined) throw notFound(key);
    return source;
  }
}

/** No run of the tenant has this id. */
export function notFound({ run_id }: RunKey): CadenzaError {
  return new CadenzaError("run_not_found", `There is no run ${run_id}.`, { run_id });
}
