import type { CadenzaError } from "../core/errors.ts";
import type { Entry } from "../core/log.ts";
import type { Clock, RunKey, Store, StoredRun } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import { isFinal } from "../core/state.ts";
import type { LogSource } from "./events.ts";

/** How often the log of a run that is executed elsewhere is looked at, in milliseconds: the delay with which its events are seen here. */
const POLL_MS = 200;
const READ_CHUNK = 256;

/** What the logs of one runtime's store share. */
export interface StoredLogHost {
  readonly store: Store;
  readonly clock: Clock;
  /** Whether the runtime is closed, and its store with it. */
  readonly isOver: boolean;
  /** Why a run does not get on, as far as this process knows. Its readers are told. */
  blockedError(key: RunKey): CadenzaError | undefined;
  /** The logs that readers wait for. */
  readonly followed: Set<StoredLog>;
}

/** The log of a run that this process does not execute: one that has ended, sleeps, or is another process's. */
export class StoredLog implements LogSource {
  readonly key: RunKey;
  readonly #host: StoredLogHost;
  #run: StoredRun;
  #watchers: (() => void)[] = [];
  #clearTimer: (() => void) | undefined;

  constructor(host: StoredLogHost, run: StoredRun) {
    this.#host = host;
    this.#run = run;
    this.key = run.key;
  }

  get committed(): number {
    return this.#run.position;
  }

  get lost(): boolean {
    return this.#host.isOver;
  }

  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    // The store may hold more by now, which comes with the next look.
    return this.#host.store.read(this.key, from, Math.min(READ_CHUNK, this.committed - from));
  }

  watch(callback: () => void): void {
    this.#watchers.push(callback);
    this.#host.followed.add(this);
    if (this.#clearTimer === undefined && !isFinal(this.#run.head.status)) this.#poll();
  }

  unwatch(callback: () => void): void {
    this.#watchers = this.#watchers.filter((watcher) => watcher !== callback);
    if (this.#watchers.length === 0) this.#rest();
  }

  /** The runtime is closed: readers wait no longer. */
  end(): void {
    this.#rest();
    this.#tell();
  }

  #rest(): void {
    this.#host.followed.delete(this);
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  #poll(): void {
    this.#clearTimer = this.#host.clock.setTimeout(() => {
      this.#clearTimer = undefined;
      const found = this.#host.store.find(this.key);
      if (isPromise(found))
        found.then(
          (run) => this.#look(run),
          () => this.#look(this.#run),
        );
      else this.#look(found);
    }, POLL_MS);
  }

  #look(run: StoredRun | undefined): void {
    const before = this.#run.position;
    // A run that is gone counts as longer, so that its readers read, and learn it.
    this.#run = run ?? { ...this.#run, position: before + 1 };
    if (this.#run.position === before && this.#host.blockedError(this.key) === undefined) {
      if (this.#watchers.length > 0) this.#poll();
      return;
    }
    this.#rest();
    this.#tell();
  }

  #tell(): void {
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) watcher();
  }
}
