import { endOf, onceAborted } from "../../core/background.ts";
import type { Logger, StepUse } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { Rate } from "../../core/slots.ts";
import { waitFor } from "../../core/time.ts";
import type { StoreClock } from "./store-clock.ts";

/** How many grants are asked for at once, at most. */
const MAX_GRANTS = 100;
/**
 * How long after its grant a body may begin, as a share of the time of the rate, and at most, in milliseconds. Grants are
 * counted for as much longer: so no more bodies begin in any time of the rate than it says.
 */
const LATE = 0.05;
const MAX_LATE_MS = 50;
/** How often an attempt that is later than that is granted again. After that it begins late. */
const MAX_LATE = 3;
/** How long before its grant an attempt writes that it begins, in milliseconds. */
const LEAD_MS = 250;

/** A limit on the attempts at steps that name it. It has `max`, `rate` or both. */
export interface StepLimit {
  /** How many of them may be at work at a time, over all processes of the store. Default: any number. */
  readonly max?: number | undefined;
  /** At most `count`, up to 100,000, may begin in any `perMs` milliseconds. Default: at any time. */
  readonly rate?: Rate | undefined;
}

/**
 * What counts the steps: this process, or the store for all processes. See `grantSteps` and `permitSteps` of `Store`. It
 * fails only when the runtime has been closed.
 */
export interface StepCounter {
  grant(name: string, rate: Rate, wanted: number): MaybePromise<readonly number[]>;
  permit(name: string, max: number, use: StepUse): MaybePromise<number>;
}

/** An attempt that has got what its limit gives. */
export interface Entered {
  /** Resolves when its body is to begin: at once, or soon. */
  begin(): Promise<void>;
  /** Gives back what the attempt has. */
  readonly leave: () => void;
}

/** The limits that the runtime declares, and the attempts at steps of this process that wait for them. */
export class StepLimits {
  readonly #lines: ReadonlyMap<string, StepLine>;
  readonly #shared: Shared;

  constructor(limits: Readonly<Record<string, StepLimit>>, counter: StepCounter, clock: StoreClock, logger: Logger) {
    const shared = { counter, clock, logger, isOver: false };
    this.#shared = shared;
    this.#lines = new Map(Object.entries(limits).map(([name, limit]) => [name, new StepLine(name, limit, shared)]));
  }

