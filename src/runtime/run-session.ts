import { aboutRun } from "../core/about-run.ts";
import type { SessionChange, SessionKey, Store, StoredSession } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import { transcript } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry } from "../core/state.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { ExecutionHost } from "./execution.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "./retry-pause.ts";
import type { RunLog } from "./run-log.ts";
import { unlessAborted } from "./unless-aborted.ts";

const noMessages: readonly Message[] = [];

/** The run whose session it is. */
type SessionHost = Pick<ExecutionHost, "log" | "clock" | "logger" | "signal">;

/**
 * The session of a run as its agent sees it. A store that fails to read it is asked again, as one that fails to write
 * is, because the failure would count as what the agent did.
 */
export class RunSession {
  readonly #host: SessionHost;
  readonly #log: RunLog;
  readonly #store: Store;

  constructor(host: SessionHost, store: Store) {
    this.#host = host;
    this.#log = host.log;
    this.#store = store;
  }

  /** The messages that the session held when the run was created. */
  history(): MaybePromise<readonly Message[]> {
    const { history_length = 0 } = createdEntry(this.#log.state);
    if (history_length === 0) return noMessages;
    // The first write of the run may replace the session.
    const accepted = this.#log.head === undefined ? this.#log.commit() : undefined;
    return accepted === undefined
      ? this.#readHistory(history_length)
      : accepted.then(() => this.#readHistory(history_length));
  }

  #readHistory(history_length: number): MaybePromise<readonly Message[]> {
    const messages = (session: StoredSession | undefined): readonly Message[] =>
      session?.history.slice(0, history_length) ?? noMessages;
    const session = this.#read(() => this.#store.session(this.#key));
    return isPromise(session) ? session.then(messages) : messages(session);
  }

  /** The state as the store has it, with what this run has set. */
  getState(): MaybePromise<JsonValue> {
    const committed = this.#log.commit();
    return isPromise(committed) ? committed.then(() => this.#readState()) : this.#readState();
  }

  setState(state: JsonValue): MaybePromise<void> {
    const { session_id } = createdEntry(this.#log.state);
    this.#log.changeSession({ session_id, create: true, state: { value: state }, at: this.#host.clock.now() });
    return this.#log.commit();
  }

  #readState(): MaybePromise<JsonValue> {
    const head = this.#read(() => this.#store.sessionHead(this.#key));
    return isPromise(head) ? head.then((later) => later?.state ?? null) : (head?.state ?? null);
  }

  get #key(): SessionKey {
    const { key, state } = this.#log;
    return { tenant: key.tenant, session_id: createdEntry(state).session_id };
  }

  #read<Value>(read: () => MaybePromise<Value>): MaybePromise<Value> {
    try {
      const value = read();
      return isPromise(value)
        ? value.catch((error: unknown) => this.#log.outlast(this.#readAgain(read, error)))
        : value;
    } catch (error) {
      return this.#log.outlast(this.#readAgain(read, error));
    }
  }

  /** Rejects when the run is stopped, and not before. */
  async #readAgain<Value>(read: () => MaybePromise<Value>, first: unknown): Promise<Value> {
    const { clock, logger, signal } = this.#host;
    let error = first;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = nextPauseMs(pauseMs)) {
      logger.warn("The session of a run could not be read. Reading it is tried again.", {
        ...aboutRun(this.#log),
        error,
      });
      let clear: (() => void) | undefined;
      const pause = new Promise<void>((resolve) => {
        clear = clock.setTimeout(resolve, pauseMs);
      });
      await unlessAborted(pause, signal).finally(() => clear?.());
      try {
        return await read();
      } catch (again) {
        error = again;
      }
    }
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
