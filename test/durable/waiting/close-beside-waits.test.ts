import type { AgentContext, AgentOptions } from "cadenza";
import type { RunWrite } from "cadenza/store";
import { expect, it } from "vitest";
import type { FakeClock } from "../../harness/clock.ts";
import { deferred } from "../../harness/promises.ts";
import { Random } from "../../harness/random.ts";
import { share } from "../../harness/share.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/*
 * Processes are closed while steps are at work beside all kinds of waits. Each step takes less than half of the drain: it
 * is done where it began, and begins nowhere else. At any time at most `max` runs have a step at work.
 */

/** On a store that answers at once, and on one that takes some time. */
const CLOSES = { atOnce: share(200, 50), slow: share(20, 10) };
const CLOSES_PER_TRIAL = 5;
const MAX = 3;
const WORKERS = 3;
const RUNS = 12;
const DRAIN_MS = 1_000;
const LONGEST_STEP_MS = 450;
const STEPS = 4;
const durability = { leaseMs: 2_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };

/** What goes on beside a step. */
const waits: readonly ((context: AgentContext, n: number) => Promise<unknown>)[] = [
  async () => undefined,
  ({ ask }, n) => ask("Well?", { name: `ask ${n}` }),
  ({ ask }, n) => ask("Well?", { name: `late ${n}`, timeoutMs: 700, default: { late: true } }),
  ({ sleep }) => sleep(600),
  ({ receive }) => receive("news", { timeoutMs: 800 }).catch(() => "no news"),
  ({ run }) => run("child", ""),
];

/** The bodies of steps: which have begun, and how many are at work. */
class Bodies {
  readonly begun = new Map<string, number>();
  readonly wrong: string[] = [];
  readonly #clock: FakeClock;
  readonly #random: Random;
  #atWork = 0;

  constructor(clock: FakeClock, random: Random) {
    this.#clock = clock;
    this.#random = random;
  }

