import { join } from "node:path";
import type { Clock } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store, StoreHint } from "cadenza/store";
import { onTestFinished } from "vitest";
import { FakeClock } from "../clock.ts";
import type { DurableRuntimeOptions } from "../durable-runtime.ts";
import { withMembers } from "../port-proxy.ts";
import { never } from "../promises.ts";
import type { Setup } from "../runtimes.ts";
import { setUp } from "../runtimes.ts";
import { makeEmptyFile, openDatabase, temporaryFolder } from "../sqlite-files.ts";
import type { Hook } from "../store-proxy.ts";
import { hookedStore, lastingStore } from "../store-proxy.ts";

/*
 * Processes on one store, with one fake clock. Unlike those of a `World` they take real turns of the event loop, as a
 * file needs. Each may have a hook around its calls of the store.
 */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;

/** A process: a runtime, and what it has logged. */
export interface Replica extends Setup {
  /** The process dies: its actions have no effect from now on. */
  kill(): void;
}

export class Replicas {
  readonly clock: FakeClock;
  readonly #open: () => Store;

  /** `open`: the store as one more process opens it. */
  constructor(open: (clock: FakeClock) => Store, turns?: number) {
    this.clock = new FakeClock(turns);
    this.#open = () => open(this.clock);
  }

  /** Starts a process, with a hook around its calls of the store. */
  start(options: DurableRuntimeOptions = {}, hook: Hook = (call) => call()): Replica {
    let isDead = false;
    const { clock } = this;
    const throughHook: Hook = (call, method, parameters) => (isDead ? never() : hook(call, method, parameters));
    const set = setUp({ durability, clock, ...options, store: hookedStore(throughHook, this.#open()) });
    return {
      ...set,
      clock,
      kill() {
        isDead = true;
      },
    };
  }
}

/** Processes on one store in memory, which outlives them. */
export function inMemory(turns?: number): Replicas {
  let shared: Store | undefined;
  return new Replicas((clock) => {
    shared ??= lastingStore(clock);
    return shared;
  }, turns);
}

/** The same, on a store that has hints. It gives those that are told, to all processes that watch. */
export function inMemoryWithHints(): {
  readonly replicas: Replicas;
  readonly tell: (hint: StoreHint) => void;
  readonly watching: ReadonlySet<unknown>;
} {
  const watching = new Set<(hint: StoreHint) => void>();
  const tell = (hint: StoreHint): void => {
    for (const callback of [...watching]) callback(hint);
  };
  let shared: Store | undefined;
  const replicas = new Replicas((clock) => {
    shared ??= lastingStore(clock);
    return withMembers<Store>(shared, {
      watch: (callback) => {
        watching.add(callback);
        return () => watching.delete(callback);
      },
    });
  });
  return { replicas, tell, watching };
}

/** Processes on one file. */
export function onFile(turns?: number): Replicas & { readonly path: string } {
  const folder = temporaryFolder();
  const path = join(folder.path, "runs.db");
  makeEmptyFile(path);
  const opened: Store[] = [];
  onTestFinished(async () => {
    for (const store of opened) await store.close();
    folder.remove();
  });
  const replicas = new Replicas((clock) => {
    const store = openFile(path, clock);
    opened.push(store);
    return store;
  }, turns);
  return Object.assign(replicas, { path });
}

export function openFile(path: string, clock?: Clock): Store {
  return new SqliteStore(openDatabase(path), {
    clock,
    synchronous: "NORMAL",
    closeDatabase: true,
  });
}
