import type { Command, Decision } from "../core/decide.ts";
import { commandOf, decide, isRefusal } from "../core/decide.ts";
import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { RunKey, SessionChange } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { initialState } from "../core/state.ts";

const noEntries: readonly Entry[] = [];

/** What is written together. */
export interface Batch {
  readonly entries: readonly Entry[];
  /** Without what the end of the run adds to it. */
  readonly session: SessionChange | undefined;
}

/** A run as it is decided: ahead of what the store has by the entries that are not handed to it yet. */
export class DecidedRun {
  #state: RunState;
  /** Decided and not yet handed to the store. */
  #entries: Entry[] | undefined;
  #session: SessionChange | undefined;

  constructor(key: RunKey) {
    this.#state = initialState(key.run_id);
  }

  get state(): RunState {
    return this.#state;
  }

  /** The session change that goes with the next write. */
  get session(): SessionChange | undefined {
    return this.#session;
  }

  get hasEntries(): boolean {
    return this.#entries !== undefined;
  }

  decide(command: Command): Decision {
    const decision = decide(this.#state, command);
    if (isRefusal(decision) || decision.length === 0) return decision;
    this.#entries ??= [];
    for (const entry of decision) {
      evolve(this.#state, entry);
      this.#entries.push(entry);
    }
    return decision;
  }

  /** A later change replaces an earlier one, and still makes the session if that did. */
  changeSession(change: SessionChange): void {
    const before = this.#session;
    this.#session = { ...change, create: change.create || (before?.create ?? false), messages: before?.messages };
  }

  /** Takes over a run that is in the store. */
  adopt(state: RunState): void {
    this.#state = state;
  }

  /** Gives what is to be written, which is none any more. */
  take(): Batch {
    const batch = { entries: this.#entries ?? noEntries, session: this.#session };
    this.#entries = undefined;
    this.#session = undefined;
    return batch;
  }

  /** The batch was not written: it goes with what comes next. */
  putBack({ entries, session }: Batch): void {
    if (entries.length > 0) this.#entries = [...entries, ...(this.#entries ?? [])];
    this.#session ??= session;
  }

  /** Decides once more what was decided on a state that was not the last one. */
  rebase(state: RunState): void {
    const decided = this.#entries ?? noEntries;
    this.#state = state;
    this.#entries = undefined;
    for (const entry of decided) this.decide(commandOf(entry));
  }

  /** Nothing is written any more. */
  drop(): void {
    this.#entries = undefined;
  }
}
