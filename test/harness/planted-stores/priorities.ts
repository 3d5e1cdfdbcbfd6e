import { MemoryStore } from "cadenza";
import type { Backlog, Expected, RunHead, RunKey, RunWrite, StoredRun, TakeRequest } from "cadenza/store";
import { runKey } from "../../../src/stores/contract/samples.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, OpenStore } from "./broken-store.ts";

const first =
  "priorities: of the runs that are due, those of a higher priority are taken first, over all agents and tenants";
const joins = "priorities: a run joins a line in front of all of a lower priority, and behind those of its own";
const byTime = "priorities: a run has its priority from the time at which it is due, and hinders none before";
const afterTime = "priorities: what a take looks for after some time, it finds whatever the priority";

/** Faults in priorities. */
export const prioritiesFaults: readonly BrokenStore[] = [
  withPriority("priorities are ignored", first, () => 0),
  withPriority("a priority is high or low", first, (priority) => Math.sign(priority)),
  withPriority("lower priorities are ignored", first, (priority) => Math.max(priority, 0)),
  broken(
    "priorities order the runs of each agent alone",
    first,
    class extends MemoryStore {
      override take({ agents, limit, ...request }: TakeRequest): readonly StoredRun[] {
        const taken: StoredRun[] = [];
        for (const agent of agents)
          taken.push(...super.take({ ...request, agents: [agent], limit: limit - taken.length }));
        return taken;
      }
    },
  ),
  withPriority(
    "each priority is one of its own",
    "priorities: runs of one priority are taken in the order of their times, then of their creation",
    (priority, n) => priority + (99 - n) / 100,
  ),
  withPriority("a run that is not due yet has no priority", byTime, (priority, _n, { head, entries: [created] }) =>
    (head.due_at ?? 0) > (created?.at ?? 0) ? 0 : priority,
  ),
  broken(
    "a run of a higher priority is waited for",
    byTime,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const isUrgent = (run: StoredRun): boolean => run.key.run_id === runKey(1).run_id && run.head.owner === null;
        return this.all().some((run) => isUrgent(run) && (run.head.due_at ?? 0) > this.clock.now())
          ? []
          : super.take(request);
      }
    },
  ),
  broken(
    "a run has its priority until it is taken",
    "priorities: a run keeps its priority",
    class extends OpenStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        // A run that was executed stands behind all others.
        const { due_at, owner } = write.head;
        return super.append(
          key,
          expected,
          owner === null && due_at !== null ? { ...write, head: { ...write.head, due_at: due_at + 1 } } : write,
        );
      }
    },
  ),
  broken(
    "runs of dead owners come first",
    "priorities: runs of dead owners are taken by their priority among the others",
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const dead = this.all().find(({ head }) => head.owner === "dead");
        if (dead !== undefined) this.setHead(dead.key, (head) => ({ ...head, owner: null, due_at: 0 }));
        const taken = super.take(request);
        return taken.toSorted((one, other) => Number(other.key === dead?.key) - Number(one.key === dead?.key));
      }
    },
  ),
  withPriority("a line is in the order of the times", joins, (priority, _n, { slots }) =>
    slots === undefined ? priority : 0,
  ),
  withPriority("a run goes in front of those of its own priority", joins, (priority, n, { slots }) =>
    slots === undefined ? priority : priority + n / 100,
  ),
  withPriority(
    "a run with an owner stands in line by its time",
    "priorities: a run that asks under its owner joins the line by its priority",
    (priority, _n, { head }) => (head.owner === null ? priority : 0),
  ),
  broken(
    "a run of a dead owner that passes others in line is first given back, then taken",
    "priorities: a run of a dead owner that gets its permits in front of others has the next epoch",
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const needs = this.all().filter(({ head }) => head.owner === "dead" && !head.holds_slot);
        const isPassed = this.lines({ limit: 1 }).length > 0;
        const wasTwiceTaken = ({ key }: StoredRun): boolean =>
          isPassed && needs.some((run) => run.key.run_id === key.run_id);
        return super
          .take(request)
          .map((run) =>
            wasTwiceTaken(run) ? (this.setHead(run.key, (head) => ({ ...head, epoch: head.epoch + 1 })) ?? run) : run,
          );
      }
    },
  ),
  broken(
    "the backlog tells the place among the due runs",
    "priorities: the backlog tells since when a run is due, whatever its priority",
    class extends MemoryStore {
      override backlog(): readonly Backlog[] {
        return super.backlog().map((counts) => ({ ...counts, since: (counts.since ?? 0) - 10 * 2 ** 43 }));
      }
    },
  ),
  broken(
    "a run that comes back is due at the time of its place",
    "priorities: runs that were set aside come back with theirs",
    class extends OpenStore {
      override comeBack(limit: number): number {
        const count = super.comeBack(limit);
        for (const { key } of this.all())
          this.setHead(key, (head: RunHead) => ({ ...head, due_at: (head.due_at ?? 0) - 4 * 2 ** 43 }));
        return count;
      }
    },
  ),
  broken(
    "cancelled runs of a low priority are due for long",
    afterTime,
    class extends MemoryStore {
      override take({ cancelledForMs, ...request }: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, cancelledForMs: cancelledForMs && 0 });
      }
    },
  ),
  broken(
    "the slot of a run with a priority is never freed",
    afterTime,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, unusedForMs: undefined });
      }
    },
  ),
];

/** A store that gives runs another priority. */
function withPriority(
  fault: string,
  caughtBy: string,
  twist: (priority: number, n: number, write: RunWrite) => number,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      #n = 0;
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#n += 1;
        return super.create(key, { ...write, priority: twist(write.priority ?? 0, this.#n, write) }, idempotencyKey);
      }
    },
  );
}
