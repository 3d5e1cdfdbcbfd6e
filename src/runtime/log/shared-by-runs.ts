import { inBackground } from "../../core/background.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { Logger, RunKey, Store } from "../../core/ports.ts";
import type { Interceptors } from "../agent/interceptors.ts";
import { withCarrier } from "../agent/interceptors.ts";
import { OneByOne } from "./one-by-one.ts";
import { Pacer } from "./pacer.ts";
import type { MessageLimits } from "./part-size.ts";
import { RunFigures } from "./run-figures.ts";
import { Slots } from "./slots.ts";
import type { StoreClock } from "./store-clock.ts";
import { holdProcess } from "./system.ts";

/** The limits under which agents are executed. Durations are in milliseconds. */
export interface ExecutionSettings extends MessageLimits {
  readonly timeoutMs: number;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly maxPartBytes: number;
  readonly maxStepBytes: number;
  readonly maxBacklog: number;
  readonly maxDepth: number;
  /** Whether clients are told the messages of errors that agents throw. */
  readonly exposeErrors: boolean;
  readonly interceptors: Interceptors;
}

/** What the live runs of one runtime share. */
export class SharedByRuns {
  readonly store: Store;
  readonly clock: StoreClock;
  readonly logger: Logger;
  readonly settings: ExecutionSettings;
  readonly slots = new Slots();
  readonly figures = new RunFigures();
  /** Tells runs what those that they have started have done. */
  readonly telling = new OneByOne();
  /** Whether the runtime has been closed: no run begins, is loaded or is answered any more. */
  isClosed = false;
  /** Whether the runs that other processes can go on with begin no more steps here. */
  isHandingOn = false;
  /** Called after every commit while the runtime is being closed. */
  onProgress: (() => void) | undefined;
  readonly #pacer: Pacer;
  #dirty: { flush(): void }[] = [];

  constructor(store: Store, clock: StoreClock, logger: Logger, settings: ExecutionSettings) {
    this.store = store;
    this.clock = clock;
    this.logger = logger;
    this.settings = settings;
    this.#pacer = new Pacer(clock);
  }

  /** The first entry of a new run with what the interceptors give it to carry. */
  withCarrier(key: RunKey, created: CreatedEntry): CreatedEntry {
    return withCarrier(this.settings.interceptors, key, created, this.logger);
  }

  /** Keeps the process open until the returned function is called. */
  hold(): () => void {
    const { clock } = this;
    return clock.hold === undefined ? holdProcess() : clock.hold();
  }

  /** Now and then another turn of the event loop is due. Undefined: it is not. */
  pace(at: number): undefined | Promise<void> {
    return this.#pacer.count(at);
  }

  /** The log has entries that no caller waits for. They are committed at the end of the turn. */
  commitSoon(log: { flush(): void }): void {
    if (this.#dirty.push(log) > 1) return;
    const flushed = this.clock.turn().then(() => {
      const dirty = this.#dirty;
      this.#dirty = [];
      // One that fails does not keep the others from being written.
      for (const each of dirty) inBackground(this.logger, () => each.flush());
    });
    inBackground(this.logger, flushed);
  }
}
