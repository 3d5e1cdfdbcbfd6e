import { ignore } from "../../core/promises.ts";
import { clock } from "./connection.ts";

/** How far behind the newest place `take` begins: at most calls, once a second, and every 30 seconds, in milliseconds. */
const NARROW_MS = 500;
const WIDE_MS = 10_000;
const WIDE_EVERY_MS = 1_000;
const SWEEP_MS = 600_000;
const SWEEP_EVERY_MS = 30_000;

/** Where a call begins to look, and what it tells about where it has come. Null: it has not looked there. */
export interface DuePlace {
  readonly from: number | null;
  /** Whether the call looks for what other calls may have missed. */
  readonly sweeps: boolean;
  onSeen(seen: number | null): void;
}

interface Known {
  readonly seen: number;
  /** When a wide call has begun, and one that swept. */
  readonly widenedAt: number;
  readonly sweptAt: number;
}

/** The beginning. A clock that a test moves may leap over any distance while a write is under way. */
export const FRONT: DuePlace = { from: null, sweeps: true, onSeen: ignore };

/**
 * Where `take` begins among the due runs of each agent, for each priority that it has met. A place is a time, less something
 * for the priority. What an old transaction keeps of the runs that
 * were there before is not walked by each call. A write that took long to commit may have a place behind the newest one:
 * so some calls begin earlier, and the first begins at the front.
 */
export class DuePlaces {
  readonly #known = new Map<string, Map<number, Known>>();

  of(name: string, priority = 0): DuePlace {
    const now = clock.monotonic();
    const known = this.#known.get(name)?.get(priority);
    const sweeps = known === undefined || now - known.sweptAt >= SWEEP_EVERY_MS;
    const widens = sweeps || now - known.widenedAt >= WIDE_EVERY_MS;
    const behind = sweeps ? SWEEP_MS : widens ? WIDE_MS : NARROW_MS;
    const from = known === undefined ? Number.NEGATIVE_INFINITY : known.seen - behind;
    return {
      from: Number.isFinite(from) ? from : null,
      sweeps,
      onSeen: (seen) => {
        if (seen === null) return;
        const widenedAt = widens ? now : known.widenedAt;
        const ofName = this.#known.get(name) ?? new Map<number, Known>();
        // What lies before the place where the call began was not looked at.
        ofName.set(priority, { seen: Math.max(seen, from), widenedAt, sweptAt: sweeps ? now : known.sweptAt });
        this.#known.set(name, ofName);
      },
    };
  }

  /** The same for each priority other than 0 that is known. */
  bandsOf(name: string): ReadonlyMap<number, DuePlace> {
    const priorities = [...(this.#known.get(name)?.keys() ?? [])].filter((priority) => priority !== 0);
    return new Map(priorities.map((priority) => [priority, this.of(name, priority)]));
  }
}