  async work(run_id: string, key: string): Promise<void> {
    const name = `${run_id} ${key}`;
    const times = (this.begun.get(name) ?? 0) + 1;
    this.begun.set(name, times);
    if (times > 1) this.wrong.push(`${name} began ${times} times`);
    this.#atWork += 1;
    if (this.#atWork > MAX) this.wrong.push(`${this.#atWork} bodies are at work`);
    const lasts = 1 + this.#random.below(LONGEST_STEP_MS);
    await new Promise<void>((resolve) => void this.#clock.setTimeout(resolve, lasts));
    this.#atWork -= 1;
  }
}

function register({ runtime }: Replica, bodies: Bodies): void {
  runtime.register("child", { durable: true }, async (_input: unknown, { sleep }: AgentContext) => {
    await sleep(300);
  });
  const options = { durable: true, concurrency: { max: MAX } } as AgentOptions;
  runtime.register(
    "agent",
    options,
    async (input: readonly { readonly parts: readonly { readonly content?: unknown }[] }[], context: AgentContext) => {
      const random = new Random(String(input[0]?.parts[0]?.content));
      for (let n = 0; n < STEPS; n++) {
        const wait = waits[random.below(waits.length)];
        const step = context.step(`work ${n}`, ({ key }) => bodies.work(context.run_id, key));
        await Promise.all([step, wait?.(context, n)]);
      }
    },
  );
}

/** Answers each open question of the runs, and sends news. */
async function talk({ runtime }: Replica, ids: readonly string[], random: Random): Promise<void> {
  for (const run_id of ids) {
    const { await_requests, status } = await runtime.details(run_id);
    if (status === "completed") continue;
    for (const { await_id } of await_requests)
      if (random.chance(0.5))
        void runtime.resume({ run_id, await_id, await_resume: {}, mode: "async" }).catch(() => undefined);
    if (random.chance(0.3)) void runtime.send({ to: run_id, name: "news", data: 1 }).catch(() => undefined);
  }
}

/** The store answers at once, or takes some time before and after it does what it is asked for, as over a network. */
it.each([0, 12])("nothing begins twice, and max holds (a store that takes up to %d ms)", async (storeMs) => {
  const seed = Number(process.env["SEED"] ?? 27);
  const closes = storeMs === 0 ? CLOSES.atOnce : Number(process.env["CLOSES"] ?? CLOSES.slow);
  for (let trial = 0; trial < closes / CLOSES_PER_TRIAL; trial++) {
    const random = new Random(`${seed}/${trial}`);
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock, random);
    const pause = (): Promise<void> => new Promise((resolve) => void clock.setTimeout(resolve, random.below(storeMs)));
    const slow: Hook = async (call, method) => {
      if (storeMs === 0 || method === "watch" || method === "close") return call();
      await pause();
      const answer = await call();
      await pause();
      return answer;
    };
    /** Time passes until a call is answered. */
    const passing = async <T>(call: Promise<T>): Promise<T> => {
      let isAnswered = false;
      const answered = call.finally(() => {
        isAnswered = true;
      });
      while (storeMs > 0 && !isAnswered) await clock.advance(5);
      return answered;
    };
    const start = (): Replica => {
      const replica = replicas.start({ durability }, slow);
      register(replica, bodies);
      return replica;
    };
    const web = replicas.start({ durability, work: false }, slow);
    web.runtime.declare({ name: "agent", durable: true, concurrency: { max: MAX } });
    const workers = Array.from({ length: WORKERS }, start);
    const ids: string[] = [];
    for (let n = 0; n < RUNS; n++)
      ids.push(
        (await passing(web.runtime.createRun({ agent_name: "agent", input: `${seed}/${trial}/${n}`, mode: "async" })))
          .run_id,
      );
    for (let close = 0; close < CLOSES_PER_TRIAL; close++) {
      for (let times = random.below(4); times > 0; times--) {
        await clock.advance(1 + random.below(300));
        await passing(talk(web, ids, random));
      }
      let isClosed = false;
      const closing = workers
        .shift()
        ?.runtime.close({ drainMs: DRAIN_MS })
        .then(() => {
          isClosed = true;
        });
      workers.push(start());
      while (!isClosed) {
        await clock.advance(50);
        await passing(talk(web, ids, random));
      }
      await closing;
    }
    const isOver = async (): Promise<boolean> => {
      for (const id of ids) if ((await web.runtime.getRun(id)).status !== "completed") return false;
      return true;
    };
    for (let times = 0; times < 600 && !(await passing(isOver())); times++) {
      await clock.advance(100);
      await passing(talk(web, ids, random));
    }
    const at = `seed ${seed}, trial ${trial}`;
    expect(bodies.wrong, at).toEqual([]);
    expect(await passing(isOver()), at).toBe(true);
    expect(bodies.begun.size, at).toBe(RUNS * STEPS);
    for (const { runtime } of [...workers, web]) void runtime.close({ drainMs: 0 }).catch(() => undefined);
    await clock.advance(100);
  }
});

// The head with which the run gives its slot back is written again, since a message comes in between, and meanwhile the
// run is to be handed on.
it("a run that is handed on with an answer that nothing has looked at is due at once", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const work = deferred();
  let isHolding = false;
  const held = deferred();
  const holding: Hook = async (call, method, [, , write]) => {
    const isHead = method === "append" && (write as RunWrite).entries.length === 0;
    if (isHead && isHolding) {
      isHolding = false;
      await held.promise;
    }
    return call();
  };
  const begun: string[] = [];
  const start = (name: string, hook?: Hook): Replica => {
    const replica = replicas.start({ durability }, hook);
    replica.runtime.register("agent", { durable: true, concurrency: { max: 1 } }, async (_input, { ask, step }) => {
      const body = (): Promise<void> => {
        begun.push(name);
        return work.promise;
      };
      await Promise.all([step("work", body), ask("Well?")]);
      return "done";
    });
    return replica;
  };
  const web = replicas.start({ durability, work: false });
  web.runtime.declare({ name: "agent", durable: true, concurrency: { max: 1 } });
  const first = start("first", holding);
  const { run_id } = await web.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(200);
  expect(begun).toEqual(["first"]);

  const closing = first.runtime.close({ drainMs: DRAIN_MS });
  const answering = web.runtime.resume({ run_id, await_resume: {}, mode: "async" });
  await clock.advance(10);
  isHolding = true;
  work.resolve();
  await clock.advance(DRAIN_MS / 2);
  await web.runtime.send({ to: run_id, name: "news", data: 1 });
  held.resolve();
  await clock.advance(DRAIN_MS / 2);
  await closing;
  expect(isHolding).toBe(false);
  start("second");
  await clock.advance(1_000);
  expect((await web.runtime.getRun(run_id)).status).toBe("completed");
  await answering;
  expect(begun).toEqual(["first"]);
});
