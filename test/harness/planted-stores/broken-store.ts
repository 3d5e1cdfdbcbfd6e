import type { Clock } from "cadenza";
import { MemoryStore } from "cadenza";
import type { Retention, RunHead, RunKey, RunWrite, Store, StoreConflict, StoredRun } from "cadenza/store";
import type { MemoryStoreOptions, OpenStoresOptions } from "../internals.ts";

/** A store with one fault that a custom store could have, and the check that has to find it. */
export interface BrokenStore {
  readonly fault: string;
  readonly caughtBy: string;
  open(options: OpenStoresOptions): Store | { readonly first: Store; readonly second: Store };
}

export type Conflict = StoreConflict | undefined;
/** The answer to an append. */
export type Written = Awaited<ReturnType<Store["append"]>>;

/** The refusal of an append. Undefined: it was written. */
export function refusal(answer: Written): Conflict {
  return answer?.conflict === undefined ? undefined : answer;
}

export function broken(
  fault: string,
  caughtBy: string,
  Faulty: new (options: MemoryStoreOptions) => Store,
): BrokenStore {
  return { fault, caughtBy, open: (options) => new Faulty(options) };
}

export const keepEverything: Retention = {
  maxRuns: Number.POSITIVE_INFINITY,
  endedBefore: Number.NEGATIVE_INFINITY,
  sessionsBefore: Number.NEGATIVE_INFINITY,
};

/** A memory store whose runs can be read and whose heads can be changed directly. */
export class OpenStore extends MemoryStore {
  readonly clock: Pick<Clock, "now">;

  constructor(options: MemoryStoreOptions) {
    super(options);
    this.clock = options.clock ?? { now: () => 0 };
  }

  /** All runs of all tenants that the checks use. */
  all(): readonly StoredRun[] {
    return ["acme", "other", "third"].flatMap((tenant) => super.list({ tenant, limit: 10_000, offset: 0 }));
  }

  /** Gives a run another head, if the run exists. */
  setHead(key: RunKey, change: (head: RunHead) => RunHead): StoredRun | undefined {
    const run = super.find(key);
    if (run === undefined) return undefined;
    const { head, position } = run;
    for (let wakes = 0; wakes < 10; wakes++) {
      const conflict = super.append(key, { epoch: head.epoch, position, wakes }, { entries: [], head: change(head) });
      if (conflict === undefined) break;
    }
    return super.find(key);
  }
}

/** A store that takes each run for a durable one. */
export class DurableOnly extends MemoryStore {
  override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
    const entries = write.entries.map((entry) =>
      entry.type === "created" ? { ...entry, durable: true as const } : entry,
    );
    return super.create(key, { ...write, entries }, idempotencyKey);
  }
}

/** A store that ignores it when its clock goes back. */
export class StubbornClockStore extends MemoryStore {
  constructor({ clock }: MemoryStoreOptions) {
    let last = Number.NEGATIVE_INFINITY;
    const now = (): number => {
      last = Math.max(last, clock?.now() ?? 0);
      return last;
    };
    super({ clock: { now } });
  }
}
