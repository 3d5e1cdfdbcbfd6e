import { setImmediate as inNextTurn } from "node:timers";
import { MemoryStore } from "cadenza";
import type { RunHead, StoredRun, TakeRequest } from "cadenza/store";
import type { MemoryStoreOptions } from "../internals.ts";
import type { BrokenStore } from "./broken-store.ts";
import { broken, DurableOnly, OpenStore, StubbornClockStore } from "./broken-store.ts";

const inOrder = "take: of all tenants, those due first, then those created first, and no more than requested";
const asItIs = "take: the caller becomes the owner in a higher epoch, and the run is returned as it is then";
const cancelled =
  "take: with cancelledForMs, cancelling runs of other agents, once no process has taken them for so long";
const plain = "take: a run of another agent whose owner is dead, if it is not durable: no code is needed to end it";
const follows = "take: follows what is written, posted and woken";

/** Faults in `take`. */
export const takeFaults: readonly BrokenStore[] = [
  broken(
    "take is a moment late",
    "take: a run without an owner, from the time at which it is due",
    class extends MemoryStore {
      constructor({ clock }: MemoryStoreOptions) {
        super({ clock: { now: () => (clock?.now() ?? 0) - 1 } });
      }
    },
  ),
  prepared(
    "take gives runs without a time",
    "take: a run without an owner, from the time at which it is due",
    (store) => {
      for (const { key, head } of store.all())
        if (head.owner === null && head.finished_at === null && head.due_at === null)
          store.setHead(key, (before) => ({ ...before, due_at: 0 }));
    },
  ),
  prepared(
    "take leaves out runs whose owner is gone",
    "take: a run whose owner's lease has expired or never existed, in any status",
    (store) => {
      for (const { head } of store.all()) if (head.owner !== null) store.renew(head.owner, 1);
    },
  ),
  prepared(
    "take gives runs whose owner lives",
    "take: a run whose owner's lease has expired or never existed, in any status",
    (store) => store.release("owner-1"),
  ),
  afterwards("take keeps the epoch", asItIs, (head) => ({ ...head, epoch: head.epoch - 1 })),
  afterwards("take leaves the time at which the run was due", asItIs, (head) => ({ ...head, due_at: null })),
  broken(
    "take returns the runs as they were before",
    asItIs,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const before = new Map(this.all().map((run) => [run.key, run]));
        return super.take(request).map((run) => before.get(run.key) ?? run);
      }
    },
  ),
  afterwards(
    "take counts a take-over of every run",
    "take: counts a take-over only if the run had an owner",
    (head) => ({
      ...head,
      takeovers: 3,
    }),
  ),
  asked("take ignores versions", "take: only runs of these agents, and of these versions of them", (request) => ({
    ...request,
    agents: request.agents.flatMap(({ agent_name }) =>
      [null, "", "1", "2"].map((version) => ({ agent_name, version })),
    ),
  })),
  asked("take of no agents is of all", "take: only runs of these agents, and of these versions of them", (request) => ({
    ...request,
    agents: request.agents.length > 0 ? request.agents : [{ agent_name: "echo", version: null }],
  })),
  prepared(
    "take gives blocked runs",
    "take: never a run that has ended, whose owner lives, or that is blocked",
    (store) => {
      for (const { key } of store.blocked({ limit: 99 })) store.setHead(key, (head) => ({ ...head, due_at: 0 }));
    },
  ),
  broken(
    "take gives those first that were created first",
    inOrder,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const ids = this.all().map(({ key }) => key.run_id);
        return super.take(request).toSorted((a, b) => ids.indexOf(b.key.run_id) - ids.indexOf(a.key.run_id));
      }
    },
  ),
  broken(
    "take leaves out runs without an owner that do not wait",
    "take: a run without an owner, from the time at which it is due",
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take(request).filter(({ head }) => head.status === "awaiting" || head.takeovers > 0);
      }
    },
  ),
  broken(
    "take gives runs that have ended",
    "take: never a run that has ended, whose owner lives, or that is blocked",
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const ended = this.all().filter(({ head }) => head.finished_at !== null && head.due_at !== null);
        return [...super.take(request), ...ended];
      }
    },
  ),
  asked("take ignores the limit", inOrder, (request) => ({ ...request, limit: 1_000 })),
  asked("take gives one run more", inOrder, (request) => ({ ...request, limit: request.limit + 1 })),
  asked("take reads the first fifty only", "take: a great many, in pages", (request) => ({ ...request, limit: 50 }), 1),
  broken(
    "take gives several callers the same runs",
    "take: concurrent callers get different runs",
    class extends MemoryStore {
      #taken: readonly StoredRun[] | undefined;
      override take(request: TakeRequest): readonly StoredRun[] {
        this.#taken ??= super.take(request);
        inNextTurn(() => {
          this.#taken = undefined;
        });
        return this.#taken;
      }
    },
  ),
  prepared(
    "take returns runs that have been taken already",
    "take: what has been taken is not taken again while its owner lives, and a claim of it is refused",
    (store) => store.release("owner-2"),
  ),
  broken(
    "take keeps the time at which a run was first due",
    follows,
    class extends OpenStore {
      readonly #due = new Map<string, number>();
      override take(request: TakeRequest): readonly StoredRun[] {
        for (const { key, head } of this.all()) {
          if (head.owner !== null || head.finished_at !== null) continue;
          const first = this.#due.get(key.run_id) ?? head.due_at;
          if (first === null) continue;
          this.#due.set(key.run_id, first);
          this.setHead(key, (before) => ({ ...before, due_at: first }));
        }
        return super.take(request);
      }
    },
  ),
  broken(
    "take goes by leases that are too long for the clock",
    "take: a lease that another process meets lasts no longer than requested, also if the clock was set back",
    StubbornClockStore,
  ),
  asked("take ignores suspects", "take: no more suspects than requested, and the other runs as usual", (request) => ({
    ...request,
    suspects: undefined,
  })),
  asked(
    "take gives one suspect more",
    "take: no more suspects than requested, and the other runs as usual",
    (request) => ({
      ...request,
      suspects: request.suspects && { ...request.suspects, limit: request.suspects.limit + 1 },
    }),
  ),
  asked("take leaves runs to processes that have their code", cancelled, (request) => ({
    ...request,
    cancelledForMs: undefined,
  })),
  asked("take does not wait for a process that has the code", cancelled, (request) => ({
    ...request,
    cancelledForMs: request.cancelledForMs === undefined ? undefined : 0,
  })),
  asked("take gives all runs of other agents that have been due for long", cancelled, (request) => ({
    ...request,
    agents:
      request.cancelledForMs === undefined ? request.agents : [...request.agents, { agent_name: "ask", version: "9" }],
  })),
  broken("take leaves runs that are not durable to processes that have their code", plain, DurableOnly),
  asked("take gives all runs of other agents whose owner is dead", plain, (request) => ({
    ...request,
    agents: [...request.agents, { agent_name: "ask", version: "9" }],
  })),
];

/** A store that does something before each `take`. */
function prepared(fault: string, caughtBy: string, prepare: (store: OpenStore) => void): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        prepare(this);
        return super.take(request);
      }
    },
  );
}

/** A store that changes the head of each run that it has given. */
function afterwards(fault: string, caughtBy: string, change: (head: RunHead) => RunHead): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take(request).map((run) => this.setHead(run.key, change) ?? run);
      }
    },
  );
}

/** A store that carries out another `take`; after a number of calls it gives nothing. */
function asked(
  fault: string,
  caughtBy: string,
  twist: (request: TakeRequest) => TakeRequest,
  calls = Number.POSITIVE_INFINITY,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      #calls = 0;
      override take(request: TakeRequest): readonly StoredRun[] {
        this.#calls += 1;
        return this.#calls > calls ? [] : super.take(twist(request));
      }
    },
  );
}
