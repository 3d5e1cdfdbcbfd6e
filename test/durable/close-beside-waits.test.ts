import type { AgentContext, RegisterOptions } from "cadenza";
import { expect, it } from "vitest";
import type { FakeClock } from "../harness/clock.ts";
import { Random } from "../harness/random.ts";
import type { Replica } from "../harness/world/replicas.ts";
import { inMemory } from "../harness/world/replicas.ts";

/*
 * Processes are closed while steps are at work beside all kinds of waits. Each step takes less than half of the drain: it
 * is done where it began, and begins nowhere else. At any time at most `max` runs have a step at work.
 */

const CLOSES = 200;
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
  const options = { durable: true, concurrency: { max: MAX } } as RegisterOptions;
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

it("nothing begins twice, and max holds", async () => {
  const seed = Number(process.env["SEED"] ?? 27);
  for (let trial = 0; trial < CLOSES / CLOSES_PER_TRIAL; trial++) {
    const random = new Random(`${seed}/${trial}`);
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock, random);
    const start = (): Replica => {
      const replica = replicas.start({ durability });
      register(replica, bodies);
      return replica;
    };
    const web = replicas.start({ durability, work: false });
    web.runtime.declare({ name: "agent", durable: true, concurrency: { max: MAX } });
    const workers = Array.from({ length: WORKERS }, start);
    const ids: string[] = [];
    for (let n = 0; n < RUNS; n++)
      ids.push(
        (await web.runtime.createRun({ agent_name: "agent", input: `${seed}/${trial}/${n}`, mode: "async" })).run_id,
      );
    for (let close = 0; close < CLOSES_PER_TRIAL; close++) {
      for (let times = random.below(4); times > 0; times--) {
        await clock.advance(1 + random.below(300));
        await talk(web, ids, random);
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
        await talk(web, ids, random);
      }
      await closing;
    }
    const isOver = async (): Promise<boolean> => {
      for (const id of ids) if ((await web.runtime.getRun(id)).status !== "completed") return false;
      return true;
    };
    for (let times = 0; times < 600 && !(await isOver()); times++) {
      await clock.advance(100);
      await talk(web, ids, random);
    }
    const at = `seed ${seed}, trial ${trial}`;
    expect(bodies.wrong, at).toEqual([]);
    expect(await isOver(), at).toBe(true);
    expect(bodies.begun.size, at).toBe(RUNS * STEPS);
    for (const { runtime } of [...workers, web]) void runtime.close({ drainMs: 0 }).catch(() => undefined);
    await clock.advance(100);
  }
});
