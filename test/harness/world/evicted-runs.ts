import { join } from "node:path";
import { setImmediate as inNextTurn } from "node:timers";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "cadenza";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { durable } from "cadenza/store";
import { openDatabase, temporaryFolder } from "../sqlite-files.ts";

export interface Eviction {
  /** Bytes on the heap after the first hundred runs have ended, and after all others have been evicted. */
  readonly heapBefore: number;
  readonly heapEvicted: number;
  /** How many were left in memory. */
  readonly loaded: number;
  readonly completed: number;
}

const BATCH = 200;
const WARM_UP = 100;
/** A clock whose time stands still. Timers without a delay fire in the next turn. */
const clock: Clock = {
  now: () => Date.UTC(2031, 0, 1),
  setTimeout: (callback, delayMs) => {
    let isOff = false;
    if (delayMs === 0) inNextTurn(() => !isOff && callback());
    return () => {
      isOff = true;
    };
  },
  turn: () => new Promise((resolve) => inNextTurn(resolve)),
};

/** Creates many runs that ask, waits until they are evicted, and answers them all. */
export async function evictAndAnswer(count: number): Promise<Eviction> {
  const folder = temporaryFolder();
  const db = openDatabase(join(folder.path, "runs.db"));
  const store = new SqliteStore(db, { synchronous: "NORMAL", closeDatabase: true });
  const runtime = new AgentRuntime({ store: durable(store, { evictAfterMs: 0 }), clock });
  runtime.register("asks", { durable: true }, async function* (_input, { ask, step }) {
    yield `prepared ${await step("prepare", () => 1)}`;
    const answer = await ask("Go on?");
    yield JSON.stringify(answer);
  });
  try {
    await answer(runtime, await ask(runtime, WARM_UP));
    const heapBefore = await heap();
    const ids = await ask(runtime, count);
    await turns(20);
    const heapEvicted = await heap();
    const { live } = await runtime.stats();
    const loaded = Object.values(live).reduce((sum, each) => sum + each, 0);
    await answer(runtime, ids);
    const { agents } = await runtime.stats();
    return { heapBefore, heapEvicted, loaded, completed: (agents["asks"]?.completed ?? 0) - WARM_UP };
  } finally {
    await runtime.close({ drainMs: 0 });
    folder.remove();
  }
}

/** Creates runs and gives their ids in a buffer, which is off the heap. */
async function ask(runtime: AgentRuntime, count: number): Promise<Buffer> {
  const ids = Buffer.alloc(count * 36);
  for (let done = 0; done < count; done += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - done) }, async (_, index) => {
      const { run_id, status } = await runtime.createRun({ agent_name: "asks", input: "Go." });
      if (status !== "awaiting") throw new Error(`A run is ${status}.`);
      ids.write(run_id, (done + index) * 36, "latin1");
    });
    await Promise.all(batch);
    await turns(5);
  }
  return ids;
}

async function answer(runtime: AgentRuntime, ids: Buffer): Promise<void> {
  for (let from = 0; from < ids.byteLength; from += BATCH * 36) {
    const batch: Promise<unknown>[] = [];
    for (let at = from; at < Math.min(from + BATCH * 36, ids.byteLength); at += 36) {
      const run_id = ids.toString("latin1", at, at + 36);
      batch.push(runtime.resume({ run_id, await_resume: { yes: true } }));
    }
    await Promise.all(batch);
  }
}

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await clock.turn();
}

async function heap(): Promise<number> {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (let time = 0; time < 4; time++) {
    collect();
    await turns(2);
  }
  return process.memoryUsage().heapUsed;
}
