import type { AgentContext } from "cadenza";
import { expect, it } from "vitest";
import { Random } from "../../harness/random.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

const SESSION = "00000000-0000-4000-8000-00000000feed";

it.each(["agent", "session"] as const)("a run that is taken over keeps its slot of its %s", async (per) => {
  const began: string[] = [];
  const world = new World({
    register: (process) =>
      void process.runtime.register(
        "agent",
        { durable: true, concurrency: { max: 1, per } },
        async (input, context) => {
          const [name] = input.flatMap(({ parts }) => parts.map(({ content }) => content));
          await context.step("begin", () => void began.push(`${name} in ${process.name}`));
          await context.step("work", () => process.wait(3_000));
        },
      ),
  });
  const first = world.start();
  await create(world, first, "first");
  await world.pass(100);
  first.kill();
  const second = world.start();
  await world.pass(1_500);
  const later = [await create(world, second, "second"), await create(world, second, "third")];
  await world.pass(1_000);
  expect(began).toEqual(["first in process-1"]);
  await world.pass(2_000);
  expect(began).toEqual(["first in process-1", "second in process-2"]);
  await world.pass(20_000);
  expect(began).toHaveLength(3);
  for (const run_id of later) expect((await world.stateOf(run_id)).status).toBe("completed");
});

async function create(world: World, process: Process, input: string): Promise<string> {
  const request = { agent_name: "agent", input, mode: "async", session_id: SESSION } as const;
  const created = await world.until(process.runtime.createRun(request), process);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  return created.value.run_id;
}

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };

/** Counts what is at work in the living processes, by slot. */
class Meter {
  readonly #world: () => World;
  readonly #atWork = new Map<string, Process[]>();
  most = 0;

  constructor(world: () => World) {
    this.#world = world;
  }

