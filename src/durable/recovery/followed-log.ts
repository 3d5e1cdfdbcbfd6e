import { inBackground } from "../../core/background.ts";
import { blockedError } from "../../core/blocked-error.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Entry } from "../../core/log.ts";
import type { RunKey, RunPosition, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore } from "../../core/promises.ts";
import { isFinal } from "../../core/state.ts";
import type { LogSource } from "../../runtime/log/event-stream.ts";
import type { Followed } from "./follower.ts";
import type { Worker } from "./worker.ts";

const READ_CHUNK = 256;

/** The log of a run that is not loaded in this process: it has ended, was evicted, or another process owns it. */
export class FollowedLog implements LogSource, Followed {
  readonly key: RunKey;
  readonly #worker: Worker;
  #run: StoredRun;
  /** The number of entries in the store, when it was last read. */
  #position: number;
  #watchers: (() => void)[] = [];
  #unfollow: (() => void) | undefined;
  /** How the store is being asked for the run. `again`: the run has moved since, and the store is asked once more. */
  #asking: "idle" | "once" | "again" = "idle";
  /** Why the run cannot be read any more. */
  #damage: CadenzaError | undefined;
  /** The runtime is closed. Ends the wait of all readers. */
  readonly #end = (): void => {
    this.#rest();
    this.#tell();
  };

  constructor(worker: Worker, run: StoredRun) {
    this.#worker = worker;
    this.#run = run;
    this.#position = run.position;
    this.key = run.key;
  }

  get committed(): number {
    return this.#position;
  }

  get lost(): boolean {
    return this.#worker.isOver || this.#isLoaded;
  }

  /** Whether the run is loaded in this process by now, as far as it was read here. */
  get #isLoaded(): boolean {
    const log = this.#worker.runs.find(this.key)?.log;
    return log !== undefined && !log.lost && log.committed >= this.#position;
  }

  get blocked(): CadenzaError | undefined {
    const { key, created, head } = this.#run;
    return head.blocked === null ? undefined : blockedError(key.run_id, created.agent_name, head.blocked);
  }

  get known(): RunPosition {
    return { key: this.key, epoch: this.#run.head.epoch, position: this.#position };
  }

  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    if (this.#damage !== undefined) throw this.#damage;
    // The store may hold more entries by now. They are read after the next poll.
    return this.#worker.store.read(this.key, from, Math.min(READ_CHUNK, this.committed - from));
  }

  watch(callback: () => void): void {
    this.#watchers.push(callback);
    this.#worker.onOver.add(this.#end);
    if (!isFinal(this.#run.head.status)) this.#unfollow ??= this.#worker.follower.follow(this);
  }

  unwatch(callback: () => void): void {
    this.#watchers = this.#watchers.filter((watcher) => watcher !== callback);
    if (this.#watchers.length === 0) this.#rest();
  }

  /** The run has moved in the store. */
  onMoved(): void {
    const before = this.#asking;
    this.#asking = "again";
    // After a failure of the store, the next poll tries again.
    if (before === "idle") inBackground(this.#worker.logger, this.#reload().catch(ignore));
  }

  /** Asks one request at a time: the answer to an earlier one might arrive later. */
  async #reload(): Promise<void> {
    try {
      while (this.#asking === "again") {
        this.#asking = "once";
        this.#update(await this.#find());
      }
    } finally {
      this.#asking = "idle";
    }
  }

  async #find(): Promise<StoredRun | undefined> {
    try {
      const run = await this.#worker.store.find(this.key);
      this.#damage = undefined;
      return run;
    } catch (error) {
      // The store works, and cannot read this run. Its readers would wait for ever.
      if (!CadenzaError.is(error) || error.run_id === undefined) throw error;
      this.#damage = error;
      return undefined;
    }
  }

  #update(run: StoredRun | undefined): void {
    // A deleted run counts as longer, so that its readers read and find it gone.
    this.#position = run?.position ?? this.#position + 1;
    this.#run = run ?? this.#run;
    this.#rest();
    this.#tell();
  }

  #rest(): void {
    this.#worker.onOver.delete(this.#end);
    this.#unfollow?.();
    this.#unfollow = undefined;
  }

  #tell(): void {
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) watcher();
  }
}
