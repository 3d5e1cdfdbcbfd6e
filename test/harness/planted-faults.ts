import type { Entry } from "../../src/core/log.ts";
import type { Clock, RunWrite, Store } from "../../src/core/ports.ts";
import { withMembers } from "./port-proxy.ts";

/* Stores and clocks with a fault, with which a test checks that a judge finds it. */

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

/** A store that confirms a write, and carries it out when the next one comes. */
export function eagerToConfirm(store: Store): Store {
  let owed: (() => unknown) | undefined;
  const pay = (): void => {
    void owed?.();
    owed = undefined;
  };
  return withMembers(store, {
    append: (key, expected, write) => {
      pay();
      owed = () => store.append(key, expected, write);
      return undefined;
    },
    close: () => {
      pay();
      return store.close();
    },
  });
}

/** A clock that loses some of its timers. */
export function withTimers(clock: Clock, loses: (delayMs: number) => boolean): Clock {
  return withMembers(clock, {
    setTimeout: (callback, delayMs) => (loses(delayMs) ? () => {} : clock.setTimeout(callback, delayMs)),
  });
}
