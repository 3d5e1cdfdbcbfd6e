import { MemoryStore } from "cadenza";
import type { RunKey, RunWrite, SessionKey, StoredRun, StoredSession } from "cadenza/store";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken, keepEverything, OpenStore } from "./broken-store.ts";

const gone = "delete: a deleted run does not exist any more, nor does its idempotency key";
const others = "delete: no other run, session or counter";
const alive = "delete: never a run that has not ended, and no run that does not exist";
const session = "deleteSession: its history and its state, and no other session";
const used = "deleteSession: never a session that a live run uses";

/** Faults in `delete` and `deleteSession`. */
export const deleteFaults: readonly BrokenStore[] = [
  broken(
    "delete leaves the idempotency key",
    gone,
    class extends MemoryStore {
      readonly #keys = new Map<string, RunKey>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const before = idempotencyKey === null ? undefined : this.#keys.get(idempotencyKey);
        if (before !== undefined && before.run_id === key.run_id)
          return { conflict: "key_used", run_id: before.run_id };
        if (idempotencyKey !== null) this.#keys.set(idempotencyKey, key);
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "delete leaves the runs readable",
    gone,
    class extends MemoryStore {
      readonly #deleted = new Map<string, StoredRun>();
      override delete(runs: readonly RunKey[]): number {
        for (const key of runs) {
          const run = super.find(key);
          if (run !== undefined && run.head.finished_at !== null) this.#deleted.set(key.run_id, run);
        }
        return super.delete(runs);
      }
      override find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
        return super.find(key, how) ?? this.#deleted.get(key.run_id);
      }
    },
  ),
  broken(
    "delete leaves the session that a run has made for itself",
    "delete: the session that a run has made for itself, unless another run is in it",
    class extends MemoryStore {
      override delete(runs: readonly RunKey[]): number {
        const sessions = runs.map(({ tenant, run_id }) => ({ tenant, session_id: run_id }));
        const before = sessions.map((key) => super.session(key));
        const deleted = super.delete(runs);
        for (const [index, key] of sessions.entries()) {
          const kept = before[index];
          if (kept !== undefined) super.putSession(key, kept, 5);
        }
        return deleted;
      }
    },
  ),
  broken(
    "delete takes the sub-runs with it",
    others,
    class extends MemoryStore {
      override delete(runs: readonly RunKey[]): number {
        const below = runs.flatMap(({ tenant, run_id }) =>
          super.list({ tenant, parents: [run_id], limit: 99, offset: 0 }).map(({ key }) => key),
        );
        super.delete(below);
        return super.delete(runs);
      }
    },
  ),
  broken(
    "delete takes every run that has ended",
    others,
    class extends MemoryStore {
      override delete(runs: readonly RunKey[]): number {
        const deleted = super.delete(runs);
        super.prune({ ...keepEverything, maxRuns: 0 });
        return deleted;
      }
    },
  ),
  broken(
    "delete takes runs that have not ended",
    alive,
    class extends OpenStore {
      override delete(runs: readonly RunKey[]): number {
        for (const key of runs) this.setHead(key, (head) => ({ ...head, owner: null, finished_at: 1 }));
        return super.delete(runs);
      }
    },
  ),
  broken(
    "delete takes the runs of all tenants",
    alive,
    class extends MemoryStore {
      override delete(runs: readonly RunKey[]): number {
        super.delete(runs.map(({ run_id }) => ({ tenant: "other", run_id })));
        return super.delete(runs);
      }
    },
  ),
  broken(
    "delete stops after a hundred runs",
    "delete: a great many runs in one call",
    class extends MemoryStore {
      override delete(runs: readonly RunKey[]): number {
        return super.delete(runs.slice(0, 100));
      }
    },
  ),
  broken(
    "deleteSession leaves the history",
    session,
    class extends MemoryStore {
      readonly #histories = new Map<string, StoredSession["history"]>();
      override deleteSession(key: SessionKey): boolean {
        const found = super.session(key);
        if (found !== undefined) this.#histories.set(key.session_id, found.history);
        return super.deleteSession(key);
      }
      override session(key: SessionKey): StoredSession | undefined {
        const found = super.session(key);
        return found && { ...found, history: [...(this.#histories.get(key.session_id) ?? []), ...found.history] };
      }
    },
  ),
  broken(
    "deleteSession says that a missing session is still there",
    session,
    class extends MemoryStore {
      override deleteSession(key: SessionKey): boolean {
        return super.session(key) !== undefined && super.deleteSession(key);
      }
    },
  ),
  broken(
    "deleteSession takes the runs with it",
    session,
    class extends MemoryStore {
      override deleteSession(key: SessionKey): boolean {
        const runs = super.list({ ...key, limit: 99, offset: 0 });
        super.delete(runs.map((run) => run.key));
        return super.deleteSession(key);
      }
    },
  ),
  broken(
    "deleteSession takes a session that a live run uses",
    used,
    class extends MemoryStore {
      readonly #deleted = new Set<string>();
      override deleteSession(key: SessionKey): boolean {
        this.#deleted.add(key.session_id);
        return true;
      }
      override session(key: SessionKey): StoredSession | undefined {
        return this.#deleted.has(key.session_id) ? undefined : super.session(key);
      }
    },
  ),
];
