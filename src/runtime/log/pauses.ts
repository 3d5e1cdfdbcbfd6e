import { inBackground } from "../../core/background.ts";
import type { Pause } from "../../core/pauses.ts";
import { covers, pauseKey } from "../../core/pauses.ts";
import type { Logger, RunKey, Store } from "../../core/ports.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { StoreClock } from "./store-clock.ts";

/** How old the pauses that are known here may be where no scan of the store reads them, in milliseconds. */
const STALE_MS = 1_000;
/** How many runs that a pause has set aside come back at a time. */
const BACK_AT_ONCE = 1_000;

/** What a pause covers of a run besides its tenant. */
interface PausedAgent {
  readonly agent_name: string;
  readonly version?: string | null | undefined;
}

/** A run that waits in this process until it is resumed. */
interface HeldRun {
  readonly of: PausedAgent;
  readonly tenant: string;
  /** What to call then, in this order. */
  readonly goOn: (() => void)[];
}

/** The pauses of a store, as far as this process knows them, and the runs that wait here until they are resumed. */
export class Pauses {
  /** Called when the pauses have changed, with those before. */
  readonly onChange: ((before: readonly Pause[]) => void)[] = [];
  /** Whether a scan of the store reads the pauses. */
  isScanned = false;
  readonly #store: Pick<Store, "pauses" | "comeBack" | "persistent">;
  readonly #clock: StoreClock;
  readonly #logger: Logger;
  #known: readonly Pause[] = [];
  /** When they were read, by the monotonic clock. Undefined: never. */
  #readAt: number | undefined;
  #reading: Promise<void> | undefined;
  readonly #held = new Map<object, HeldRun>();
  /** Stops the timer of the next reading, where a run waits and no scan reads the pauses. */
  #clearTimer: (() => void) | undefined;

  constructor(store: Pick<Store, "pauses" | "comeBack" | "persistent">, clock: StoreClock, logger: Logger) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
    // A store that ends with its process has none at first.
    if (!store.persistent) this.#readAt = clock.monotonic();
  }

  get known(): readonly Pause[] {
    return this.#known;
  }

  /** Whether a pause, or one with `now`, covers the runs of an agent and a version, of one tenant, or else of every tenant. */
  cover(of: PausedAgent, tenant?: string, which?: "now"): boolean {
    return this.#known.length > 0 && this.#covers(of, tenant, which);
  }

  /** A function of its own: its closure takes memory at each call. */
  #covers({ agent_name, version = null }: PausedAgent, tenant: string | undefined, which: "now" | undefined): boolean {
    return this.#known.some(
      (pause) =>
        (which === undefined || pause.now === true) &&
        (tenant !== undefined || pause.tenant === undefined) &&
        covers(pause, agent_name, version, tenant ?? ""),
    );
  }

  /** Whether a pause of its tenant covers a run, so that it has to be set aside. */
  setAside({ agent_name, version = null }: PausedAgent, tenant: string): boolean {
    return this.#known.some((pause) => pause.tenant !== undefined && covers(pause, agent_name, version, tenant));
  }

  /** Resolves when the pauses were read for the first time. Rejects if the store fails. Undefined: they were. */
  ready(): undefined | Promise<void> {
    if (this.#readAt === undefined) return this.read();
    if (!this.isScanned && this.ageMs >= STALE_MS) this.read()?.catch(ignore);
    return undefined;
  }

  /** How long ago the pauses were read, in milliseconds. */
  get ageMs(): number {
    return this.#readAt === undefined ? Number.POSITIVE_INFINITY : this.#clock.monotonic() - this.#readAt;
  }

  /** Reads the pauses. Rejects if the store fails. Undefined: it has answered at once. */
  read(): undefined | Promise<void> {
    if (this.#reading !== undefined) return this.#reading;
    const pauses = this.#store.pauses();
    if (!isPromise(pauses)) {
      this.onRead(pauses);
      return undefined;
    }
    this.#reading = pauses
      .then((read) => this.onRead(read))
      .finally(() => {
        this.#reading = undefined;
      });
    return this.#reading;
  }

  /** The store has these pauses. */
  onRead(pauses: readonly Pause[]): void {
    this.#readAt = this.#clock.monotonic();
    const before = this.#known;
    if (before.length === pauses.length && before.every((pause, n) => isSame(pause, pauses[n]))) return;
    this.#known = pauses;
    for (const [run, { of, tenant }] of [...this.#held]) if (!this.cover(of, tenant)) this.letGo(run);
    for (const tell of this.onChange) tell(before);
  }

  /**
   * Makes runs due that pauses of their tenants have set aside and that no pause covers any more, until none is left or
   * `mayGoOn` returns false. Resolves with the number of these runs. Rejects if the store fails.
   */
  async comeBack(mayGoOn: () => boolean = () => true): Promise<number> {
    let back = 0;
    for (let more = 1; more > 0 && mayGoOn(); back += more) more = await this.#store.comeBack(BACK_AT_ONCE);
    return back;
  }

  /** Keeps a run, which a pause covers, and what it is to do when it is resumed. */
  hold(run: object, of: PausedAgent, { tenant }: RunKey, goOn?: () => void): void {
    let held = this.#held.get(run);
    if (held === undefined) {
      held = { of, tenant, goOn: [] };
      this.#held.set(run, held);
    }
    if (goOn !== undefined) held.goOn.push(goOn);
    if (!this.isScanned) this.#clearTimer ??= this.#readLater();
  }

  /** Whether a run is kept. */
  holds(run: object): boolean {
    return this.#held.size > 0 && this.#held.has(run);
  }

  /** A run waits no longer: it is resumed, or is being stopped. */
  letGo(run: object): void {
    if (!this.holds(run)) return;
    const { goOn } = this.#held.get(run) ?? { goOn: [] };
    this.forget(run);
    for (const go of goOn) inBackground(this.#logger, go);
  }

  /** A run has left this process. */
  forget(run: object): void {
    if (this.#held.size === 0 || !this.#held.delete(run) || this.#held.size > 0) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  #readLater(): () => void {
    return this.#clock.setTimeout(() => {
      this.#clearTimer = undefined;
      const read = async (): Promise<void> => {
        await this.read()?.catch(ignore);
        if (this.#held.size > 0 && !this.isScanned) this.#clearTimer ??= this.#readLater();
      };
      inBackground(this.#logger, read());
    }, STALE_MS);
  }
}

function isSame(one: Pause, other: Pause | undefined): boolean {
  return other !== undefined && one.at === other.at && one.now === other.now && pauseKey(one) === pauseKey(other);
}