  /** A stopped agent does no work. After the grace period the runtime gives the slot of an agent that ignores its signal away. */
  async work(slot: string, process: Process, ms: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const before = this.#atWork.get(slot) ?? [];
    const now = [...before.filter((one) => this.#world().living.includes(one)), process];
    this.#atWork.set(slot, now);
    this.most = Math.max(this.most, now.length);
    const stopped = new Promise((resolve) => signal.addEventListener("abort", resolve));
    await Promise.race([process.wait(ms), stopped]);
    const working = this.#atWork.get(slot) ?? [];
    working.splice(working.indexOf(process), 1);
  }
}

const sessionOf = ({ session_id }: { readonly session_id: string }): string => session_id;

const SEEDS = Number(process.env["SLOT_SEEDS"] ?? 15);
const first = Number(process.env["SLOT_SEED"] ?? Math.floor(Math.random() * 2 ** 30));

it.each([
  { per: "agent", durable: true },
  { per: "session", durable: true },
  { per: "tenant", durable: true },
  { per: "agent", durable: false },
  { per: "limits", durable: true },
  { per: "limits", durable: false },
] as const)(
  `never more than max runs are at work, and all of them end: per $per, durable $durable (SLOT_SEED=${first})`,
  async ({ per, durable }) => {
    for (let seed = first; seed < first + SEEDS; seed++) {
      const found = await trial(seed, per, durable);
      expect({ seed, ...found }).toEqual({ seed, most: found.most, tooMany: false, open: [], violations: [] });
    }
  },
);

it("a run that a sub-run wakes while it leaves for a slot asks for the slot again", async () => {
  expect(await trial(941_969_660, "agent", true)).toMatchObject({ tooMany: false, open: [], violations: [] });
});

/** Random runs in several processes, of which some are killed. */
async function trial(seed: number, per: "agent" | "session" | "tenant" | "limits", durable: boolean) {
  const random = new Random(`${seed}`);
  const max = 1 + random.below(3);
  const bodies = [0, 1, 2].map(() => random.pick(["work", "ask", "sleep", "both", "subRuns"] as const));
  const naps = [random.pick([1, 20, 45, 80]), random.pick([1, 20, 45, 80, 120])];
  const world = new World({
    random,
    late: random.chance(0.5),
    writeMs: random.pick([0, 0, 40]),
    runtime: { durability: { ...durability, evictAfterMs: random.pick([50, 60_000]) }, work: { max: 4 } },
    register: (process) => {
      const body = async (context: AgentContext): Promise<void> => {
        // All runs are of one tenant.
        const slot = per === "session" ? context.session.id : "all";
        const work = (key: string) =>
          context.step(key, () => meter.work(slot, process, 1 + (seed % 7) * 20, context.signal));
        await work("begin");
        for (const [index, kind] of bodies.entries()) {
          if (kind === "work") await work(`work${index}`);
          if (kind === "sleep") await context.sleep(30, { name: `nap${index}` });
          if (kind === "ask") await context.ask("Well?", { name: `ask${index}` });
          if (kind === "both")
            await Promise.all([
              context.ask("Well?", { name: `ask${index}` }),
              context.step(`beside${index}`, () => process.wait(50)),
            ]);
          if (kind === "subRuns") await Promise.all(naps.map((ms) => context.run("child", `${ms}`)));
          await work(`then${index}`);
        }
      };
      process.runtime.register("child", { durable }, async ([message], { sleep }) => {
        await sleep(Number(message?.parts[0]?.content));
      });
      // Runs of both agents share a limit. One of them has another, whose line comes first, and a rate.
      const few = { name: "few", max };
      const begins = { name: "begins", key: sessionOf, max: 1 + (seed % 2), rate: { count: 2, perMs: 200 } };
      const own = per === "limits" ? { limits: [begins, few], fairBy: sessionOf } : { concurrency: { max, per } };
      process.runtime.register("agent", { durable, ...own }, (_input, context) => body(context));
      const other = per === "limits" ? { limits: [few], priority: (seed % 3) - 1 } : {};
      process.runtime.register("other", { durable, ...other }, (_input, context) => body(context));
    },
  });
  const meter = new Meter(() => world);
  const agents = per === "limits" ? ["agent", "other"] : ["agent"];
  const ids: string[] = [];
  for (let count = 0; count < 3; count++) world.start();
  for (let count = 0; count < 10; count++) {
    const process = random.pick(world.working);
    const session_id = random.pick([SESSION, "00000000-0000-4000-8000-00000000beef"]);
    const created = await world.until(
      process.runtime.createRun({ agent_name: random.pick(agents), input: "", session_id, mode: "async" }),
      process,
    );
    if (created !== undefined && "value" in created) ids.push(created.value.run_id);
    await world.pass(random.below(100));
    if (random.chance(0.1)) {
      process.kill();
      world.start();
    }
  }
  for (let round = 0; round < 200; round++) {
    const states = await Promise.all(ids.map((id) => world.stateOf(id)));
    if (states.every(({ ended }) => ended !== null)) break;
    for (const { status, run_id } of states) {
      const process = random.pick(world.working);
      if (status === "awaiting")
        await world.until(
          process.runtime.resume({ run_id, await_resume: {}, mode: "async" }).catch(() => {}),
          process,
        );
      else if (status !== "completed" && random.chance(0.01))
        await world.until(
          process.runtime.cancel(run_id).catch(() => {}),
          process,
        );
    }
    await world.pass(500);
  }
  const open: string[] = [];
  for (const id of ids) {
    const stored = await world.find(id);
    if (stored?.head.finished_at === null) open.push(`${id}: ${JSON.stringify(stored.head)}`);
  }
  return { most: meter.most, tooMany: meter.most > max, open, violations: world.violations };
}

it.each([
  ["concurrency for each session", { concurrency: { max: 1, per: "session" } }],
  ["a limit with a key", { limits: [{ name: "chat", key: sessionIn, max: 1 }] }],
] as const)(
  "many runs of a customer that wait for one permit do not hold up another one, with %s",
  async (_of, own) => {
    const ended: string[] = [];
    const world = new World({
      register: (process) =>
        void process.runtime.register("chat", { durable: true, ...own }, async ([message], { ask, step, session }) => {
          if (message?.parts[0]?.content === "asks") {
            await step("wait", () => process.wait(1_000_000));
            await ask("Really?");
          }
          await step("end", () => void ended.push(session.id));
        }),
    });
    const process = world.start();
    const acme = process.runtime.scope({ tenant: "acme" });
    const create = (input: string, session_id: string) =>
      world.until(acme.createRun({ agent_name: "chat", input, session_id, mode: "async" }), process);
    const other = SESSION.replace("feed", "beef");
    await create("asks", SESSION);
    await world.pass(200);
    for (let n = 0; n < 70; n++) await create("waits", SESSION);
    await create("goes on", other);
    await world.pass(1_000);
    expect(ended).toEqual([other]);
  },
);

function sessionIn({ session_id }: { readonly session_id: string }): string {
  return session_id;
}
