import { setImmediate as inNextTurn } from "node:timers/promises";
import { MemoryStore } from "cadenza";
import type { Backlog, Expected, RunHead, RunKey, RunPost, RunWrite, StoredRun, TakeRequest } from "cadenza/store";
import { NOW } from "../../../src/stores/contract/check.ts";
import { OWNER, runId } from "../../../src/stores/contract/samples.ts";
import type { Slot } from "../internals.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, DurableOnly, OpenStore } from "./broken-store.ts";

const tooMany = "slots: a run beyond the limit is refused as `full`, and nothing changes";
const keeps = "slots: a run that waits may keep its permit";
const asked = "slots: a run with an owner that asks for a permit gets it in its turn, and keeps its owner";
const asksNoMore = "slots: a run with an owner that asks no more leaves the line, and gives back what it got";
const unused =
  "take: slots of other versions that no process executes are freed for those that wait, if that is asked for";
const unusedAgent = "take: slots of agents that the caller does not have are freed likewise";
const ofTheDead = "take: the slot of a run with a living owner is not freed, and that of a dead one is";
const onlyEnds = "take: a run of a dead owner that is only taken to end it needs no permit, and leaves the line";
const forALook = "take: a run that was posted to with `look` is taken although its slot is full, without holding it";

/** Faults in slots. */
export const slotsFaults: readonly BrokenStore[] = [
  withSlot("no slot is ever full", tooMany, () => undefined),
  withSlot("a slot has a permit too many", tooMany, (slot) => ({ ...slot, max: (slot.max ?? 0) + 1 })),
  withSlot("only runs that begin at once need a permit", tooMany, (slot, { holds_slot }) =>
    holds_slot ? slot : undefined,
  ),
  broken(
    "a full slot is reported before an id that is taken",
    "slots: a used id or idempotency key is refused as such, also if the slot is full",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        return answer === undefined || write.slots === undefined ? answer : { conflict: "full" };
      }
    },
  ),
  broken(
    "a permit is never released",
    "slots: a permit is free again once its run releases it, or ends",
    class extends MemoryStore {
      #given = 0;
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const [slot] = write.slots ?? [];
        if (slot?.max !== undefined && write.head.holds_slot && ++this.#given > slot.max) return { conflict: "full" };
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "a run that is blocked keeps its permit",
    "slots: a run that rests, is blocked or ends frees its permit for one other run",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
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
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
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
        { slots, ...write }: RunWrite,
        idempotencyKey: string | null,
      ): Promise<Conflict> {
        const max = slots?.[0]?.max;
        if (max === undefined || this.#written >= max) return super.create(key, { ...write, slots }, idempotencyKey);
        await inNextTurn();
        this.#written += 1;
        return super.create(key, write, idempotencyKey);
      }
      #written = 0;
    },
  ),
  withSlot(
    "take does not count permits",
    "take: as many of a slot as it has permits, those first that have waited longest",
    (slot, { owner }) => (owner === null ? undefined : slot),
  ),
  withSlot(
    "a run that waits for a permit is overtaken",
    "take: while the first of a slot waits for a permit, those behind it do, and runs of other slots do not",
    (slot) => ({ ...slot, key: `${slot.key}, ${slot.max}` }),
  ),
  withSlot(
    "a free permit is given to any run that asks",
    "slots: a permit that other runs wait for is refused as `full`, also if it is free",
    (slot) => ({ ...slot, key: `${slot.key}, ${slot.max}` }),
  ),
  withSlot(
    "a run that is due since earlier overtakes those that have waited longer",
    "slots: whatever frees a permit gives it to the run that has waited longest",
    (slot, { due_at }) => (due_at === NOW - 4 ? { ...slot, key: "another" } : slot),
  ),
  broken(
    "a permit is given by take alone",
    "slots: whatever frees a permit gives it to the run that has waited longest",
    class extends MemoryStore {
      override find(key: RunKey): StoredRun | undefined {
        const run = super.find(key);
        return run && { ...run, head: released(run.head) };
      }
    },
  ),
  broken(
    "a run that is blocked stands in the way",
    "slots: a run that is ended, claimed or blocked while it waits lets others pass",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const { blocked, due_at } = write.head;
        const head = { ...write.head, due_at: blocked === null ? due_at : 0 };
        return super.append(key, expected, { ...write, head });
      }
    },
  ),
  withSlot(
    "a limit is that of the first run for ever",
    "slots: a raised limit lets in as many runs as it allows, in order",
    (slot) => ({ ...slot, max: 1 }),
  ),
  withSlot(
    "a run whose time has come passes those that stand in line",
    "slots: a run passes none that stands in line, also if both come at the same time",
    (slot, { due_at }) => (due_at === NOW + 5 ? { ...slot, key: "another" } : slot),
  ),
  broken(
    "a run that comes back waits until the next permit is freed",
    "slots: a run that comes back to the front of the line gets a permit at once",
    class extends OpenStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        if (write.head.owner === null && write.head.due_at !== null) this.setHead(key, released);
        return answer;
      }
    },
  ),
  broken(
    "a permit that is given back and got again is free",
    "slots: a write that gives a permit back and needs one again holds one",
    class extends MemoryStore {
      #isFree = false;
      override create(key: RunKey, { slots, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        const used = slots?.map((slot) => ({ ...slot, key: this.#isFree ? "another" : slot.key }));
        return super.create(key, { ...write, slots: used }, idempotencyKey);
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        this.#isFree ||= !write.head.holds_slot && super.find(key)?.head.holds_slot === true;
        return super.append(key, expected, write);
      }
    },
  ),
  broken(
    "a run with an owner that asks for a permit is not in the line",
    asked,
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, { asks: _asks, ...write }: RunWrite): Written {
        return super.append(key, expected, write);
      }
    },
  ),
  broken(
    "a run that is created with an owner and asks for a permit is not in the line",
    asked,
    class extends MemoryStore {
      override create(key: RunKey, { asks: _asks, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "an owner that does not know of its permit gives it back",
    asked,
    class extends OpenStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const isGiven = super.find(key)?.head.holds_slot === true;
        return super.append(key, expected, isGiven ? { ...write, asks: undefined } : write);
      }
    },
  ),
  broken(
    "a run that has asked once waits for ever",
    asksNoMore,
    class extends MemoryStore {
      readonly #asked = new Set<string>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        if (write.asks === true) this.#asked.add(key.run_id);
        return super.create(key, write, idempotencyKey);
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const asks = write.asks === true || this.#asked.has(key.run_id);
        return super.append(key, expected, { ...write, asks });
      }
    },
  ),
  broken(
    "a dead owner keeps what waits under it",
    "take: a run that asked under an owner who is dead keeps its place without an owner",
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const dead = this.all().filter(({ head }) => head.owner === OWNER && !head.holds_slot);
        if (dead.length > 0) super.renew(OWNER, 1);
        return super.take(request);
      }
    },
  ),
  broken(
    "the backlog leaves out what waits for a permit",
    "slots: a run that waits for a permit is counted as due",
    class extends MemoryStore {
      override backlog(): readonly Backlog[] {
        return super.backlog().map((counts) => ({ ...counts, due: 0, waiting: counts.due }));
      }
    },
  ),
  broken(
    "take puts off a run whose time has come while its slot is full",
    "take: a run whose time comes waits for a permit from then on",
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const now = this.clock.now();
        for (const { key, head } of this.all())
          if (head.status === "awaiting" && head.owner === null && !head.holds_slot && key.run_id === runId(2))
            this.setHead(key, (before) => ({ ...before, due_at: now + 1 }));
        return super.take(request);
      }
    },
  ),
  broken(
    "a dead owner may go on writing to a run that waits for a permit",
    "take: a run of a dead owner that gets no permit waits for one without an owner, in a higher epoch",
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const before = new Map(this.all().map((run) => [run.key, run.head]));
        const taken = super.take(request);
        for (const { key, head } of this.all())
          if (head.owner === null && before.get(key)?.owner === "dead")
            this.setHead(key, () => ({ ...head, epoch: head.epoch - 1 }));
        return taken;
      }
    },
  ),
  broken(
    "a run that is looked at loses its place",
    "take: a run that is looked at keeps its place among those that wait for a permit",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const { head } = write;
        if (head.owner === null && head.due_at !== null)
          super.append(key, expected, { entries: [], head: { ...head, due_at: null } });
        return super.append(key, { ...expected, epoch: head.epoch }, write);
      }
    },
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
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        if (this.#looked.has(key.run_id) && write.head.due_at !== null) super.post(key, { entries: [], due: "look" });
        return answer;
      }
    },
  ),
  broken(
    "a slot that no process uses is never freed",
    unused,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, unusedForMs: undefined });
      }
    },
  ),
  broken(
    "a slot is freed before the time",
    unused,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, unusedForMs: request.unusedForMs && 0 });
      }
    },
  ),
  broken(
    "slots are freed also if that is not asked for",
    unused,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, unusedForMs: request.unusedForMs ?? 0 });
      }
    },
  ),
  broken(
    "a freed slot goes to the next run of the same version",
    unused,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const held = new Set(
          this.all()
            .filter(isReserved)
            .map(({ key }) => key.run_id),
        );
        const taken = super.take({ ...request, limit: 0 });
        const isFreed = this.all().some((run) => held.has(run.key.run_id) && !isReserved(run));
        return isFreed ? taken : super.take(request);
      }
    },
  ),
  broken(
    "the slot of a dead owner is never freed",
    ofTheDead,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const isOwned = this.all().some(({ head }) => head.owner !== null);
        return super.take(isOwned ? { ...request, unusedForMs: undefined } : request);
      }
    },
  ),
  broken(
    "slots are freed only of other versions of the same agents",
    unusedAgent,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const agents = [...request.agents, { agent_name: "other", version: null }];
        const { unusedForMs } = request;
        if (unusedForMs !== undefined) super.take({ ...request, agents, limit: 0 });
        return super.take({ ...request, unusedForMs: undefined });
      }
    },
  ),
  broken(
    "a slot is freed although no other agent waits for it",
    unusedAgent,
    class extends OpenStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        const taken = super.take(request);
        if (request.unusedForMs === undefined) return taken;
        for (const { key } of this.all().filter(isReserved))
          this.setHead(key, (head) => ({ ...head, holds_slot: false }));
        return taken;
      }
    },
  ),
  broken("a run that can only be ended waits for a permit", onlyEnds, DurableOnly),
  broken(
    "a living owner loses its slot",
    ofTheDead,
    class extends MemoryStore {
      override renew(owner: string, forMs: number): void {
        super.renew(owner, owner === OWNER ? 1 : forMs);
      }
    },
  ),
];

function isReserved({ head }: StoredRun): boolean {
  return head.owner === null && head.holds_slot;
}

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
      override create(key: RunKey, { slots, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        const twisted = slots?.flatMap((slot) => twist(slot, write.head) ?? []);
        return super.create(key, { ...write, slots: twisted }, idempotencyKey);
      }
    },
  );
}

function released(head: RunHead): RunHead {
  return head.owner === null ? { ...head, holds_slot: false } : head;
}
