import type { Clock } from "cadenza";
import type { Entry, RunWrite, Store } from "cadenza/store";
import { withMembers } from "./port-proxy.ts";
import { hookedStore } from "./store-proxy.ts";

/* Stores and clocks with a fault, with which a test checks that a judge finds it. */

/** Faults, each planted at a port. */
export interface Plant {
  /** Replaces the store, which outlives its processes. */
  readonly store?: (store: Store) => Store;
  /** Replaces the store as each process of a simulated world sees it. */
  readonly view?: (store: Store) => Store;
  /** Replaces the clock, or that of each process. */
  readonly clock?: (clock: Clock) => Clock;
}

/** By how much an unaware clock advances at most between two readings: more than a heartbeat. In milliseconds. */
const MAX_ADVANCE_MS = 350;

/** A store that writes more than the runtime gives it. */
export function afterAppend(store: Store, more: (write: RunWrite) => readonly Entry[]): Store {
  return withMembers(store, {
    append: (key, expected, write) => {
      const conflict = store.append(key, expected, write);
      const entries = more(write);
      const { head } = write;
      const position = expected.position + write.entries.length;
      if (entries.length > 0) void store.append(key, { epoch: head.epoch, position }, { entries, head });
      return conflict;
    },
  });
}

/** A store that writes other entries than the runtime gives it, and ignores positions. */
export function changedWrites(store: Store, change: (entry: Entry) => readonly Entry[]): Store {
  const lengths = new Map<string, number>();
  return withMembers(store, {
    create: (key, write, idempotencyKey) => {
      const entries = write.entries.flatMap(change);
      lengths.set(key.run_id, entries.length);
      return store.create(key, { ...write, entries }, idempotencyKey);
    },
    append: (key, expected, write) => {
      const entries = write.entries.flatMap(change);
      const position = lengths.get(key.run_id) ?? 0;
      lengths.set(key.run_id, position + entries.length);
      return store.append(key, { ...expected, position }, { ...write, entries });
    },
  });
}

/** A store that confirms a write, and carries it out at the next call. */
export function eagerToConfirm(store: Store): Store {
  let owed: (() => unknown) | undefined;
  return hookedStore((call, method) => {
    void owed?.();
    owed = method === "append" ? call : undefined;
    return method === "append" ? undefined : call();
  }, store);
}

/** A clock that loses some of its timers. */
export function withTimers(clock: Clock, loses: (delayMs: number) => boolean): Clock {
  return withMembers(clock, {
    setTimeout: (callback, delayMs) => (loses(delayMs) ? () => {} : clock.setTimeout(callback, delayMs)),
  });
}

/** A clock that hides for how long its process was frozen. */
export function unawareClock(clock: Clock): Clock {
  let last = clock.now();
  let shown = last;
  const now = (): number => {
    const time = clock.now();
    shown += Math.min(time - last, MAX_ADVANCE_MS);
    last = time;
    return shown;
  };
  return withMembers(clock, { now, monotonic: now });
}

/** A store that reads the results of steps in the reverse order. */
export function reversedResults(store: Store): Store {
  return withMembers(store, {
    read: async (key, from, limit) => {
      const entries = await store.read(key, from, limit);
      const results = entries?.filter(({ type }) => type === "step") ?? [];
      return entries?.map((entry) => (entry.type === "step" ? (results.pop() ?? entry) : entry));
    },
  });
}

/** A store that keeps no leases: no owner counts as living. */
export function withoutLeases(store: Store): Store {
  return withMembers(store, { renew: () => undefined });
}
