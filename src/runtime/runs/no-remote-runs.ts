import type { CadenzaError } from "../../core/errors.ts";
import type { ReceivedEntry } from "../../core/log.ts";
import type { Logger, RunKey, Store, StoredRun } from "../../core/ports.ts";
import type { RunState } from "../../core/state.ts";
import { isFinal } from "../../core/state.ts";
import type { Agent } from "../agent/agent.ts";
import type { LogSource } from "../log/events.ts";
import { closedError, lostError } from "../log/refusals.ts";
import { EndedLog } from "./ended-log.ts";
import { refuseLate } from "./late-message.ts";
import type { AddedRun, RemoteReport, RemoteRuns } from "./remote-runs.ts";

const nothing: RemoteReport = { blocked: [], unregistered: 0, damaged: [], differences: 0, heartbeatAgeMs: null };

/** The remote runs of a store that is not durable: only this process executes its runs, and all are loaded. */
export class NoRemoteRuns implements RemoteRuns {
  readonly #store: Store;
  readonly #logger: Logger;
  #hasWarned = false;

  constructor(store: Store, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  get sharesSlots(): boolean {
    return false;
  }

  residenceOf(): undefined {
    return undefined;
  }

  start(): void {
    // No other process takes runs.
  }

  /** No agent can be declared. */
  async create({ key }: AddedRun): Promise<void> {
    throw notLoaded(key.run_id);
  }

  async load(): Promise<undefined> {
    return undefined;
  }

  async cancel({ run_id }: RunKey): Promise<RunState> {
    throw notLoaded(run_id);
  }

  /** Only a run that has ended is not loaded here. */
  async send(key: RunKey, message: ReceivedEntry): Promise<boolean> {
    await refuseLate(this.#store, key, message);
    return false;
  }

  cancelSubRun(): undefined {
    return undefined;
  }

  async findSubRun(): Promise<undefined> {
    return undefined;
  }

  async offer(): Promise<RunState> {
    throw closedError();
  }

  settleAbove(): undefined {
    return undefined;
  }

  trying(): undefined {
    return undefined;
  }

  logOf(stored: StoredRun): LogSource {
    return new EndedLog(this.#store, stored, isFinal(stored.head.status) ? undefined : notLoaded(stored.key.run_id));
  }

  /** Durable agents work here too, until the process ends. The logger is told once. */
  onRegistered({ name, options }: Agent): void {
    if (options.durable !== true || this.#hasWarned) return;
    this.#hasWarned = true;
    this.#logger.warn(
      'An agent is durable, and the store is not: its runs end with this process. Use a store of "cadenza/sqlite" or "cadenza/postgres", or durable(store) of "cadenza/durable".',
      { agent_name: name },
    );
  }

  async report(): Promise<RemoteReport> {
    return nothing;
  }

  async stopTaking(): Promise<void> {
    // No run is taken.
  }

  end(): void {
    // No reader waits.
  }

  async close(): Promise<void> {
    // Nothing is held.
  }
}

/** The error for a run that had not ended when its runtime was closed. */
function notLoaded(runId: string): CadenzaError {
  return lostError(runId, "was left by the runtime that executed it");
}
