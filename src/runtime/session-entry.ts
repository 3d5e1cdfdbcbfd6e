import type { Clock, RunKey, SessionChange, Store, StoredSession } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import { transcript } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import { foldLog } from "./fold-log.ts";
import type { LiveRun } from "./live-run.ts";
import type { SessionEntry } from "./new-run.ts";

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

  /** Joins a session. Runs may join it at the same time: the one that stores it wins, and the others read its length. */
  async join(tenant: string, sessionId: string): Promise<SessionEntry> {
    const at = this.#clock.now();
    const live = this.#find({ tenant, run_id: sessionId });
    if (live !== undefined) {
      live.isJoined = true;
      // A run that has ended may not have written its session change yet.
      if (isFinal(live.log.state.status)) await live.log.acknowledge()?.catch(ignore);
    }
    const change: SessionChange = { session_id: sessionId, create: true, at };
    const key = { tenant, session_id: sessionId };
    const head = await this.#store.sessionHead(key);
    if (head !== undefined) return { length: head.length, change };
    const first = await this.#completedRun({ tenant, run_id: sessionId });
    if (first === undefined) return { length: 0, change };
    // The session of a run that was created without one is stored when another run joins it, with the first run's
    // messages.
    const history = transcript(first);
    if (await this.#store.makeSession(key, { history, state: null }, at)) return { length: history.length, change };
    // Another run has stored it meanwhile.
    return { length: (await this.#store.sessionHead(key))?.length ?? 0, change };
  }

  /** As {@link join}, but the content of the session is the caller's. It is there when the run is. */
  replace(sessionId: string, { history, state }: StoredSession): SessionEntry {
    const change: SessionChange = {
      session_id: sessionId,
      create: true,
      messages: () => history,
      replaces: true,
      state: { value: state },
      at: this.#clock.now(),
    };
    return { length: history.length, change };
  }

  /** The state of the run, if it has completed in a session of its own. */
  async #completedRun(key: RunKey): Promise<RunState | undefined> {
    const found = await this.#store.find(key);
    if (found === undefined || found.head.status !== "completed" || found.created.session_id !== key.run_id)
      return undefined;
    return foldLog(this.#store, key, found.position);
  }
}
