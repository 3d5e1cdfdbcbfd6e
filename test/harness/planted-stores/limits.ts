import { MemoryStore } from "cadenza";
import type { Expected, Retention, RunHead, RunKey, RunWrite, StoredRun, TakeRequest } from "cadenza/store";
import type { Rate, Slot } from "../internals.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, OpenStore } from "./broken-store.ts";

type Slots = readonly Slot[];
type Lines = ReturnType<MemoryStore["lines"]>;

const all = "slots: a run needs permits of all its slots, and is refused as `full` if one is missing";
const told = "slots: a new run that is refused is told which slot refuses it, if it is told";
const inWindow = "slots: a rate gives no more than its count in any window";
const changed = "slots: a changed count of a rate holds for what was given before";
const atItsTime = "slots: those that wait for a rate get it in order, with the first take at its time";
const oneTime = "slots: a rate counts a run once";
const shown = "lines: shows rates and when they give again";
const gone = "take: a run without a process gives back all its permits if one of them is waited for";

/** Faults in several slots and in rates. */
export const limitsFaults: readonly BrokenStore[] = [
  withSlots("a run needs its first slot alone", all, (slots) => slots.slice(0, 1)),
  withSlots("a run needs its last slot alone", all, (slots) => slots.slice(-1)),
  broken(
    "only a new run needs all its slots",
    all,
    class extends MemoryStore {
      override claim(key: RunKey, expected: Expected, head: RunHead): Conflict {
        const answer = super.claim(key, expected, head);
        return answer?.conflict === "full" ? super.claim(key, expected, { ...head, holds_slot: false }) : answer;
      }
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        if (answer?.conflict !== "full") return answer;
        return super.append(key, expected, { ...write, head: { ...write.head, holds_slot: false } });
      }
    },
  ),
  // A run that waits for the second slot keeps the first one from others.
  withSlots(
    "a waiting run holds what it could get",
    "slots: a run that needs two permits holds none while it waits",
    (slots, head) => (head.holds_slot || slots.length === 1 ? slots : slots.slice(0, 1)),
  ),
  broken(
    "a refused run is told its first slot, whichever refuses it",
    told,
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        return answer?.conflict === "full" ? { ...answer, key: write.slots?.[0]?.key } : answer;
      }
    },
  ),
  broken(
    "the first of two lines refuse each other",
    "slots: runs that wait in the lines of two slots begin as soon as both are free",
    class extends MemoryStore {
      #taken = 0;
      override take(request: TakeRequest): readonly StoredRun[] {
        if (this.#taken >= 48) return [];
        const taken = super.take(request);
        this.#taken += taken.length;
        return taken;
      }
    },
  ),
  withSlots(
    "a run waits for its last slot",
    "slots: a run waits in the line of the first slot that refuses it",
    (slots) => slots.toReversed(),
  ),
  withSlots(
    "all slots of a run are one",
    "slots: a waiter whose other slot refuses lets the next one pass, and waits for that slot",
    (slots) => slots.map((slot) => ({ ...slot, key: ":a" })).slice(0, 1),
  ),
  withSlots(
    "a run keeps its second permit for ever",
    "slots: a run that rests, is blocked or ends gives back all its permits",
    (slots, head) => slots.map((slot) => (slot.key === ":b" && !head.holds_slot ? { ...slot, max: 0 } : slot)),
  ),
  broken(
    "a run that leaves a line holds it up",
    "slots: a run that leaves a line in which it waits for several lets the next one in",
    class extends OpenStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const before = super.find(key)?.head;
        if (before?.owner !== null || write.head.finished_at === null) return super.append(key, expected, write);
        return super.append(key, expected, { ...write, head: { ...before, status: "in-progress" } });
      }
    },
  ),
  broken(
    "a run with several slots has no priority",
    "slots: a run that has moved to another line leaves it as any other, and moves within its priority",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, { ...write, priority: 0 }, idempotencyKey);
      }
    },
  ),
  withRate(
    "a rate gives one more to takes",
    "take: concurrent takes give no more of a rate than its count",
    (slot, rate) => ({
      ...slot,
      rate: { ...rate, count: rate.count + 1 },
    }),
  ),
  broken(
    "a run with an owner waits for one slot at a time",
    "slots: a run with an owner that asks gets all permits in its turn",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const slots = write.asks === true ? write.slots?.slice(0, 1) : write.slots;
        return super.create(key, { ...write, slots }, idempotencyKey);
      }
    },
  ),
  withSlots(
    "a take-over keeps the first permit alone",
    "take: a run of a dead owner keeps all its permits, and one that is looked at takes none",
    (slots, { owner }) => (owner === "dead" ? slots.slice(0, 1) : slots),
  ),
  broken(
    "permits of several slots are never freed",
    gone,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, unusedForMs: undefined });
      }
    },
  ),
  broken(
    "a run without a process keeps its first permit",
    gone,
    class extends OpenStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const isKept = write.slots?.[0]?.key === ":a" && this.all().length > 0;
        return isKept && write.head.holds_slot ? { conflict: "full" } : super.create(key, write, idempotencyKey);
      }
    },
  ),
  withSlots(
    "each process has a rate of its own",
    "slots: concurrent creates get no more permits of several slots than there are",
    (slots, _head, n) =>
      slots.map((slot) => (slot.rate === undefined ? slot : { ...slot, key: `${slot.key}${n % 2}` })),
  ),
  withRate("a rate is a limit", inWindow, (slot, { count }) => ({ key: slot.key, max: count })),
  withRate("a rate is never full", inWindow, (slot) => ({ key: slot.key, max: 99 })),
  withRate("a rate gives one more", inWindow, (slot, rate) => ({ ...slot, rate: { ...rate, count: rate.count + 1 } })),
  withRate("a window is a moment too short", inWindow, (slot, rate) => ({
    ...slot,
    rate: { ...rate, perMs: rate.perMs - 1 },
  })),
  withRate("a window is a moment too long", inWindow, (slot, rate) => ({
    ...slot,
    rate: { ...rate, perMs: rate.perMs + 1 },
  })),
  broken(
    "a rate gives its count in each second of the clock",
    inWindow,
    class extends OpenStore {
      // Each window has a key of its own.
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const window = (rate: Rate): number => Math.floor(this.clock.now() / rate.perMs);
        const slots = write.slots?.map((slot) =>
          slot.rate ? { ...slot, key: `${slot.key}${window(slot.rate)}` } : slot,
        );
        return super.create(key, { ...write, slots }, idempotencyKey);
      }
    },
  ),
  broken(
    "what was given in the future does not count",
    "slots: a rate gives no more also after the clock was set back",
    class extends OpenStore {
      #last = Number.NEGATIVE_INFINITY;
      #turns = 0;
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        if (this.clock.now() < this.#last) this.#turns += 1;
        this.#last = this.clock.now();
        const slots = write.slots?.map((slot) => ({ ...slot, key: `${slot.key}${this.#turns}` }));
        return super.create(key, { ...write, slots }, idempotencyKey);
      }
    },
  ),
  withRate("another count is another rate", changed, (slot, rate) => ({ ...slot, key: `${slot.key}${rate.count}` })),
  broken(
    "the count of a rate is that of the first run",
    changed,
    class extends MemoryStore {
      readonly #counts = new Map<string, number>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const slots = write.slots?.map((slot) => {
          if (slot.rate === undefined) return slot;
          const count = this.#counts.get(slot.key) ?? slot.rate.count;
          this.#counts.set(slot.key, count);
          return { ...slot, rate: { ...slot.rate, count } };
        });
        return super.create(key, { ...write, slots }, idempotencyKey);
      }
    },
  ),
  broken(
    "a run that waits for a rate waits for ever",
    atItsTime,
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take({ ...request, limit: super.lines({ limit: 1 }).length === 0 ? request.limit : 0 });
      }
    },
  ),
  broken(
    "a new run takes a rate from those that wait for it",
    atItsTime,
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        const isOver = super.lines({ limit: 1 }).every(({ next_at }) => next_at === undefined);
        if (answer?.conflict !== "full" || !isOver) return answer;
        return super.create(key, { ...write, slots: undefined }, idempotencyKey);
      }
    },
  ),
  broken(
    "a refused run counts for a rate",
    "slots: a refused or waiting run takes nothing from a rate",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        const slots = write.slots?.filter(({ rate }) => rate !== undefined);
        if (answer?.conflict !== "full") return answer;
        super.create({ ...key, tenant: "hidden" }, { ...write, slots }, null);
        return answer;
      }
    },
  ),
  ...(["released", "asks"] as const).map((what) =>
    broken(
      what === "asks" ? "a run that asks again waits for its rate" : "a rate counts a run each time it comes back",
      oneTime,
      class extends MemoryStore {
        override append(key: RunKey, expected: Expected, write: RunWrite): Written {
          const comes = what === "asks" ? write.asks === true : write.head.owner === null && write.head.due_at !== null;
          const head = comes ? { ...write.head, due_at: null } : write.head;
          return super.append(key, expected, { ...write, head, asks: comes ? undefined : write.asks });
        }
      },
    ),
  ),
  withSlots("a rate takes the place of a limit", "slots: a slot may have a limit and a rate", (slots) =>
    slots.map(({ key, max, rate }) => (rate === undefined ? { key, max } : { key, rate })),
  ),
  withSlots("a limit takes the place of a rate", "slots: a slot may have a limit and a rate", (slots) =>
    slots.map(({ key, max, rate }) => (max === undefined ? { key, rate } : { key, max })),
  ),
  broken(
    "rates are deleted with their runs",
    "prune: keeps what still counts of a rate",
    class extends MemoryStore {
      #prunes = 0;
      override prune(retention: Retention): number {
        this.#prunes += 1;
        return super.prune(retention);
      }
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const slots = write.slots?.map((slot) => ({ ...slot, key: `${slot.key}${this.#prunes}` }));
        return super.create(key, { ...write, slots }, idempotencyKey);
      }
    },
  ),
  withLines("lines gives no rates", shown, (lines) => lines.map((line) => ({ ...line, rate: undefined }))),
  withLines("lines does not tell when a rate gives again", shown, (lines) =>
    lines.map((line) => ({ ...line, next_at: undefined })),
  ),
  withLines("lines gives a limit where there is none", shown, (lines) => lines.map((line) => ({ max: 0, ...line }))),
  broken(
    "lines tells when a rate gives again once it does",
    shown,
    class extends MemoryStore {
      #told: Lines = [];
      override lines(query: Parameters<MemoryStore["lines"]>[0]): Lines {
        const lines = super.lines(query).map((line, n) => ({ next_at: this.#told[n]?.next_at, ...line }));
        this.#told = lines;
        return lines;
      }
    },
  ),
];

/** A store that uses other slots for each run. */
function withSlots(
  fault: string,
  caughtBy: string,
  twist: (slots: Slots, head: RunHead, n: number) => Slots,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      #n = 0;
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#n += 1;
        const slots = write.slots && twist(write.slots, write.head, this.#n);
        return super.create(key, { ...write, slots }, idempotencyKey);
      }
    },
  );
}

/** A store that uses another slot for each one that has a rate. */
function withRate(fault: string, caughtBy: string, twist: (slot: Slot, rate: Rate) => Slot): BrokenStore {
  return withSlots(fault, caughtBy, (slots) => slots.map((slot) => (slot.rate ? twist(slot, slot.rate) : slot)));
}

/** A store whose `lines` answers something else. */
function withLines(fault: string, caughtBy: string, twist: (lines: Lines) => Lines): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override lines(query: Parameters<MemoryStore["lines"]>[0]): Lines {
        return twist(super.lines(query));
      }
    },
  );
}
