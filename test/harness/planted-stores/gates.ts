import { MemoryStore } from "cadenza";
import type { Backlog, Expected, RunHead, RunKey, RunPost, RunWrite, StoredRun, TakeRequest } from "cadenza/store";
import { MOST_THROUGH } from "../internals.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, OpenStore } from "./broken-store.ts";

const behind = "gates: a run behind one can be claimed, ended, posted to and looked at";
const passes = "gates: a run that holds its permits passes, and so does one whose time comes";
const asNew = "gates: runs that are woken, posted to or given back pass it as new ones do";

/** A store that knows which runs stand behind a gate, in a check that creates a crowd and takes none. */
class CrowdStore extends OpenStore {
  readonly #gated = new Map<string, number>();
  override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
    if (write.gate !== undefined) this.#gated.set(key.run_id, this.#gated.size);
    return super.create(key, write, idempotencyKey);
  }
  isBehind({ run_id }: RunKey): boolean {
    return (this.#gated.get(run_id) ?? 0) >= MOST_THROUGH;
  }
}

/** Faults in gates. */
export const gatesFaults: readonly BrokenStore[] = [
  withGate(
    "there are no gates",
    "gates: a customer with many due runs does not hold up others, who come later",
    () => undefined,
  ),
  withGate("runs with a slot pass no gate", "gates: nor in a line that all of them stand in", (gate, { slots }) =>
    slots === undefined ? gate : undefined,
  ),
  withGate(
    "a gate is two",
    "gates: the runs of one are taken in their order, each of them once",
    (gate, _write, n) => `${gate}${n > 100}`,
  ),
  broken(
    "a run of a dead owner is behind those that were let through",
    "gates: a run that is let through is not in front of what was due before",
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take(request).toSorted((one, other) => one.head.takeovers - other.head.takeovers);
      }
    },
  ),
  broken(
    "a run whose permits are freed goes to the end",
    "gates: a run whose permits are freed stays where it is among the due ones",
    class extends MemoryStore {
      #hasFreed = false;
      override take(request: TakeRequest): readonly StoredRun[] {
        const taken = super.take(request);
        if (request.unusedForMs === undefined) return this.#hasFreed ? taken.toReversed() : taken;
        this.#hasFreed = true;
        return taken;
      }
    },
  ),
  broken(
    "the runs of a gate are lost where two takes meet",
    "gates: concurrent takes give all runs of one, each of them once",
    class extends CrowdStore {
      #calls = 0;
      override take(request: TakeRequest): readonly StoredRun[] {
        this.#calls += 1;
        return this.#calls > 4 ? [] : super.take(request);
      }
    },
  ),
  broken(
    "a run behind a gate cannot be claimed",
    behind,
    class extends CrowdStore {
      override claim(key: RunKey, expected: Expected, head: RunHead): Conflict {
        return this.isBehind(key) ? { conflict: "owned" } : super.claim(key, expected, head);
      }
    },
  ),
  broken(
    "a run behind a gate that has ended is taken",
    behind,
    class extends CrowdStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        if (!this.isBehind(key) || write.head.finished_at === null) return super.append(key, expected, write);
        return super.append(key, expected, {
          ...write,
          head: { ...write.head, owner: null, finished_at: null, due_at: 0 },
        });
      }
    },
  ),
  broken(
    "a run that is posted to behind a gate is lost",
    behind,
    class extends CrowdStore {
      override post(key: RunKey, post: RunPost): Conflict {
        const answer = super.post(key, post);
        if (this.isBehind(key) && post.due === "work") this.setHead(key, (head) => ({ ...head, due_at: null }));
        return answer;
      }
    },
  ),
  ...(["look", "cancelling"] as const).map((what) =>
    broken(
      what === "look" ? "a run is not looked at behind a gate" : "a cancelled run waits behind a gate",
      behind,
      class extends CrowdStore {
        override post(key: RunKey, { status, due, ...post }: RunPost): Conflict {
          const isIt = (status ?? due) === what && this.isBehind(key);
          return super.post(key, isIt ? post : { ...post, status, due });
        }
      },
    ),
  ),
  broken(
    "only takes let others through a gate",
    "gates: the next ones come also if those before them have left without a take",
    class extends CrowdStore {
      #taken = 0;
      override take(request: TakeRequest): readonly StoredRun[] {
        const given = super.take(request).filter(({ key }) => this.#taken > 0 || !this.isBehind(key));
        this.#taken += given.length;
        return given;
      }
    },
  ),
  broken(
    "a run that holds its permits waits behind a gate",
    passes,
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, { ...write, slots: undefined }, idempotencyKey);
      }
    },
  ),
  withHead("a run that has slept waits behind a gate", passes, ({ due_at, ...head }) => ({
    ...head,
    due_at: head.status === "awaiting" ? null : due_at,
  })),
  broken(
    "what is posted to passes a gate",
    asNew,
    class extends MemoryStore {
      override post(key: RunKey, post: RunPost): Conflict {
        return super.post(key, { ...post, due: post.due && "look" });
      }
    },
  ),
  broken(
    "the backlog counts those that are through a gate",
    "gates: the runs behind one are counted as due",
    class extends MemoryStore {
      override backlog(): readonly Backlog[] {
        return super.backlog().map((counts) => ({ ...counts, due: Math.min(counts.due, MOST_THROUGH) }));
      }
    },
  ),
  broken(
    "a run comes back behind a gate, and stays there",
    "gates: many runs that were set aside come back, and all of them are taken",
    class extends CrowdStore {
      #isBack = false;
      override comeBack(limit: number): number {
        this.#isBack = true;
        return super.comeBack(limit);
      }
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take(request).filter(({ key }) => !this.#isBack || !this.isBehind(key));
      }
    },
  ),
  broken(
    "lines gives gates",
    "lines: gates are not shown",
    class extends CrowdStore {
      override lines(query: Parameters<MemoryStore["lines"]>[0]): ReturnType<MemoryStore["lines"]> {
        const waits = this.all().filter(({ key }) => this.isBehind(key));
        const [first] = waits;
        if (first === undefined) return super.lines(query);
        const next = { key: first.key, agent_name: "echo", version: null, due_at: 0 };
        return [...super.lines(query), { key: "~gate", max: 1, held: 0, waiting: waits.length, first: next }];
      }
    },
  ),
];

/** A store that uses another gate for each run; undefined: none. */
function withGate(
  fault: string,
  caughtBy: string,
  twist: (gate: string, write: RunWrite, n: number) => string | undefined,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      #n = 0;
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#n += 1;
        return super.create(key, { ...write, gate: write.gate && twist(write.gate, write, this.#n) }, idempotencyKey);
      }
    },
  );
}

/** A store that creates runs with a gate with another head. */
function withHead(fault: string, caughtBy: string, twist: (head: RunHead) => RunHead): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, { ...write, head: twist(write.head) }, idempotencyKey);
      }
    },
  );
}
