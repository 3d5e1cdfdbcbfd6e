import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import pg from "pg";
import { openDatabase, withFile } from "../sqlite-files.ts";
import { hookedStore } from "../store-proxy.ts";

/* How fast workers with few places work off what waits, and how often they ask the store for it. */

/** How many runs each worker executes at a time, and how long a run takes, in milliseconds. */
const MAX = 20;
const RUN_MS = 50;
/** After so long each worker knows the others. */
const SETTLED_MS = 4_000;
/** The connections of each worker. */
const CONNECTIONS = 3;

/** How fast waiting runs were worked off, as a share of what the places of the workers allow. */
export async function fullWorkers(workers: number, count: number): Promise<{ perSecond: number; ofIdeal: number }> {
  return withFile(async (file) => {
    const open = (): Store =>
      durable(new SqliteStore(openDatabase(file), { closeDatabase: true, synchronous: "NORMAL" }));
    const crowd = new Crowd(open);
    await crowd.create(count, 50);
    crowd.start(workers);
    await crowd.untilCompleted(count);
    await crowd.close();
    const perSecond = count / ((crowd.lastAt - crowd.firstAt + RUN_MS) / 1_000);
    return { perSecond, ofIdeal: perSecond / ((workers * MAX * 1_000) / RUN_MS) };
  });
}

/** How often workers on a store that gives hints asked for each of the runs that came at a rate. */
export async function takesPerRun(
  { host, port }: { readonly host: string; readonly port: number },
  { workers, perSecond, seconds }: { readonly workers: number; readonly perSecond: number; readonly seconds: number },
): Promise<{ takes: number; p50Ms: number; p99Ms: number; most: number }> {
  const pools: pg.Pool[] = [];
  const schema = `asking_${Date.now()}`;
  const open = async (): Promise<Store> => {
    const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: CONNECTIONS });
    pools.push(pool);
    return openPostgresStore({ pool, schema });
  };
  const stores: Store[] = [];
  for (let n = 0; n <= workers; n++) stores.push(await open());
  const crowd = new Crowd(() => stores.pop() as Store);
  crowd.start(workers);
  await new Promise((resolve) => setTimeout(resolve, SETTLED_MS));
  const scansBefore = performance.now();
  crowd.takes = 0;
  const count = perSecond * seconds;
  await crowd.createAt(count, perSecond);
  await crowd.untilCompleted(count);
  // Each worker also asks every second, whether runs come or not.
  const scans = (workers * (performance.now() - scansBefore)) / 1_000;
  const takes = Math.max(0, crowd.takes - scans) / count;
  await crowd.close();
  for (const pool of pools) await pool.end();
  const delays = crowd.delays.toSorted((a, b) => a - b);
  const most = Math.max(...crowd.begun.values()) / count;
  return { takes, most, p50Ms: delays[count >> 1] ?? 0, p99Ms: delays[Math.ceil(0.99 * count) - 1] ?? 0 };
}

/** A process that accepts runs, and workers that execute them. */
class Crowd {
  takes = 0;
  firstAt = 0;
  lastAt = 0;
  completed = 0;
  /** From when a run was accepted until it began, in milliseconds. */
  readonly delays: number[] = [];
  /** How many runs each worker has begun. */
  readonly begun = new Map<AgentRuntime, number>();
  readonly #open: () => Store;
  readonly #web: AgentRuntime;
  readonly #stores: Store[] = [];

  constructor(open: () => Store) {
    this.#open = open;
    this.#web = new AgentRuntime({ store: this.#store(), work: false });
    this.#web.declare({ name: "waits", durable: true });
  }

  #store(): Store {
    const store = this.#open();
    this.#stores.push(store);
    return store;
  }

  start(workers: number): void {
    for (let n = 0; n < workers; n++) {
      const store = hookedStore((call, method) => {
        if (method === "take") this.takes += 1;
        return call();
      }, this.#store());
      const runtime = new AgentRuntime({ store, work: { max: MAX } });
      this.begun.set(runtime, 0);
      runtime.register("waits", { durable: true }, async (input, { step }) => {
        await step("work", () => {
          const now = performance.now();
          this.firstAt ||= now;
          this.begun.set(runtime, (this.begun.get(runtime) ?? 0) + 1);
          this.delays.push(now - Number(input[0]?.parts[0]?.content));
          return new Promise((resolve) => setTimeout(resolve, RUN_MS));
        });
      });
      runtime.on("run.completed", () => {
        this.lastAt = performance.now();
        this.completed += 1;
      });
    }
  }

  async #one(): Promise<void> {
    await this.#web.createRun({ agent_name: "waits", input: `${performance.now()}`, mode: "async" });
  }

  async create(count: number, atOnce: number): Promise<void> {
    let left = count;
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
        while (left-- > 0) await this.#one();
      }),
    );
  }

  /** Creates runs at random times. */
  async createAt(count: number, perSecond: number): Promise<void> {
    const creating: Promise<void>[] = [];
    let at = performance.now();
    for (let n = 0; n < count; n++) {
      at += (-Math.log(1 - Math.random()) * 1_000) / perSecond;
      const waitMs = at - performance.now();
      if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
      creating.push(this.#one());
    }
    await Promise.all(creating);
  }

  async untilCompleted(count: number): Promise<void> {
    const giveUpAt = Date.now() + 120_000;
    while (this.completed < count && Date.now() < giveUpAt) await new Promise((resolve) => setTimeout(resolve, 5));
    if (this.completed < count) throw new Error(`Only ${this.completed} of ${count} runs completed.`);
  }

  async close(): Promise<void> {
    for (const runtime of [...this.begun.keys(), this.#web]) await runtime.close({ drainMs: 0 });
    for (const store of this.#stores) await store.close();
  }
}
