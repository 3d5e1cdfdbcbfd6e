import { setImmediate as inNextTurn } from "node:timers/promises";
import { MemoryStore } from "cadenza";
import type { Expected, RunHead, RunKey, RunPost, RunWrite } from "cadenza/store";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, OpenStore, refusal } from "./broken-store.ts";

const stay = "post: the entries go to the end of the log, and the head stays";
const dueNow = "post: a run without an owner is due now if the post says so, or stays due since earlier";
const blocked = "post: a blocked run becomes due only if the post unblocks it";
const owned =
  "wake: the head of a run with an owner stays, and its owner cannot release it without knowing of the wake-up";

/** Faults in `post`, and in writes that wake another run. */
export const postsFaults: readonly BrokenStore[] = [
  broken(
    "a post checks for the end before it waits, and writes after it",
    "post: of many concurrent posts, all are written",
    class extends MemoryStore {
      // @ts-expect-error The memory store answers at once, this one later.
      override async post(key: RunKey, post: RunPost): Promise<Conflict> {
        const run = this.find(key);
        await inNextTurn();
        if (run === undefined || run.head.finished_at !== null || post.status !== undefined)
          return super.post(key, post);
        const { head, position } = run;
        return refusal(super.append(key, { epoch: head.epoch, position }, { entries: post.entries, head }));
      }
    },
  ),
  afterPost("a post gives the run an owner", stay, (head) => ({ ...head, owner: "owner-9" })),
  afterPost("a post counts as a take-over", stay, (head) => ({ ...head, takeovers: head.takeovers + 1 })),
  afterPost(
    "a post raises the epoch",
    "post: a pending write to a run without an owner is refused as `changed`, in the same epoch",
    (head) => ({ ...head, epoch: head.epoch + 1 }),
  ),
  broken(
    "a post goes into a run that has ended",
    "post: a missing run is refused as `missing`, and one that has ended as `ended`",
    class extends OpenStore {
      override post(key: RunKey, post: RunPost): Conflict {
        const answer = super.post(key, post);
        const run = this.find(key);
        if (answer?.conflict !== "ended" || run === undefined) return answer;
        const { head, position } = run;
        return refusal(super.append(key, { epoch: head.epoch, position }, { entries: post.entries, head }));
      }
    },
  ),
  twistedPost(
    "a post comes to a run that is being cancelled, which it is not for",
    "post: one that is not for a run that is being cancelled is refused by it as `cancelling`",
    ({ unlessCancelling: _, ...post }) => post,
  ),
  twistedPost("a post leaves the status", "post: the status is what the post says", ({ status: _, ...post }) => post),
  broken(
    "a post leaves a status that was decided beside an owner",
    "post: a status that the entries alone do not decide is refused as `changed` without an owner",
    class extends OpenStore {
      override post(key: RunKey, post: RunPost): Conflict {
        const answer = super.post(key, post);
        if (answer?.conflict !== "changed") return answer;
        const { status, ...others } = post;
        if (status !== undefined) this.setHead(key, (head) => ({ ...head, status }));
        return super.post(key, others);
      }
    },
  ),
  twistedPost("a post makes nothing due", dueNow, ({ due: _, ...post }) => post),
  twistedPost("every post makes its run due", dueNow, (post) => ({ ...post, due: post.due ?? "work" })),
  broken(
    "a post loses that its run was due before",
    dueNow,
    class extends OpenStore {
      override post(key: RunKey, post: RunPost): Conflict {
        if (post.due !== undefined && this.find(key)?.head.owner === null)
          this.setHead(key, (head) => ({ ...head, due_at: null }));
        return super.post(key, post);
      }
    },
  ),
  twistedPost("a post that makes a run due unblocks it", blocked, (post) =>
    post.due === undefined ? post : { ...post, unblocks: true },
  ),
  twistedPost("a post does not unblock", blocked, ({ unblocks: _, ...post }) => post),
  withWake(
    "no run is woken",
    "wake: a run without an owner is due with the write, or stays due since earlier",
    () => undefined,
  ),
  withWake(
    "a wake-up delays a run that was due",
    "wake: a run without an owner is due with the write, or stays due since earlier",
    (store, key) => {
      if (store.find(key)?.head.owner === null) store.setHead(key, (head) => ({ ...head, due_at: null }));
      return key;
    },
  ),
  broken(
    "a write takes back that a run without an owner was woken",
    "wake: a run that was woken without an owner stays due until it has one",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, { wake, ...write }: RunWrite): Written {
        return super.append(key, expected, write) ?? this.#wake(wake);
      }
      override create(key: RunKey, { wake, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, write, idempotencyKey) ?? this.#wake(wake);
      }
      #wake(key: RunKey | undefined): undefined {
        if (key !== undefined) super.post(key, { entries: [], due: "work" });
      }
    },
  ),
  withWake(
    "a wake-up makes a blocked run due",
    "wake: a run that has ended, is blocked or is missing is left alone",
    (store, key) => {
      store.post(key, { entries: [], unblocks: true });
      return key;
    },
  ),
  withWake(
    "a wake-up touches a run that has ended",
    "wake: a run that has ended, is blocked or is missing is left alone",
    (store, key) => {
      if (store.find(key)?.head.finished_at !== null) store.setHead(key, (head) => ({ ...head, due_at: 1 }));
      return key;
    },
  ),
  broken(
    "a refused write wakes",
    "wake: a refused write wakes nothing",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        if (write.wake !== undefined) super.post(write.wake, { entries: [], due: "work" });
        return super.append(key, expected, write);
      }
    },
  ),
  withWake("a wake-up writes to the head of an owner", owned, (store, key) => {
    if (store.find(key)?.head.owner !== null) store.setHead(key, (head) => ({ ...head, due_at: store.clock.now() }));
    return key;
  }),
  withWake("a wake-up of a run with an owner is lost", owned, (store, key) =>
    store.find(key)?.head.owner === null ? key : undefined,
  ),
  broken(
    "any number of wake-ups is enough to release a run",
    owned,
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        if (answer?.conflict !== "woken" || (expected.wakes ?? 0) === 0) return answer;
        return super.append(key, { ...expected, wakes: answer.wakes }, write);
      }
    },
  ),
  broken(
    "more wake-ups than there were are enough to release a run",
    owned,
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        if (answer?.conflict !== "woken" || answer.wakes > (expected.wakes ?? 0)) return answer;
        return super.append(key, { ...expected, wakes: answer.wakes }, write);
      }
    },
  ),
  broken(
    "a run that was woken cannot end",
    "wake: a run that has been woken may end",
    class extends MemoryStore {
      readonly #woken = new Set<string>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        if (write.wake !== undefined) this.#woken.add(write.wake.run_id);
        return super.create(key, write, idempotencyKey);
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const isRefused = write.head.owner === null && this.#woken.has(key.run_id) && expected.wakes === undefined;
        return isRefused ? { conflict: "woken", wakes: 1 } : super.append(key, expected, write);
      }
    },
  ),
  broken(
    "wake-ups are counted over all owners",
    "wake: wake-ups are counted for one owner",
    class extends MemoryStore {
      readonly #wakes = new Map<string, number>();
      override create(key: RunKey, { wake, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        if (wake !== undefined) this.#wakes.set(wake.run_id, (this.#wakes.get(wake.run_id) ?? 0) + 1);
        return super.create(key, write, idempotencyKey);
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const wakes = this.#wakes.get(key.run_id) ?? 0;
        const isGivenUp = this.find(key)?.head.owner !== null && write.head.owner === null;
        if (isGivenUp && wakes !== (expected.wakes ?? 0)) return { conflict: "woken", wakes };
        return super.append(key, expected, write);
      }
    },
  ),
];

/** A store that does something else to the head with each post. */
function afterPost(fault: string, caughtBy: string, change: (head: RunHead) => RunHead): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends OpenStore {
      override post(key: RunKey, post: RunPost): Conflict {
        const answer = super.post(key, post);
        if (answer === undefined) this.setHead(key, change);
        return answer;
      }
    },
  );
}

/** A store that carries out another post. */
function twistedPost(fault: string, caughtBy: string, twist: (post: RunPost) => RunPost): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override post(key: RunKey, post: RunPost): Conflict {
        return super.post(key, twist(post));
      }
    },
  );
}

/** A store that changes a run before it wakes it, or does not wake it. */
function withWake(
  fault: string,
  caughtBy: string,
  wakes: (store: OpenStore, key: RunKey) => RunKey | undefined,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends OpenStore {
      override append(key: RunKey, expected: Expected, { wake, ...write }: RunWrite): Written {
        return super.append(key, expected, wake === undefined ? write : { ...write, wake: wakes(this, wake) });
      }
    },
  );
}
