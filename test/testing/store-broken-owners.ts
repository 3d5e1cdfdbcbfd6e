import type { Expected, RunHead, RunKey, RunWrite, StoredRun } from "../../src/core/ports.ts";
import { MemoryStore } from "../../src/stores/memory.ts";
import type { BrokenStore, Conflict } from "./store-broken.ts";
import { broken } from "./store-broken.ts";

/** Faults in `claim`, `renew`, `release` and `due`. */
export const ownersFaults: readonly BrokenStore[] = [
  broken(
    "claim does not look at leases",
    "claim: a run whose owner lives is refused as `owned`, and nothing changes",
    class extends MemoryStore {
      override claim(key: RunKey, expected: Expected, head: RunHead): Conflict {
        return super.claim(key, expected, head, Number.POSITIVE_INFINITY);
      }
    },
  ),
  broken(
    "a lease lasts a moment too long",
    "claim: a run whose owner's lease has expired, or never was, is given",
    class extends MemoryStore {
      override claim(key: RunKey, expected: Expected, head: RunHead, now: number): Conflict {
        return super.claim(key, expected, head, now - 1);
      }
    },
  ),
  broken(
    "claim does not look at the epoch",
    "claim: of several at once, exactly one gets the run",
    class extends MemoryStore {
      override claim(key: RunKey, { position }: Expected, head: RunHead): Conflict {
        return super.claim(key, { position, epoch: this.find(key)?.head.epoch ?? 0 }, head, Number.POSITIVE_INFINITY);
      }
    },
  ),
  broken(
    "claim keeps the epoch",
    "claim: the owner before can write no more",
    class extends MemoryStore {
      override claim(key: RunKey, expected: Expected, head: RunHead, now: number): Conflict {
        return super.claim(key, expected, { ...head, epoch: expected.epoch }, now);
      }
    },
  ),
  broken(
    "renew only makes a lease that is not there",
    "renew: the lease lasts until the time that was given last",
    class extends MemoryStore {
      readonly #known = new Set<string>();
      override renew(owner: string, until: number): void {
        if (!this.#known.has(owner)) super.renew(owner, until);
        this.#known.add(owner);
      }
    },
  ),
  broken(
    "release is for later",
    "release: the lease has expired at once, and may be renewed",
    class extends MemoryStore {
      override release(): void {
        // The lease expires by itself.
      }
    },
  ),
  broken(
    "due leaves out runs whose owner is gone",
    "due: runs whose owner's lease has expired, also while they wait",
    class extends MemoryStore {
      override due(now: number, limit: number): readonly StoredRun[] {
        return super.due(now, limit).filter(({ head }) => head.owner === null || head.status === "awaiting");
      }
    },
  ),
  broken(
    "due leaves out runs without an owner",
    "due: runs that have no owner and do not wait",
    class extends MemoryStore {
      override due(now: number, limit: number): readonly StoredRun[] {
        return super.due(now, limit).filter(({ head }) => head.owner !== null || head.status === "awaiting");
      }
    },
  ),
  broken(
    "due is a moment late",
    "due: runs that wait, from their deadline on",
    class extends MemoryStore {
      override due(now: number, limit: number): readonly StoredRun[] {
        return super.due(now - 1, limit);
      }
    },
  ),
  broken(
    "due looks only at runs without an owner for deadlines",
    "due: runs that wait, from their deadline on",
    class extends MemoryStore {
      override due(now: number, limit: number): readonly StoredRun[] {
        return super.due(now, limit).filter(({ head }) => head.status !== "awaiting" || head.owner === null);
      }
    },
  ),
  broken(
    "due knows runs that have ended",
    "due: never a run that has ended",
    class extends MemoryStore {
      override due(now: number, limit: number): readonly StoredRun[] {
        const ended = this.list({ tenant: "acme", limit, offset: 0 }).filter(({ head }) => head.deadline !== null);
        return [...super.due(now, limit), ...ended.filter(({ head }) => head.finished_at !== null)];
      }
    },
  ),
  broken(
    "due gives what has been due longest first",
    "due: of all tenants, the oldest first, and no more than asked for",
    class extends MemoryStore {
      override due(now: number, limit: number): readonly StoredRun[] {
        const deadline = ({ head }: StoredRun) => head.deadline ?? now;
        return super
          .due(now, 1_000)
          .toSorted((a, b) => deadline(a) - deadline(b))
          .slice(0, limit);
      }
    },
  ),
  broken(
    "due does not know a limit",
    "due: of all tenants, the oldest first, and no more than asked for",
    class extends MemoryStore {
      override due(now: number): readonly StoredRun[] {
        return super.due(now, 1_000);
      }
    },
  ),
  broken(
    "due remembers the first deadline of a run",
    "due: follows what is written",
    class extends MemoryStore {
      readonly #deadlines = new Map<string, number>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        if (write.head.deadline !== null) this.#deadlines.set(key.run_id, write.head.deadline);
        return super.create(key, write, idempotencyKey);
      }
      override due(now: number, limit: number): readonly StoredRun[] {
        const waiting = this.list({ tenant: "acme", status: "awaiting", limit, offset: 0 });
        const due = waiting.filter((run) => (this.#deadlines.get(run.key.run_id) ?? now + 1) <= now);
        return due.length > 0 ? due : super.due(now, limit);
      }
    },
  ),
];
