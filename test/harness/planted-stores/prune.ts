import { MemoryStore } from "cadenza";
import type { Retention, RunKey, RunQuery, RunWrite, SessionKey, Store, StoredRun, StoredSession } from "cadenza/store";
import { withMembers } from "../port-proxy.ts";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken, keepEverything } from "./broken-store.ts";

/** Faults in `prune`, and between instances. */
export const pruneFaults: readonly BrokenStore[] = [
  broken(
    "prune takes the run that was created first",
    "prune: ended runs beyond the number, the ones that ended first",
    class extends MemoryStore {
      readonly #order: RunKey[] = [];
      readonly #gone = new Set<string>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#order.push(key);
        return super.create(key, write, idempotencyKey);
      }
      override list(query: RunQuery): readonly StoredRun[] {
        return super.list(query).filter((run) => !this.#gone.has(run.key.run_id));
      }
      override prune({ maxRuns }: Retention): number {
        const before = this.#gone.size;
        const ended = this.#order.filter((key) => super.find(key)?.head.finished_at != null);
        for (const key of ended.slice(0, Math.max(ended.length - maxRuns, 0))) this.#gone.add(key.run_id);
        return this.#gone.size - before;
      }
    },
  ),
  broken(
    "prune leaves the session that a run has made for itself",
    "prune: the session that a run has made for itself, unless another run is in it",
    class extends MemoryStore {
      readonly #keys: SessionKey[] = [];
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#keys.push({ tenant: key.tenant, session_id: key.run_id });
        return super.create(key, write, idempotencyKey);
      }
      override prune(retention: Retention): number {
        const before = this.#keys.map((key) => super.session(key));
        const pruned = super.prune(retention);
        for (const [index, key] of this.#keys.entries()) {
          const kept = before[index];
          if (kept !== undefined) super.putSession(key, kept, 5);
        }
        return pruned;
      }
    },
  ),
  broken(
    "prune ignores the time",
    "prune: runs that ended before the time",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        return super.prune({ ...retention, endedBefore: Number.NEGATIVE_INFINITY });
      }
    },
  ),
  broken(
    "prune takes a run that ended at the time",
    "prune: runs that ended before the time",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        return super.prune({ ...retention, endedBefore: retention.endedBefore + 1 });
      }
    },
  ),
  broken(
    "prune removes a run only if both the number and the time exceed their limits",
    "prune: the number and the time apply independently",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const { maxRuns, endedBefore } = retention;
        const all = { ...keepEverything, sessionsBefore: retention.sessionsBefore };
        if (endedBefore === Number.NEGATIVE_INFINITY) return super.prune({ ...all, maxRuns });
        if (maxRuns === Number.POSITIVE_INFINITY || maxRuns === 0) return super.prune({ ...all, endedBefore });
        return 0;
      }
    },
  ),
  broken(
    "prune leaves the idempotency key",
    "prune: a deleted run does not exist any more, nor does its idempotency key",
    class extends MemoryStore {
      readonly #keys = new Map<string, StoredRun>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const used = idempotencyKey === null ? undefined : this.#keys.get(key.tenant + idempotencyKey);
        if (used !== undefined && this.find(used.key) === undefined)
          return { conflict: "key_used", run_id: used.key.run_id };
        const answer = super.create(key, write, idempotencyKey);
        const run = this.find(key);
        if (answer === undefined && run !== undefined && idempotencyKey !== null)
          this.#keys.set(key.tenant + idempotencyKey, run);
        return answer;
      }
    },
  ),
  broken(
    "prune takes live runs",
    "prune: never a run that has not ended",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const live = super
          .list({ tenant: "acme", limit: 1_000, offset: 0 })
          .filter(({ head }) => head.finished_at === null);
        if (retention.maxRuns === 0) {
          for (const { key, head, position } of live) {
            super.append(key, { epoch: head.epoch, position }, { entries: [], head: { ...head, finished_at: 0 } });
          }
        }
        return super.prune(retention);
      }
    },
  ),
  broken(
    "prune takes the sub-runs of live runs",
    "prune: never a sub-run whose durable parent has not ended",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const ended = super
          .list({ tenant: "acme", limit: 1_000, offset: 0 })
          .filter(({ head }) => (head.finished_at ?? retention.endedBefore) < retention.endedBefore);
        return super.delete(ended.map(({ key }) => key)) + super.prune(retention);
      }
    },
  ),
  broken(
    "prune stops after a hundred",
    "prune: a great many runs in one call",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const ended = super
          .list({ tenant: "acme", limit: 1_000, offset: 0 })
          .filter(({ head }) => head.finished_at !== null);
        return super.prune({ ...retention, maxRuns: Math.max(retention.maxRuns, ended.length - 100) });
      }
    },
  ),
  {
    fault: "prune deletes as many runs as were too many when it began",
    caughtBy: "prune: several calls at once keep as many runs as one",
    open(options) {
      const store = new MemoryStore(options);
      const count = () =>
        store.list({ tenant: "acme", limit: 1_000, offset: 0 }).filter(({ head }) => head.finished_at !== null).length;
      const prune = async (retention: Retention): Promise<number> => {
        const tooMany = Math.max(0, count() - retention.maxRuns);
        for (let n = 0; n < 9; n++) await null;
        const maxRuns = Number.isFinite(retention.maxRuns) ? Math.max(0, count() - tooMany) : retention.maxRuns;
        return store.prune({ ...retention, maxRuns });
      };
      return withMembers<Store>(store, { prune });
    },
  },
  broken(
    "prune looks at no tenant",
    "prune: ended runs of a tenant beyond its number, the ones that ended first",
    class extends MemoryStore {
      override prune({ perTenant: _, ...retention }: Retention): number {
        return super.prune(retention);
      }
    },
  ),
  broken(
    "prune looks at all tenants",
    "prune: ended runs of a tenant beyond its number, the ones that ended first",
    class extends MemoryStore {
      override prune({ perTenant, ...retention }: Retention): number {
        const tenants = ["acme", "other", ""];
        return super.prune({ ...retention, perTenant: perTenant && { ...perTenant, tenants } });
      }
    },
  ),
  broken(
    "prune counts the runs of all tenants together",
    "prune: ended runs of a tenant beyond its number, the ones that ended first",
    class extends MemoryStore {
      override prune({ perTenant, ...retention }: Retention): number {
        return super.prune({ ...retention, maxRuns: Math.min(retention.maxRuns, perTenant?.maxRuns ?? 1e9) });
      }
    },
  ),
  broken(
    "prune takes the sub-runs of live runs of a tenant",
    "prune: of a tenant never a sub-run whose durable parent has not ended",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const ended = super
          .list({ tenant: "acme", limit: 10_000, offset: 0 })
          .filter(({ head }) => head.finished_at !== null)
          .sort((one, other) => Number(one.head.finished_at) - Number(other.head.finished_at));
        const beyond = ended.slice(0, Math.max(0, ended.length - (retention.perTenant?.maxRuns ?? 1e9)));
        return super.delete(beyond.map(({ key }) => key)) + super.prune(retention);
      }
    },
  ),
  broken(
    "prune stops after a thousand runs of a tenant",
    "prune: a great many runs of a tenant in one call",
    class extends MemoryStore {
      override prune({ perTenant, ...retention }: Retention): number {
        const ended = super
          .list({ tenant: "acme", limit: 10_000, offset: 0 })
          .filter(({ head }) => head.finished_at !== null);
        const maxRuns = Math.max(perTenant?.maxRuns ?? 0, ended.length - 1_000);
        return super.prune({ ...retention, perTenant: perTenant && { ...perTenant, maxRuns } });
      }
    },
  ),
  broken(
    "prune keeps the sessions of a tenant",
    "prune: sessions of a tenant beyond its number, unless a live run uses them",
    class extends MemoryStore {
      override prune({ perTenant, ...retention }: Retention): number {
        const maxSessions = Number.POSITIVE_INFINITY;
        return super.prune({ ...retention, perTenant: perTenant && { ...perTenant, maxSessions } });
      }
    },
  ),
  broken(
    "prune takes sessions of all tenants",
    "prune: sessions of a tenant beyond its number, unless a live run uses them",
    class extends MemoryStore {
      override prune({ perTenant, ...retention }: Retention): number {
        const tenants = ["acme", "other"];
        return super.prune({ ...retention, perTenant: perTenant && { ...perTenant, tenants } });
      }
    },
  ),
  broken(
    "prune takes the session of a tenant that was made first",
    "prune: sessions of a tenant beyond its number, unless a live run uses them",
    class extends MemoryStore {
      readonly #made = new Map<string, SessionKey>();
      override putSession(key: SessionKey, session: StoredSession, at: number): void {
        if (!this.#made.has(JSON.stringify(key))) this.#made.set(JSON.stringify(key), key);
        super.putSession(key, session, at);
      }
      override prune({ perTenant, ...retention }: Retention): number {
        for (const tenant of perTenant?.tenants ?? []) {
          const keys = [...this.#made.values()].filter((key) => key.tenant === tenant && super.session(key));
          for (const key of keys.slice(0, Math.max(0, keys.length - (perTenant?.maxSessions ?? 0))))
            super.deleteSession(key);
        }
        return super.prune(retention);
      }
    },
  ),
  broken(
    "prune deletes leases",
    "prune: leases and counters stay",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        super.release("owner-1");
        return super.prune(retention);
      }
    },
  ),
  broken(
    "prune keeps sessions",
    "prune: sessions that were last changed before the time",
    class extends MemoryStore {
      override prune(retention: Retention): number {
        return super.prune({ ...retention, sessionsBefore: Number.NEGATIVE_INFINITY });
      }
    },
  ),
  broken(
    "prune ignores that a live run uses a session",
    "prune: never a session that a live run uses",
    class extends MemoryStore {
      readonly #gone = new Set<string>();
      override putSession(key: SessionKey, session: StoredSession, at: number): void {
        this.#gone.delete(JSON.stringify(key));
        this.#times.set(JSON.stringify(key), at);
        super.putSession(key, session, at);
      }
      readonly #times = new Map<string, number>();
      override session(key: SessionKey): StoredSession | undefined {
        return this.#gone.has(JSON.stringify(key)) ? undefined : super.session(key);
      }
      override prune(retention: Retention): number {
        for (const [key, at] of this.#times) if (at < retention.sessionsBefore) this.#gone.add(key);
        return super.prune(retention);
      }
    },
  ),
  {
    fault: "an instance caches its reads",
    caughtBy: "instances: each sees at once what the other has written",
    open(options) {
      const shared = new MemoryStore(options);
      const remembered = new Map<string, StoredRun>();
      const first = withMembers<Store>(shared, {
        find: (key) => {
          const id = JSON.stringify(key);
          const run = remembered.get(id) ?? shared.find(key);
          if (run !== undefined) remembered.set(id, run);
          return run;
        },
        append: (key, expected, write) => {
          remembered.delete(JSON.stringify(key));
          return shared.append(key, expected, write);
        },
      });
      return { first, second: shared };
    },
  },
  {
    fault: "two instances share nothing",
    caughtBy: "instances: each sees at once what the other has written",
    open: (options) => ({ first: new MemoryStore(options), second: new MemoryStore(options) }),
  },
  broken(
    "a store in memory claims to be persistent",
    "instances: a persistent store keeps its data when it is opened again",
    class extends MemoryStore {
      // @ts-expect-error The memory store is never persistent.
      override readonly persistent = true;
    },
  ),
];
