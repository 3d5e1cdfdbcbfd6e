import type { Clock, SessionChange, Store, StoredSession } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import { transcript } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry } from "../core/state.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { RunLog } from "./run-log.ts";

const noMessages: readonly Message[] = [];

/** The session of a run as its agent sees it. */
export class RunSession {
  readonly #log: RunLog;
  readonly #store: Store;
  readonly #clock: Clock;

  constructor(log: RunLog, store: Store, clock: Clock) {
    this.#log = log;
    this.#store = store;
    this.#clock = clock;
  }

  /** The messages that the session held when the run was created. */
  history(): MaybePromise<readonly Message[]> {
    const { history_length = 0 } = createdEntry(this.#log.state);
    if (history_length === 0) return noMessages;
    const messages = (session: StoredSession | undefined): readonly Message[] =>
      session?.history.slice(0, history_length) ?? noMessages;
    const session = this.#read();
    return isPromise(session) ? session.then(messages) : messages(session);
  }

  /** The state as the store has it, with what this run has set. */
  getState(): MaybePromise<JsonValue> {
    const committed = this.#log.commit();
    return isPromise(committed) ? committed.then(() => this.#readState()) : this.#readState();
  }

  setState(state: JsonValue): MaybePromise<void> {
    const { session_id } = createdEntry(this.#log.state);
    this.#log.changeSession({ session_id, create: true, state: { value: state }, at: this.#clock.now() });
    return this.#log.commit();
  }

  #readState(): MaybePromise<JsonValue> {
    const session = this.#read();
    return isPromise(session) ? session.then((later) => later?.state ?? null) : (session?.state ?? null);
  }

  #read(): MaybePromise<StoredSession | undefined> {
    const { key, state } = this.#log;
    return this.#store.session({ tenant: key.tenant, session_id: createdEntry(state).session_id });
  }
}

/** What the end of a run changes in its session. `isJoined`: another run has joined the session of this one. */
export function sessionAtEnd(state: RunState, isJoined: boolean): SessionChange | undefined {
  if (state.status !== "completed") return undefined;
  const { session_id } = createdEntry(state);
  return {
    session_id,
    create: session_id !== state.run_id || isJoined,
    messages: () => transcript(state),
    at: state.ended?.at ?? 0,
  };
}