  get names(): readonly string[] {
    return [...this.#lines.keys()];
  }

  /** Another counter counts from now on. No step has begun. */
  countBy(counter: StepCounter): void {
    this.#shared.counter = counter;
  }

  /**
   * Waits until an attempt may begin. Rejects when the signal aborts, which has not aborted yet. Undefined: the attempt is not
   * to begin in this process, which closes. `mayLeave` says whether another process may begin it.
   */
  enter(name: string, signal: AbortSignal | undefined, mayLeave: () => boolean): Promise<Entered | undefined> {
    const line = this.#lines.get(name);
    if (line === undefined) throw new RangeError(`There is no limit ${name}.`);
    return line.enter(signal, mayLeave);
  }

  /** Permits may have been given to this process, which waits for them. `what is held`: or taken from it. */
  look(how?: "what is held"): void {
    for (const line of this.#lines.values()) line.look(how);
  }

  /** What another process may begin is not begun here any more. */
  handOn(): void {
    for (const line of this.#lines.values()) line.handOn();
  }

  /** Gives all permits back. Resolves when that is counted, or has failed. */
  async end(): Promise<void> {
    this.#shared.isOver = true;
    await Promise.all([...this.#lines.values()].map((line) => line.end()));
  }
}

interface Shared {
  counter: StepCounter;
  readonly clock: StoreClock;
  readonly logger: Logger;
  isOver: boolean;
}

/** An attempt that waits. */
interface Waiting {
  /** It begins here, with a grant under the rate, if there is one, or not at all in this process. */
  readonly end: (how: Grant | undefined | "leaves") => void;
  readonly mayLeave: () => boolean;
}

/** From when to when a body may begin with a grant, by the monotonic clock. */
interface Grant {
  readonly from: number;
  readonly to: number;
}

/**
 * The attempts of this process that wait for one limit, in order. What waits here is one number to the counter, which is
 * asked once for all: for permits when the number grows or a permit was given back, and for a grant when the first attempt
 * has its permit.
 */
class StepLine {
  readonly #name: string;
  readonly #limit: StepLimit;
  readonly #shared: Shared;
  readonly #waiting = new Set<Waiting>();
  /** How many permits this process has used, given back and got, in all. */
  #used = 0;
  #over = 0;
  #given = 0;
  #turn = 0;
  /** What the counter knows. Undefined: it is to be told again, because permits may have been given or taken meanwhile. */
  #told: Pick<StepUse, "over" | "wanted"> | undefined = { over: 0, wanted: 0 };
  #telling: Promise<void> | undefined;
  #granting: Promise<void> | undefined;

  constructor(name: string, limit: StepLimit, shared: Shared) {
    this.#name = name;
    this.#limit = limit;
    this.#shared = shared;
  }

  enter(signal: AbortSignal | undefined, mayLeave: () => boolean): Promise<Entered | undefined> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(waiting);
        unfollow?.();
      };
      const waiting: Waiting = {
        mayLeave,
        end: (how) => {
          leave();
          resolve(how === "leaves" ? undefined : { begin: () => this.#untilGranted(how), leave: this.#leaveOnce() });
        },
      };
      const stop = (): void => {
        leave();
        reject(signal?.reason);
        this.#goOn();
      };
      const unfollow = signal && onceAborted(this.#shared.logger, signal, stop);
      this.#waiting.add(waiting);
      this.#goOn();
    });
  }

  look(how?: "what is held"): void {
    if (this.#given >= this.#wanted && (how === undefined || this.#given === this.#over)) return;
    this.#told = undefined;
    this.#tell();
  }

  handOn(): void {
    for (const waiting of [...this.#waiting]) if (waiting.mayLeave()) waiting.end("leaves");
    this.#goOn();
  }

  /** Steps that are still at work are left to themselves: their runs have ended, or another process begins them again. */
  async end(): Promise<void> {
    this.#used = Math.max(this.#used, this.#given);
    this.#over = this.#used;
    this.#tell();
    await this.#telling;
  }

  get #wanted(): number {
    return this.#shared.isOver ? this.#used : this.#used + this.#waiting.size;
  }

  /** How many attempts have a permit, and may begin. */
  get #ready(): number {
    const { max } = this.#limit;
    const free = max === undefined ? Number.POSITIVE_INFINITY : this.#given - this.#used;
    return this.#shared.isOver ? 0 : Math.min(this.#waiting.size, free);
  }

  #leaveOnce(): Entered["leave"] {
    let isIn = true;
    return () => {
      if (!isIn || this.#shared.isOver) return;
      isIn = false;
      this.#over += 1;
      this.#goOn();
    };
  }

  #goOn(): void {
    if (this.#limit.rate === undefined) while (this.#ready > 0) this.#begin(undefined);
    else if (this.#ready > 0) this.#granting ??= endOf(this.#shared.logger, this.#beginGranted(this.#limit.rate));
    // Attempts that have left need no permits.
    const spare = Math.max(0, this.#given - this.#wanted);
    this.#used += spare;
    this.#over += spare;
    this.#tell();
  }

  /** The first attempt begins with this grant. */
  #begin(grant: Grant | undefined): void {
    const [first] = this.#waiting;
    if (first === undefined || this.#ready <= 0) return;
    this.#used += 1;
    first.end(grant);
  }

  /** Attempts are granted in order. A grant that lies in the future is for the one that is first shortly before. */
  async #beginGranted(rate: Rate): Promise<void> {
    while (this.#ready > 0) {
      for (const grant of await this.#grants(rate, Math.min(this.#ready, MAX_GRANTS))) {
        await sleepUntil(this.#shared.clock, grant.from - LEAD_MS);
        this.#begin(grant);
      }
    }
    this.#granting = undefined;
  }

  /** The counter has read its clock at some time between the call and the answer. */
  async #grants({ count, perMs }: Rate, wanted: number): Promise<readonly Grant[]> {
    const { counter, clock } = this.#shared;
    const lateMs = Math.min(LATE * perMs, MAX_LATE_MS);
    const askedAt = clock.monotonic();
    const waits = await counter.grant(this.#name, { count, perMs: perMs + lateMs }, wanted);
    const from = clock.monotonic();
    return waits.map((waitMs) => ({ from: from + waitMs, to: askedAt + waitMs + lateMs }));
  }

  /** Waits for the time of a grant. An attempt that is too late for it is granted again. */
  async #untilGranted(first: Grant | undefined): Promise<void> {
    const { clock } = this.#shared;
    const { rate } = this.#limit;
    let grant = first;
    for (let late = 0; rate !== undefined && grant !== undefined; late++) {
      await sleepUntil(clock, grant.from);
      if (late === MAX_LATE || clock.monotonic() <= grant.to) return;
      [grant] = await this.#grants(rate, 1);
    }
  }

  #tell(): void {
    if (this.#limit.max === undefined || this.#telling !== undefined || !this.#isUntold) return;
    this.#telling = endOf(this.#shared.logger, this.#tellAll());
  }

  get #isUntold(): boolean {
    return this.#told?.over !== this.#over || this.#told.wanted !== this.#wanted;
  }

  async #tellAll(): Promise<void> {
    const { max = 0 } = this.#limit;
    while (this.#isUntold) {
      const told = { over: this.#over, wanted: this.#wanted };
      this.#told = told;
      const use = { turn: ++this.#turn, used: this.#used, ...told };
      this.#given = await this.#shared.counter.permit(this.#name, max, use);
      this.#goOn();
    }
    this.#telling = undefined;
  }
}

/** Resolves at a time of the monotonic clock. Timers may fire a little early. */
async function sleepUntil(clock: StoreClock, at: number): Promise<void> {
  for (let left = at - clock.monotonic(); left > 0; left = at - clock.monotonic()) await waitFor(clock, left);
}
