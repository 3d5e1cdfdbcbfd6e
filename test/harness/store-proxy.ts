import type { Clock } from "cadenza";
import { MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import type { FeedOptions } from "./internals.ts";
import { systemClock } from "./internals.ts";
import { withMembers } from "./port-proxy.ts";
import { nextTurn } from "./promises.ts";

export type Method = Exclude<keyof Store, "persistent">;

/** The methods of a store that change nothing in it. */
const reads: ReadonlySet<string> = new Set([
  "find",
  "read",
  "snapshot",
  "findByIdempotencyKey",
  "list",
  "due",
  "moved",
  "owned",
  "backlog",
  "lines",
  "pauses",
  "blocked",
  "survey",
  "tails",
  "census",
  "living",
  "workers",
  "session",
  "sessionHead",
  "counters",
  "readFeed",
  "watch",
]);

export function isRead(method: string): boolean {
  return reads.has(method);
}

/** Called in place of a method of the store; it may pass the call on. */
export type Hook = (call: () => unknown, method: Method, parameters: readonly unknown[]) => unknown;

/** The same store, each of whose calls goes through a hook. */
export function hookedStore(hook: Hook, store: Store = new MemoryStore()): Store {
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...parameters: unknown[]) =>
        hook(() => Reflect.apply(member, target, parameters) as unknown, name as Method, parameters);
    },
  });
}

/** The same store, which counts as persistent: it outlives the runtimes of a test. */
export function persistent(store: Store): Store {
  return withMembers(store, { persistent: true });
}

/** A store in memory that counts as persistent. */
export function lastingStore(clock?: Pick<Clock, "now">, feed?: FeedOptions): Store {
  const store: Store = new MemoryStore({ clock, feed });
  return withMembers(store, { persistent: true, time: () => (clock ?? systemClock).now() });
}

/** The same store, which keeps every second snapshot as it was given. The others are lost, torn, or of another format. */
export function forgetful(store: Store): Store {
  let kept = 0;
  const keepSnapshot: Store["keepSnapshot"] = (key, snapshot) => {
    const { state, format } = snapshot;
    const spoilt = [
      snapshot,
      undefined,
      snapshot,
      { ...snapshot, state: state.slice(0, state.length / 2) },
      snapshot,
      { ...snapshot, format: format + 1 },
    ][kept++ % 6];
    return spoilt && store.keepSnapshot?.(key, spoilt);
  };
  return withMembers(store, { keepSnapshot });
}

/** A store as over a network: every call takes effect and is answered in a later turn of the event loop. */
export function lateStore(store?: Store): Store {
  return hookedStore(async (call) => {
    await nextTurn();
    return call();
  }, store);
}

/** A store whose calls a test lets fail. */
export interface FailingStore {
  readonly store: Store;
  /** How many more calls of each method fail. */
  readonly failing: Partial<Record<Method, number>>;
  /** How many more calls of each method take effect and then fail, as when a connection breaks. */
  readonly losing: Partial<Record<Method, number>>;
}

export function failingStore({ late = false }: { late?: boolean } = {}): FailingStore {
  const failing: FailingStore["failing"] = {};
  const losing: FailingStore["losing"] = {};
  const take = (from: FailingStore["failing"], method: Method): boolean => {
    const left = from[method] ?? 0;
    from[method] = left - 1;
    return left > 0;
  };
  const work = (call: () => unknown, method: Method): unknown => {
    if (take(failing, method)) throw new Error(`the disk is full (${method})`);
    const answer = call();
    if (take(losing, method)) throw new Error(`the connection broke (${method})`);
    return answer;
  };
  const hook: Hook = late
    ? async (call, method) => {
        await nextTurn();
        return work(call, method);
      }
    : work;
  return { store: hookedStore(hook), failing, losing };
}

/** Counts the calls of a store, and the entries that are written and read. */
export interface CountingStore {
  readonly store: Store;
  readonly calls: Partial<Record<Method, number>>;
  readonly entries: { written: number; read: number };
}

export function countingStore(): CountingStore {
  const calls: CountingStore["calls"] = {};
  const entries = { written: 0, read: 0 };
  const store = hookedStore((call, method, parameters) => {
    calls[method] = (calls[method] ?? 0) + 1;
    const answer = call();
    const write = parameters[method === "create" ? 1 : 2];
    if (method === "create" || method === "append")
      entries.written += (write as { entries: readonly unknown[] }).entries.length;
    if (method === "read") entries.read += (answer as readonly unknown[]).length;
    return answer;
  });
  return { store, calls, entries };
}
