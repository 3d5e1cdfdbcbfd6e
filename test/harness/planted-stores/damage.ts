import type { Entry, FoundRun, RunKey, RunQuery, StoredRun, TakeRequest } from "cadenza/store";
import type { MemoryStoreOptions } from "../internals.ts";
import type { BrokenStore } from "./broken-store.ts";
import { DamageableStore, damageable } from "./damageable-store.ts";

const told = "damage: a run whose first entry cannot be read is returned as damaged, and the others as usual";
const taken = "damage: take returns a damaged run as such, and it can be postponed and ended";
const read = "damage: an entry that cannot be read fails the reads that include it, and no others";

/** Faults in what a store does about damage. */
export const damageFaults: readonly BrokenStore[] = [
  brittle(
    "a damaged run fails the list that it is in",
    told,
    class extends DamageableStore {
      override list(query: RunQuery): readonly FoundRun[] {
        return super.list(query).map(orFail);
      }
    },
  ),
  brittle(
    "a damaged run is left out of lists",
    told,
    class extends DamageableStore {
      override list(query: RunQuery): readonly FoundRun[] {
        return super.list(query).filter(({ created }) => created !== null);
      }
    },
  ),
  brittle(
    "a damaged run is missing",
    told,
    class extends DamageableStore {
      override find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
        try {
          return super.find(key, how);
        } catch {
          return undefined;
        }
      }
    },
  ),
  brittle(
    "a damaged run that is due fails each take",
    taken,
    class extends DamageableStore {
      override take(request: TakeRequest): readonly FoundRun[] {
        return super.take(request).map(orFail);
      }
    },
  ),
  brittle(
    "a damaged run is taken, and not returned",
    taken,
    class extends DamageableStore {
      override take(request: TakeRequest): readonly FoundRun[] {
        return super.take(request).filter(({ created }) => created !== null);
      }
    },
  ),
  brittle(
    "a damaged entry ends the log",
    read,
    class extends DamageableStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        try {
          return super.read(key, from, limit);
        } catch {
          return [];
        }
      }
    },
  ),
  brittle(
    "a damaged entry fails every read of its run",
    read,
    class extends DamageableStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        super.read(key, 0, 1_000);
        return super.read(key, from, limit);
      }
    },
  ),
];

function brittle(
  fault: string,
  caughtBy: string,
  Faulty: new (options: MemoryStoreOptions) => DamageableStore,
): BrokenStore {
  return { fault, caughtBy, open: (options) => damageable(new Faulty(options)) };
}

function orFail(run: FoundRun): FoundRun {
  if (run.created === null) throw run.error;
  return run;
}
