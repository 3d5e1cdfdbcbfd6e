import { setImmediate as inNextTurn } from "node:timers/promises";
import { MemoryStore } from "cadenza";
import type { Expected, RunHead, RunKey, RunPost, RunWrite } from "cadenza/store";
import type { Slot } from "../internals.ts";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

const tooMany = "slots: a run beyond the limit is refused as `full`, and nothing changes";
const keeps = "slots: a run that waits may keep its permit";
const forALook = "take: a run that was posted to with `look` is taken although its slot is full, without holding it";

/** Faults in slots. */
export const slotsFaults: readonly BrokenStore[] = [
  withSlot("no slot is ever full", tooMany, () => undefined),
  withSlot("a slot has a permit too many", tooMany, (slot) => ({ ...slot, max: slot.max + 1 })),
  withSlot("only runs that begin at once need a permit", tooMany, (slot, { holds_slot }) =>
    holds_slot ? slot : undefined,
  ),
  broken(
    "a full slot is reported before an id that is taken",
    "slots: a used id or idempotency key is refused as such, also if the slot is full",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        return answer === undefined || write.slot === undefined ? answer : { conflict: "full" };
      }
    },
  ),
  broken(
    "a permit is never released",
    "slots: a permit is free again once its run releases it, or ends",
    class extends MemoryStore {
      #given = 0;
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        if (write.slot !== undefined && write.head.holds_slot && ++this.#given > write.slot.max)
          return { conflict: "full" };
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "a run that is blocked keeps its permit",
    "slots: a run that rests, is blocked or ends frees its permit for one other run",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Conflict {
        const before = super.find(key);
        const holds_slot = write.head.blocked === null ? write.head.holds_slot : before?.head.holds_slot === true;
        return super.append(key, expected, { ...write, head: { ...write.head, holds_slot } });
      }
    },
  ),
  broken(
    "a run that waits loses its permit",
    keeps,
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, { ...write, head: released(write.head) }, idempotencyKey);
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Conflict {
        return super.append(key, expected, { ...write, head: released(write.head) });
      }
    },
  ),
  withSlot("all slots are one", "slots: each key is a slot of its own, and runs without a slot need none", (slot) => ({
    ...slot,
    key: "the slot",
  })),
  broken(
    "create checks for a permit before it waits, and writes after it",
    "slots: concurrent creates get no more permits than there are",
    class extends MemoryStore {
      // @ts-expect-error The memory store answers at once, this one later.
      override async create(
        key: RunKey,
        { slot, ...write }: RunWrite,
        idempotencyKey: string | null,
      ): Promise<Conflict> {
        if (slot === undefined || this.#written >= slot.max)
          return super.create(key, { ...write, slot }, idempotencyKey);
        await inNextTurn();
        this.#written += 1;
        return super.create(key, write, idempotencyKey);
      }
      #written = 0;
    },
  ),
  withSlot(
    "take does not count permits",
    "take: as many of a slot as it has free permits, those due first",
    (slot, { owner }) => (owner === null ? undefined : slot),
  ),
  withSlot(
    "a run that waits for a permit is overtaken",
    "take: while the first of a slot waits for a permit, those behind it do, and runs of other slots do not",
    (slot) => ({ ...slot, key: `${slot.key}, ${slot.max}` }),
  ),
  withSlot(
    "a dead owner's run needs no permit",
    "take: a run of a dead owner keeps the slot that it holds, and needs a permit if it holds none",
    (slot, { owner, holds_slot }) => (owner === "dead" && !holds_slot ? undefined : slot),
  ),
  broken(
    "a look needs a permit",
    forALook,
    class extends MemoryStore {
      override post(key: RunKey, post: RunPost): Conflict {
        return super.post(key, post.due === "look" ? { ...post, due: "work" } : post);
      }
    },
  ),
  broken(
    "every post is for a look",
    forALook,
    class extends MemoryStore {
      override post(key: RunKey, post: RunPost): Conflict {
        return super.post(key, post.due === "work" ? { ...post, due: "look" } : post);
      }
    },
  ),
  broken(
    "a look lasts for ever",
    forALook,
    class extends MemoryStore {
      readonly #looked = new Set<string>();
      override post(key: RunKey, post: RunPost): Conflict {
        if (post.due === "look") this.#looked.add(key.run_id);
        return super.post(key, post);
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Conflict {
        const answer = super.append(key, expected, write);
        if (this.#looked.has(key.run_id) && write.head.due_at !== null) super.post(key, { entries: [], due: "look" });
        return answer;
      }
    },
  ),
];

/** A store that uses another slot for each run. */
function withSlot(
  fault: string,
  caughtBy: string,
  twist: (slot: Slot, head: RunHead) => Slot | undefined,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override create(key: RunKey, { slot, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, { ...write, slot: slot && twist(slot, write.head) }, idempotencyKey);
      }
    },
  );
}

function released(head: RunHead): RunHead {
  return head.owner === null ? { ...head, holds_slot: false } : head;
}
