import { setImmediate as inNextTurn } from "node:timers/promises";
import { MemoryStore } from "cadenza";
import type {
  Backlog,
  BlockedQuery,
  RunKey,
  RunPosition,
  SessionKey,
  StoredRun,
  StoredSession,
  StoreHint,
} from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken, OpenStore } from "./broken-store.ts";
import { HintingStore } from "./hinting-store.ts";

const moved = "moved: those with more entries or another epoch, as they are now";
const gone = "moved: a missing run has position and epoch 0, and a run that has lost entries has moved";
const owned = "owned: the runs of an owner that have not ended, of all tenants, those created first";
const blocked = "blocked: runs without an owner that are blocked, of all tenants, those created first";
const backlog = "backlog: the runs without a living owner, by agent and version";
const made = "sessions: makeSession makes the session, unless it exists, and answers whether it did";

/** Faults in `moved`, `owned`, `blocked`, `backlog`, `watch` and `makeSession`. */
export const workFaults: readonly BrokenStore[] = [
  withMoved("moved compares the length only", moved, (known, answer) =>
    answer.filter((run) => known.every(({ key, position }) => key !== run.key || position !== run.position)),
  ),
  withMoved("moved compares the epoch only", moved, (known, answer) =>
    answer.filter((run) => known.every(({ key, epoch }) => key !== run.key || epoch !== run.epoch)),
  ),
  withMoved("moved returns the known positions", moved, (known, answer) =>
    known.filter((run) => answer.some(({ key }) => key === run.key)),
  ),
  withMoved("moved leaves out what is not there", gone, (_known, answer) =>
    answer.filter(({ position }) => position > 0),
  ),
  withMoved("moved ignores that a log is shorter", gone, (known, answer) =>
    answer.filter(
      (run) => run.position === 0 || known.every(({ key, position }) => key !== run.key || position < run.position),
    ),
  ),
  withMoved("moved compares the first hundred only", "moved: of a great many runs at once", (known, answer) =>
    answer.filter((run) => known.slice(0, 100).some(({ key }) => key === run.key)),
  ),
  withOwned("owned knows one tenant", (keys) => keys.filter(({ tenant }) => tenant === "acme")),
  withOwned("owned gives runs in the order of their ids", (keys) =>
    keys.toSorted((a, b) => (a.run_id < b.run_id ? -1 : 1)),
  ),
  broken(
    "owned ignores the limit",
    owned,
    class extends MemoryStore {
      override owned(owner: string): readonly RunKey[] {
        return super.owned(owner, 1_000);
      }
    },
  ),
  broken(
    "owned depends on leases",
    owned,
    class extends OpenStore {
      readonly #ends = new Map<string, number>();
      override renew(owner: string, forMs: number): void {
        this.#ends.set(owner, this.clock.now() + forMs);
        super.renew(owner, forMs);
      }
      override owned(owner: string, limit: number): readonly RunKey[] {
        return (this.#ends.get(owner) ?? 0) > this.clock.now() ? super.owned(owner, limit) : [];
      }
    },
  ),
  withBlocked("blocked ignores the limit", (query) => ({ ...query, limit: 1_000 })),
  withBlocked("blocked always returns the first page", ({ after: _, ...query }) => query),
  withBlocked("blocked of no agents is of all", ({ agents, ...query }) =>
    agents === undefined || agents.length === 0 ? query : { ...query, agents },
  ),
  withBlocked("blocked ignores versions", (query) => ({
    ...query,
    agents: query.agents?.flatMap(({ agent_name }) => [null, "1"].map((version) => ({ agent_name, version }))),
  })),
  broken(
    "blocked gives the runs of one agent after those of another",
    blocked,
    class extends MemoryStore {
      override blocked(query: BlockedQuery): readonly StoredRun[] {
        const { agents, limit } = query;
        if (agents === undefined) return super.blocked(query);
        return agents.flatMap((agent) => super.blocked({ ...query, agents: [agent] })).slice(0, limit);
      }
    },
  ),
  withBacklog("backlog knows no runs of dead owners", (rows) => rows.filter(({ version }) => version !== "1")),
  withBacklog("backlog leaves out runs that wait", (rows) => rows.map((row) => ({ ...row, waiting: 0 }))),
  withBacklog("backlog counts blocked runs beside those that wait", (rows) =>
    rows.map((row) => ({ ...row, waiting: row.waiting - row.blocked })),
  ),
  withBacklog("backlog returns since when the last one is due", (rows) =>
    rows.map((row) => ({ ...row, since: row.since === null ? null : Math.max(row.since, 1_700_000_000_000 - 5) })),
  ),
  withBacklog("backlog sometimes leaves out agents of which nothing is due", (rows) =>
    rows.filter(({ due }) => due > 0),
  ),
  broken(
    "makeSession replaces a session that is there",
    made,
    class extends MemoryStore {
      override makeSession(key: SessionKey, session: StoredSession, at: number): boolean {
        const isNew = this.session(key) === undefined;
        this.putSession(key, session, at);
        return isNew;
      }
    },
  ),
  broken(
    "makeSession always answers that it made the session",
    made,
    class extends MemoryStore {
      override makeSession(key: SessionKey, session: StoredSession, at: number): boolean {
        return super.makeSession(key, session, at) || true;
      }
    },
  ),
  broken(
    "makeSession reads before it waits, and writes after it",
    "sessions: of several concurrent makeSession, exactly one makes it, and no message is lost",
    class extends MemoryStore {
      // @ts-expect-error The memory store answers at once, this one later.
      override async makeSession(key: SessionKey, session: StoredSession, at: number): Promise<boolean> {
        const isThere = this.session(key) !== undefined;
        await inNextTurn();
        if (!isThere) this.putSession(key, session, at);
        return !isThere;
      }
    },
  ),
  broken(
    "watch cannot be stopped",
    "watch: a store that has it takes any number of callbacks, and calls none of them once it is removed",
    class extends HintingStore {
      override watch(callback: (hint: StoreHint) => void): () => void {
        super.watch(callback);
        return () => {};
      }
    },
  ),
  broken(
    "a callback of watch that fails stops a write",
    "watch: a store that has it takes any number of callbacks, and calls none of them once it is removed",
    class extends HintingStore {
      protected override call(callback: (hint: StoreHint) => void, hint: StoreHint): void {
        callback(hint);
      }
    },
  ),
];

/** A store whose `moved` answers something else. */
function withMoved(
  fault: string,
  caughtBy: string,
  twist: (known: readonly RunPosition[], answer: readonly RunPosition[]) => readonly RunPosition[],
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override moved(known: readonly RunPosition[]): readonly RunPosition[] {
        return twist(known, super.moved(known));
      }
    },
  );
}

/** A store whose `owned` answers something else. */
function withOwned(fault: string, twist: (keys: readonly RunKey[]) => readonly RunKey[]): BrokenStore {
  return broken(
    fault,
    owned,
    class extends MemoryStore {
      override owned(owner: string, limit: number): readonly RunKey[] {
        return twist(super.owned(owner, limit));
      }
    },
  );
}

/** A store that carries out another query of `blocked`. */
function withBlocked(fault: string, twist: (query: BlockedQuery) => BlockedQuery): BrokenStore {
  return broken(
    fault,
    blocked,
    class extends MemoryStore {
      override blocked(query: BlockedQuery): readonly StoredRun[] {
        return super.blocked(twist(query));
      }
    },
  );
}

/** A store whose `backlog` answers something else. */
function withBacklog(fault: string, twist: (rows: readonly Backlog[]) => readonly Backlog[]): BrokenStore {
  return broken(
    fault,
    backlog,
    class extends MemoryStore {
      override backlog(): readonly Backlog[] {
        return twist(super.backlog());
      }
    },
  );
}
