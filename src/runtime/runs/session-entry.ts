import type { Clock, RunKey, SessionChange, SessionHead, Store, StoredSession } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import { transcript } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { isFinal } from "../../core/state.ts";
import type { SessionEntry } from "../agent/new-run.ts";
import { foldLog } from "../log/fold-log.ts";
import type { LiveRun } from "./live-run.ts";

/** Lets new runs join sessions. */
export class SessionEntries {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #find: (key: RunKey) => LiveRun | undefined;

  /** `find` gives the run, if this process executes it. */
  constructor(store: Store, clock: Clock, find: (key: RunKey) => LiveRun | undefined) {
    this.#store = store;
    this.#clock = clock;
    this.#find = find;
  }

  /**
   * Lets the run `runId` join a session. Runs may join it at the same time: the one that stores it wins, and the others read
   * its length. The run that makes a session, or replaces it, gives it its generation.
   */
  async join(tenant: string, sessionId: string, runId: string): Promise<SessionEntry> {
    const at = this.#clock.now();
    const live = this.#find({ tenant, run_id: sessionId });
    if (live !== undefined) {
      live.isJoined = true;
      // A run that has ended may not have written its session change yet.
      if (isFinal(live.log.state.status)) await live.log.acknowledge()?.catch(ignore);
    }
    const change: SessionChange = { session_id: sessionId, create: true, generation: runId, at };
    const key = { tenant, session_id: sessionId };
    const head = await this.#store.sessionHead(key);
    if (head !== undefined) return entryOf(head, change);
    const first = await this.#completedRun({ tenant, run_id: sessionId });
    if (first === undefined) return entryOf(undefined, change);
    // The session of a run that was created without one is stored when another run joins it, with the first run's
    // messages. Another process may delete it before the store has the run, whose first write then makes another session.
    const generation = `before ${runId}`;
    const session = { history: transcript(first), state: null, generation };
    if (await this.#store.makeSession(key, session, at)) return { length: session.history.length, generation, change };
    // Another run has stored it meanwhile.
    return entryOf(await this.#store.sessionHead(key), change);
  }

  /** As {@link join}, but the content of the session is the caller's. It is there when the run is. */
  replace(sessionId: string, runId: string, { history, state }: StoredSession): SessionEntry {
    const change: SessionChange = {
      session_id: sessionId,
      create: true,
      generation: runId,
      messages: () => history,
      replaces: true,
      state: { value: state },
      at: this.#clock.now(),
    };
    return { length: history.length, generation: runId, change };
  }

  /** The state of the run, if it has completed in a session of its own. */
  async #completedRun(key: RunKey): Promise<RunState | undefined> {
    const found = await this.#store.find(key);
    if (found === undefined || found.head.status !== "completed" || found.created.session_id !== key.run_id)
      return undefined;
    return foldLog(this.#store, key, found.position);
  }
}

function entryOf(head: SessionHead | undefined, change: SessionChange): SessionEntry {
  return { length: head?.length ?? 0, generation: head?.generation, change };
}
