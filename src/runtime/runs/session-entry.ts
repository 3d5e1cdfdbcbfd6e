import type { CreatedEntry, Growing } from "../../core/log.ts";
import type {
  Clock,
  RunKey,
  SessionChange,
  SessionHead,
  SessionKey,
  Store,
  StoredRun,
  StoredSession,
} from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import { transcript } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { isFinal } from "../../core/state.ts";
import { userOf } from "../../core/user.ts";
import type { NewRun, SessionEntry } from "../agent/new-run.ts";
import { foldLog } from "../log/fold-log.ts";
import type { LiveRun } from "./live-run.ts";

/** In whose name a session is joined. With `onlyOf` it is refused if another user has created it. */
export type Joining = Pick<NewRun, "tenant" | "principal" | "onlyOf">;

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
   * its length. The run that makes a session, or replaces it, gives it its generation, and the run that makes it its creator.
   */
  async join(by: Joining, sessionId: string, runId: string): Promise<SessionEntry> {
    const { tenant, principal, onlyOf } = by;
    const at = this.#clock.now();
    const namesake = { tenant, run_id: sessionId };
    const live = this.#find(namesake);
    if (live !== undefined) {
      live.family.isJoined = true;
      // A run that has ended may not have written its session change yet.
      if (isFinal(live.log.state.status)) await live.log.acknowledge()?.catch(ignore);
    }
    const change: Growing<SessionChange> = { session_id: sessionId, create: true, generation: runId, at };
    if (onlyOf !== undefined) change.onlyOf = onlyOf;
    const key = { tenant, session_id: sessionId };
    const head = await this.#store.sessionHead(key);
    if (head !== undefined) return entryOf(head, change);
    const stored = await this.#store.find(namesake);
    const first = whoseSession(live?.log.state.created ?? stored?.created, sessionId);
    const creator = userOf(first === undefined ? principal : first.principal);
    if (creator !== undefined) change.creator = creator;
    const completed = first && stored && (await this.#completed(stored));
    if (completed === undefined) return entryOf(undefined, change);
    // The session of a run that was created without one is stored when another run joins it, with the first run's
    // messages. Another process may delete it before the store has the run, whose first write then makes another session.
    const generation = `before ${runId}`;
    const session = {
      history: transcript(completed),
      state: null,
      generation,
      ...(creator !== undefined && { creator }),
    };
    if (await this.#store.makeSession(key, session, at)) return { length: session.history.length, generation, change };
    // Another run has stored it meanwhile.
    return entryOf(await this.#store.sessionHead(key), change);
  }

  /** As {@link join}, but the content of the session is the caller's. It is there when the run is. */
  replace(
    { principal, onlyOf }: Joining,
    sessionId: string,
    runId: string,
    { history, state }: StoredSession,
  ): SessionEntry {
    const change: SessionChange = {
      session_id: sessionId,
      create: true,
      generation: runId,
      creator: userOf(principal),
      onlyOf,
      messages: () => history,
      replaces: true,
      state: { value: state },
      at: this.#clock.now(),
    };
    return { length: history.length, generation: runId, change };
  }

  /** Whether a user may join a session: the user has created it, or it does not exist. */
  async mayJoin({ tenant, session_id }: SessionKey, user: string): Promise<boolean> {
    const head = await this.#store.sessionHead({ tenant, session_id });
    if (head !== undefined) return head.creator === user;
    const key = { tenant, run_id: session_id };
    const created = this.#find(key)?.log.state.created ?? (await this.#store.find(key))?.created;
    const first = whoseSession(created, session_id);
    return first === undefined || userOf(first.principal) === user;
  }

  /** The state of a run, if it has completed. */
  async #completed({ key, head, position }: StoredRun): Promise<RunState | undefined> {
    return head.status === "completed" ? foldLog(this.#store, key, position) : undefined;
  }
}

/** The first entry of the run that has a session of its own, which has the id of the run. */
function whoseSession(created: CreatedEntry | null | undefined, sessionId: string): CreatedEntry | undefined {
  return created?.session_id === sessionId ? created : undefined;
}

function entryOf(head: SessionHead | undefined, change: SessionChange): SessionEntry {
  return { length: head?.length ?? 0, generation: head?.generation, change };
}
