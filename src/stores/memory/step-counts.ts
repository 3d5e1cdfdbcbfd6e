import type { Clock, StepUse } from "../../core/ports.ts";
import type { Rate } from "../../core/slots.ts";
import type { StepPermits } from "../step-permits.ts";
import { permitsAfter } from "../step-permits.ts";

/** The last grants under a key. */
interface Grants {
  /** Their times, in order. */
  times: number[];
  /** The highest count that was asked for: so many are kept. */
  kept: number;
  /** Whether there were more. */
  isCut: boolean;
  /** When a grant was asked for last. */
  askedAt: number;
}

/** Counts steps under limits, in the memory of the process: see `grantSteps` and `permitSteps` of `Store`. */
export class StepCounts {
  readonly #clock: Pick<Clock, "now">;
  readonly #isAlive: (owner: string) => boolean;
  readonly #grants = new Map<string, Grants>();
  readonly #permits = new Map<string, readonly StepPermits[]>();

  /** `isAlive`: whether the lease of an owner lasts. */
  constructor(clock: Pick<Clock, "now">, isAlive: (owner: string) => boolean) {
    this.#clock = clock;
    this.#isAlive = isAlive;
  }

  grant(key: string, { count, perMs }: Rate, wanted: number): readonly number[] {
    const now = this.#clock.now();
    const grants = this.#grants.get(key) ?? { times: [], kept: 0, isCut: false, askedAt: now };
    this.#grants.set(key, grants);
    const backMs = Math.max(0, grants.askedAt - now);
    if (backMs > 0) grants.times = grants.times.map((at) => at - backMs);
    grants.askedAt = now;
    grants.kept = Math.max(grants.kept, count);
    const waits: number[] = [];
    while (waits.length < wanted) {
      const at = Math.max(now, grants.times.at(-1) ?? now, perMs + boundOf(grants, count));
      if (at > now && waits.length > 0) break;
      grants.times.push(at);
      if (grants.times.length > grants.kept) {
        grants.times.shift();
        grants.isCut = true;
      }
      waits.push(at - now);
      if (at > now) break;
    }
    return waits;
  }

  permit(owner: string, key: string, max: number, use: StepUse): number {
    const known = this.#permits.get(key) ?? [];
    const living = known.filter((one) => one.owner === owner || this.#isAlive(one.owner));
    const after = permitsAfter(living, owner, max, use);
    this.#permits.set(key, after);
    return after.find((one) => one.owner === owner)?.given ?? 0;
  }
}

/** When the grant was that the next one has to follow by `perMs`. After a count was raised it may be a later one, which is kept. */
function boundOf({ times, isCut }: Grants, count: number): number {
  return times.at(-count) ?? (isCut ? times[0] : undefined) ?? Number.NEGATIVE_INFINITY;
}
