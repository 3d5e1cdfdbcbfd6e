import type { Command } from "../../core/commands.ts";
import { commandOf } from "../../core/commands.ts";
import type { Decision } from "../../core/decide.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import { evolve } from "../../core/evolve.ts";
import type { Entry } from "../../core/log.ts";
import type { RunKey, SessionChange } from "../../core/ports.ts";
import type { RunState } from "../../core/state.ts";
import { initialState } from "../../core/state.ts";

const noEntries: readonly Entry[] = [];

/** The content of one write. */
export interface Batch {
  readonly entries: readonly Entry[];
  /** Without the session change that the end of the run adds. */
  readonly session: SessionChange | undefined;
}

/** The decided state of a run, and the decided entries that are not handed to the store yet. */
export class DecidedRun {
  /** The decided state. Only this class replaces it. */
  state: RunState;
  /** The decided entries that are not handed to the store yet. */
  #entries: Entry[] | undefined;
  #session: SessionChange | undefined;
  /** What has become of entries that were decided again. Undefined until there are such entries. */
  #decidedAgain: WeakMap<Entry, Entry | "dropped"> | undefined;

  constructor(key: RunKey) {
    this.state = initialState(key.run_id);
  }

  /** The session change that goes with the next write. */
  get session(): SessionChange | undefined {
    return this.#session;
  }

  get hasEntries(): boolean {
    return this.#entries !== undefined;
  }

  decide(command: Command, activeMs?: number): Decision {
    const decision = decide(this.state, command, activeMs);
    if (isRefusal(decision) || decision.length === 0) return decision;
    // Some commands carry their entry. The log may get another one, with a later time.
    if ("entry" in command && decision[0] !== undefined && decision[0] !== command.entry) {
      this.#decidedAgain ??= new WeakMap();
      this.#decidedAgain.set(command.entry, decision[0]);
    }
    this.#entries ??= [];
    for (const entry of decision) {
      evolve(this.state, entry);
      this.#entries.push(entry);
    }
    return decision;
  }

  changeSession(change: SessionChange): void {
    this.#session = bothChanges(this.#session, change);
  }

  /** Begins with the state of a run in the store. */
  adopt(state: RunState): void {
    this.state = state;
  }

  /** Removes and returns everything that is to be written. */
  take(): Batch {
    const batch = { entries: this.#entries ?? noEntries, session: this.#session };
    this.#entries = undefined;
    this.#session = undefined;
    return batch;
  }

  /** The batch was not written. It goes before the entries of the next batch. */
  putBack({ entries, session }: Batch): void {
    if (entries.length > 0) this.#entries = [...entries, ...(this.#entries ?? [])];
    this.#session = bothChanges(session, this.#session);
  }

  /** Decides the pending entries again on a newer state, after a conflict. */
  rebase(state: RunState): void {
    const decided = this.#entries ?? noEntries;
    this.state = state;
    this.#entries = undefined;
    this.#decidedAgain ??= new WeakMap();
    for (const entry of decided) {
      const decision = this.decide(commandOf(entry));
      const again = (isRefusal(decision) ? undefined : decision[0]) ?? "dropped";
      // Some commands carry their entry, which is then the same one.
      if (again !== entry) this.#decidedAgain.set(entry, again);
    }
  }

  /** The entry that the log has, or is going to have, in place of one that was decided. Undefined: it was dropped. */
  standingOf(entry: Entry): Entry | undefined {
    const again = this.#decidedAgain?.get(entry);
    if (again === undefined) return entry;
    return again === "dropped" ? undefined : this.standingOf(again);
  }

  /** Drops the entries that are not written. */
  drop(): void {
    this.#entries = undefined;
  }
}

/**
 * Two changes of a session as one. The session is created, and its content replaced, if either of them does that. The
 * messages follow each other, and the later state counts.
 */
export function bothChanges(
  before: SessionChange | undefined,
  after: SessionChange | undefined,
): SessionChange | undefined {
  if (before === undefined || after === undefined) return before ?? after;
  const { messages: first } = before;
  const { messages: second } = after;
  return {
    ...after,
    create: before.create || after.create,
    replaces: before.replaces ?? after.replaces,
    state: after.state ?? before.state,
    messages: first && second ? () => [...first(), ...second()] : (first ?? second),
  };
}
