import { aboutRun } from "../../core/about-run.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { MessageRange, SessionChange, SessionHead, SessionKey, Store, StoredSession } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { transcript } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry } from "../../core/state.ts";
import { userOf } from "../../core/user.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { RunLog } from "../log/run-log.ts";
import { sessionWith } from "../log/run-write.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "../log/store-failures.ts";
import type { Execution } from "./execution.ts";
import { unlessAborted } from "./unless-aborted.ts";

const noMessages: readonly Message[] = [];

/** Which messages of a session, and of which generation of it, are a history. */
export type HistoryOf = Pick<CreatedEntry, "history_length" | "history_generation">;

/**
 * The session of a run as its agent sees it. A store that fails to read it is asked again, as one that fails to write
 * is, because the failure would count as what the agent did.
 */
export class RunSession {
  readonly #execution: Execution;
  readonly #log: RunLog;
  readonly #store: Store;

  constructor(execution: Execution) {
    this.#execution = execution;
    this.#log = execution.log;
    this.#store = execution.run.shared.store;
  }

  /**
   * The last messages that the session held when the run was created, or when its agent had first asked for them in a later
   * generation: `its`, null for no session. None if it was deleted or replaced since.
   */
  history(last: number, its?: HistoryOf | null): MaybePromise<readonly Message[]> {
    const created = its ?? createdEntry(this.#log.state);
    if (its === null || created.history_length === undefined) return noMessages;
    const range = { from: Math.max(0, created.history_length - last), to: created.history_length };
    // The first write of the run may replace the session. Until then another process may delete it, and not after that.
    const accepted = this.#log.head === undefined ? this.#log.commit() : undefined;
    return accepted === undefined
      ? this.#readHistory(created, range)
      : accepted.then(() => this.#readHistory(created, range));
  }

  #readHistory(created: HistoryOf, range: MessageRange): MaybePromise<readonly Message[]> {
    const messages = (session: StoredSession | undefined): readonly Message[] =>
      isSameSession(created, session) ? session.history : this.#lost();
    const session = this.#read(() => this.#store.session(this.#key, range));
    return isPromise(session) ? session.then(messages) : messages(session);
  }

  /** How long the session is now; null: it does not exist. */
  length(): MaybePromise<HistoryOf | null> {
    const lengthOf = (head: SessionHead | undefined): HistoryOf | null =>
      head === undefined ? null : { history_length: head.length, history_generation: head.generation ?? "" };
    const head = this.#read(() => this.#store.sessionHead(this.#key));
    return isPromise(head) ? head.then(lengthOf) : lengthOf(head);
  }

  #lost(): readonly Message[] {
    this.#execution.logger.warn(
      "The history of a run was deleted, or replaced, with its session. The agent sees none.",
      {
        ...aboutRun(this.#log),
        session_id: this.#key.session_id,
      },
    );
    return noMessages;
  }

  /** The state as the store has it, with what this run has set. */
  getState(): MaybePromise<JsonValue> {
    const committed = this.#log.commit();
    return isPromise(committed) ? committed.then(() => this.#readState()) : this.#readState();
  }

  setState(state: JsonValue): MaybePromise<void> {
    this.#execution.throwIfOver();
    const { session_id, principal } = createdEntry(this.#log.state);
    const at = this.#execution.clock.now();
    const creator = userOf(principal);
    const generation = this.#log.key.run_id;
    this.#log.changeSession({ session_id, create: true, generation, creator, state: { value: state }, at });
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
    const { clock, logger, run } = this.#execution;
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
      await unlessAborted(pause, run.signal).finally(() => clear?.());
      try {
        return await read();
      } catch (again) {
        error = again;
      }
    }
  }
}

/**
 * Whether a session is the one that a run has joined: it was not deleted or replaced since. The logs of earlier versions do
 * not tell its generation.
 */
export function isSameSession(
  { history_generation }: HistoryOf,
  session: StoredSession | undefined,
): session is StoredSession {
  if (session === undefined) return false;
  return history_generation === undefined || history_generation === (session.generation ?? "");
}

/** What the end of a run changes in its session. `isJoined`: another run has joined the session of this one. */
export function sessionAtEnd(state: RunState, isJoined: boolean): SessionChange | undefined {
  if (state.status !== "completed") return undefined;
  const change = sessionWith(state, () => transcript(state));
  // What earlier generations have said is in a session.
  change.create = createdEntry(state).session_id !== state.run_id || isJoined || state.generation !== null;
  return change;
}
