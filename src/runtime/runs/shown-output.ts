import { aboutRun } from "../../core/about-run.ts";
import type { Command } from "../../core/commands.ts";
import type { CopySource, PartSource } from "../../core/emission-source.ts";
import { isCopy, stepOf } from "../../core/emission-source.ts";
import { CadenzaError } from "../../core/errors.ts";
import { evolve } from "../../core/evolve.ts";
import type { EmittedEntry, Entry, Growing } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import { isPromise } from "../../core/promises.ts";
import { agentRole } from "../../core/role.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, generationLength, initialState } from "../../core/state.ts";
import type { Execution } from "../execution/execution.ts";
import { READ_CHUNK } from "../log/fold-log.ts";
import { checkLogLength } from "../log/part-size.ts";

/**
 * Copies what a sub-run emits into the log of its parent. It reads the committed log of the sub-run from the store,
 * wherever the sub-run is executed, with a fold of its own. The parent's log drops what it holds already, so that a
 * parent that is executed again continues behind its last copy.
 */
export class ShownOutput {
  readonly #key: RunKey;
  readonly #execution: Execution;
  readonly #pause: () => Promise<void>;
  /** The sub-run as far as it is copied. */
  readonly #state: RunState;
  #copying: Promise<void> | undefined;
  /** Why nothing more is copied: the parent's log is full, or the store has deleted the sub-run. Undefined: more is. */
  #stopped: CadenzaError | "deleted" | undefined;

  constructor(key: RunKey, execution: Execution, pause: () => Promise<void>) {
    this.#key = key;
    this.#execution = execution;
    this.#pause = pause;
    this.#state = initialState(key.run_id);
  }

  /** The error with which the sub-run fails, because the parent's log is full. Undefined: it is not. */
  get failure(): CadenzaError | undefined {
    return this.#stopped === "deleted" ? undefined : this.#stopped;
  }

  /**
   * Copies up to this length of the sub-run's log. Undefined: that is done. The promise never rejects. While it is
   * pending, another call gets the same promise, whatever its length.
   */
  copy(length: number): undefined | Promise<void> {
    if (this.#copying !== undefined) return this.#copying;
    const copying = this.#goOn(length)?.then(() => {
      this.#copying = undefined;
    });
    this.#copying = copying;
    return copying;
  }

  #goOn(length: number): undefined | Promise<void> {
    while (!this.#isThrough(length)) {
      const waiting = this.#copySome(length);
      if (waiting !== undefined) return waiting.then(() => this.#goOn(length));
    }
    return undefined;
  }

  #isThrough(length: number): boolean {
    return this.#state.position >= length || this.#stopped !== undefined || this.#execution.over;
  }

  /** Copies the next entries. A promise: no more are copied before it resolves. */
  #copySome(length: number): undefined | Promise<void> {
    const { store, settings } = this.#execution.run.shared;
    const { position } = this.#state;
    try {
      // No more at once than the parent's queue to the store takes.
      const entries = store.read(this.#key, position, Math.min(READ_CHUNK, settings.maxBacklog, length - position));
      if (!isPromise(entries)) return this.#take(entries);
      return entries.then(
        (later) => this.#take(later),
        (error: unknown) => this.#readAgain(error),
      );
    } catch (error) {
      return this.#readAgain(error);
    }
  }

  #readAgain(error: unknown): Promise<void> {
    const { logger } = this.#execution.run.shared;
    logger.warn("A sub-run could not be read to show it. Reading it is tried again.", { ...this.#about, error });
    return this.#pause();
  }

  #take(entries: readonly Entry[] | undefined): undefined | Promise<void> {
    const { log, shared } = this.#execution.run;
    if (entries === undefined || entries.length === 0) {
      this.#stopped = "deleted";
      shared.logger.warn("A sub-run was deleted before all of it was shown.", this.#about);
      return undefined;
    }
    for (const entry of entries) if (!this.#execution.over && this.#stopped === undefined) this.#copyEntry(entry);
    return log.backlog >= shared.settings.maxBacklog ? log.commit() : shared.pacer.count(shared.clock.now());
  }

  get #about(): object {
    return { ...aboutRun({ key: this.#key, state: this.#state }), parent_run_id: this.#execution.run.log.key.run_id };
  }

  #copyEntry(entry: Entry): void {
    evolve(this.#state, entry);
    const command = this.#commandFor(entry);
    if (command === undefined) return;
    const { log, shared } = this.#execution.run;
    try {
      checkLogLength(generationLength(log.state), shared.settings.maxLogEntries);
    } catch (error) {
      if (!CadenzaError.is(error)) throw error;
      this.#stopped = error;
      return;
    }
    log.decide(command);
  }

  /** The command that copies an entry. Undefined: the entry emits nothing. */
  #commandFor(entry: Entry): Command | undefined {
    const { events, last_events } = this.#state;
    const at = this.#execution.run.shared.clock.now();
    switch (entry.type) {
      case "emitted":
        return { type: "emit", at, item: copyOf(entry, this.#sourceOf(entry, events)) };
      case "awaited":
      case "ended":
        if (!entry.closes) return undefined;
        return { type: "emit", at, item: { kind: "close", source: this.#sourceAt(events - last_events + 1) } };
      case "intent": {
        const { key, attempt } = entry;
        if (attempt === 1) return undefined;
        return { type: "tear", entry: { type: "torn", at, source: this.#sourceAt(events, { key, attempt }) } };
      }
      case "torn":
        return { type: "tear", entry: { type: "torn", at, source: this.#sourceOf(entry, events) } };
      default:
        return undefined;
    }
  }

  /** The source of a copy. What the sub-run shows of its own sub-runs keeps its role. */
  #sourceOf({ source }: Pick<EmittedEntry, "source">, event: number): CopySource {
    return this.#sourceAt(event, stepOf(source), isCopy(source) ? source.role : undefined);
  }

  #sourceAt(event: number, step?: PartSource, role?: CopySource["role"]): CopySource {
    const { run_id } = this.#key;
    const source: Growing<CopySource> = {
      run_id,
      event,
      role: role ?? agentRole(createdEntry(this.#state).agent_name),
    };
    if (step !== undefined) source.step = step;
    return source;
  }
}

function copyOf(entry: EmittedEntry, source: CopySource): (Command & { readonly type: "emit" })["item"] {
  switch (entry.kind) {
    case "part":
      return entry.opens
        ? { kind: "part", part: entry.part, opens: true, source }
        : { kind: "part", part: entry.part, source };
    case "message":
      return { kind: "message", message: entry.message, source };
    case "generic":
      return { kind: "generic", generic: entry.generic, source };
    case "close":
      return { kind: "close", source };
  }
}
