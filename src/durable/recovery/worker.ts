import { aboutRun } from "../../core/about-run.ts";
import { warningOnce } from "../../core/background.ts";
import type { Logger, RunHead, RunKey, Store } from "../../core/ports.ts";
import { readLogsOf } from "../../runtime/log/fold-log.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import type { StoreClock } from "../../runtime/log/store-clock.ts";
import type { LiveRuns } from "../../runtime/runs/live-run.ts";
import { Follower } from "./follower.ts";
import type { DurabilitySettings } from "./options.ts";

/** How long a replayed agent may take for the next operation in its history, in milliseconds. */
const STALL_MS = 5_000;
/** With `alwaysReplay`: test runners give up after five seconds, and their message says nothing. */
const TEST_STALL_MS = 2_000;

/** What a process learns about runs that may need work. */
export interface Notices {
  /** A run that is not loaded here may need work. */
  onWake(key: RunKey): void;
  /** A run has no owner any more, with this head. It has ended, or may be due at a time. */
  onReleased(key: RunKey, head: RunHead): void;
  /** A run has given its slot back, which another one may wait for. */
  onSlotFree(): void;
  /** Another run may be taken, if there is one: a run has ended, waits or has left, or a hint says so. */
  onRoom(): void;
}

/** This process as one that executes runs of a durable store: what all parts of the durable room share. */
export class Worker {
  /** The loaded runs. */
  readonly runs: LiveRuns;
  readonly store: Store;
  readonly clock: StoreClock;
  readonly logger: Logger;
  readonly settings: DurabilitySettings;
  /** Polls the store for runs that other processes may write to. */
  readonly follower: Follower;
  readonly onWake: Notices["onWake"];
  readonly onReleased: Notices["onReleased"];
  readonly onSlotFree: Notices["onSlotFree"];
  readonly onRoom: Notices["onRoom"];
  /** A plain run waits for an answer in a store that outlives it. The logger gets one warning. */
  readonly onPlainQuestion: (log: RunLog) => void;
  /** Called when the runtime and its store are closed, by those who wait for other processes. */
  readonly onOver = new Set<() => void>();
  /** Whether the runtime and its store are closed. */
  isOver = false;
  /** The names of the other workers that live, as far as this one needs them. */
  others: readonly string[] = [];
  /** How many values replayed agents emitted that their history does not hold. */
  differences = 0;
  #name: string | undefined;

  constructor(runs: LiveRuns, settings: DurabilitySettings, notices: Notices) {
    const { store, clock, logger } = runs.shared;
    this.runs = runs;
    this.store = store;
    this.clock = clock;
    this.logger = logger;
    this.settings = settings;
    if (settings.alwaysReplay) readLogsOf(store, { snapshotsFrom: 0 });
    this.follower = new Follower(store, clock, logger);
    this.onWake = notices.onWake;
    this.onReleased = notices.onReleased;
    this.onSlotFree = notices.onSlotFree;
    this.onRoom = notices.onRoom;
    this.onPlainQuestion = warningOnce(
      logger,
      "An agent that is not durable waits for an answer. Its runs end with this process, although the store keeps them: they fail as interrupted. Make it durable, with { durable: true }.",
      aboutRun,
    );
  }

  /** The name under which this process owns runs. Made when it is first needed: Workers refuse random numbers while modules load. */
  get name(): string {
    this.#name ??= this.runs.ids.token();
    return this.#name;
  }

  /** How long a waiting durable run stays loaded before it is evicted, in milliseconds. */
  get evictAfterMs(): number {
    return this.store.persistent ? this.settings.evictAfterMs : Number.POSITIVE_INFINITY;
  }

  /** How long a replayed agent may take for the next operation in its history, in milliseconds. */
  get stallMs(): number {
    return this.settings.alwaysReplay ? TEST_STALL_MS : STALL_MS;
  }

  /** Whether the runtime has been closed: no run begins, is loaded or is answered any more. */
  get isClosed(): boolean {
    return this.runs.shared.isClosed;
  }

  end(): void {
    this.isOver = true;
    for (const tell of [...this.onOver]) tell();
  }
}
