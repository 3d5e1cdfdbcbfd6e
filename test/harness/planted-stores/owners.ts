import { MemoryStore } from "cadenza";
import type { Expected, RunHead, RunKey, Store } from "cadenza/store";
import { NOW } from "../../../src/stores/contract/check.ts";
import { withMembers } from "../port-proxy.ts";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken, OpenStore, StubbornClockStore } from "./broken-store.ts";

/** Faults in `claim`, `renew` and `release`. */
export const ownersFaults: readonly BrokenStore[] = [
  broken(
    "time is in seconds",
    "time: that of the clock of the store, if it tells any",
    class extends MemoryStore {
      time(): number {
        return NOW / 1_000;
      }
    },
  ),
  {
    fault: "a renewal tells when the lease ends",
    caughtBy: "time: that of the clock of the store, if it tells any",
    open(options) {
      const store = new MemoryStore(options);
      const renew = (owner: string, forMs: number): number => {
        store.renew(owner, forMs);
        return NOW + forMs;
      };
      return withMembers<Store>(store, { renew });
    },
  },
  broken(
    "claim ignores leases",
    "claim: a run whose owner lives is refused as `owned`, and nothing changes",
    class extends MemoryStore {
      override claim(key: RunKey, expected: Expected, head: RunHead): Conflict {
        super.release(this.find(key)?.head.owner ?? "");
        return super.claim(key, expected, head);
      }
    },
  ),
  broken(
    "a lease lasts a moment too long",
    "claim: a run whose owner's lease has expired or never existed is given",
    class extends MemoryStore {
      override renew(owner: string, forMs: number): void {
        super.renew(owner, forMs + 1);
      }
    },
  ),
  broken(
    "claim ignores the epoch",
    "claim: of several concurrent callers, exactly one gets the run",
    class extends MemoryStore {
      override claim(key: RunKey, { position }: Expected, head: RunHead): Conflict {
        const before = this.find(key)?.head;
        super.release(before?.owner ?? "");
        return super.claim(key, { position, epoch: before?.epoch ?? 0 }, head);
      }
    },
  ),
  broken(
    "claim keeps the epoch",
    "claim: the former owner can no longer write",
    class extends MemoryStore {
      override claim(key: RunKey, expected: Expected, head: RunHead): Conflict {
        return super.claim(key, expected, { ...head, epoch: expected.epoch });
      }
    },
  ),
  broken(
    "claim brings back a run that has ended",
    "claim: a run that has ended is refused as `ended`, and nothing changes",
    class extends OpenStore {
      override claim(key: RunKey, expected: Expected, head: RunHead): Conflict {
        const answer = super.claim(key, expected, head);
        if (answer?.conflict !== "ended") return answer;
        this.setHead(key, () => head);
        return undefined;
      }
    },
  ),
  broken(
    "renew only makes a lease that is not there",
    "renew: the lease lasts as long as last requested, from then on",
    class extends MemoryStore {
      readonly #known = new Set<string>();
      override renew(owner: string, forMs: number): void {
        if (!this.#known.has(owner)) super.renew(owner, forMs);
        this.#known.add(owner);
      }
    },
  ),
  broken(
    "renew does not make a lease shorter",
    "renew: the lease lasts as long as last requested, from then on",
    class extends OpenStore {
      readonly #ends = new Map<string, number>();
      override renew(owner: string, forMs: number): void {
        const end = Math.max(this.#ends.get(owner) ?? 0, this.clock.now() + forMs);
        this.#ends.set(owner, end);
        super.renew(owner, end - this.clock.now());
      }
    },
  ),
  broken(
    "a lease is as long as the clock makes it, also when the clock was set back",
    "renew: once another process meets a lease, it lasts no longer than requested, also if the clock was set back",
    StubbornClockStore,
  ),
  broken(
    "release takes effect later",
    "release: the lease has expired at once, and may be renewed",
    class extends MemoryStore {
      override release(): void {
        // The lease expires by itself.
      }
    },
  ),
];
