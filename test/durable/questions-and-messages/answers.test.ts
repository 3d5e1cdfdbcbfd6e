import { CadenzaError } from "cadenza";
import { expect, it } from "vitest";
import { resultKey } from "../../harness/internals.ts";
import { deferred } from "../../harness/promises.ts";
import { Random } from "../../harness/random.ts";
import { reply, textsOf } from "../../harness/runtimes.ts";
import { share } from "../../harness/share.ts";
import { answerInWorld, answerKinds, sumOf } from "../../harness/world/deadline-answers.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import type { Outcome, Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* Answers that come at the same time as another event of the run. */

/** The answer comes after at most this many steps of the world. Nothing happens after them. */
const MAX_STEPS = 40;
/** How many random orders are tried. */
const MAX_SEEDS = share(300, 75);

async function createIn(world: World, process: Process): Promise<string> {
  const creating = process.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const run_id = given(await world.until(creating, process)).run_id;
  while ((await world.stateOf(run_id)).question === null) await world.step();
  return run_id;
}

function given<T>(outcome: Outcome<T> | undefined): T {
  if (outcome === undefined || "error" in outcome) throw outcome?.error ?? new Error("The process died.");
  return outcome.value;
}

function refusedWith(outcome: Outcome<unknown> | undefined): string {
  const error = outcome !== undefined && "error" in outcome ? outcome.error : undefined;
  return CadenzaError.is(error) ? error.code : `not refused: ${JSON.stringify(outcome)}`;
}

it.each([false, true])("an answer is handed over after what the log holds before it (late: %s)", async (late) => {
  const orders = new Set<string>();
  for (let steps = 0; steps <= MAX_STEPS; steps++) {
    const world = new World({
      late,
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
          const order: string[] = [];
          await Promise.all([
            step("look", () => process.wait(5)).then(() => order.push("look#1")),
            ask("Well?").then(() => order.push("ask#1")),
          ]);
          return order.join();
        }),
    });
    const process = world.start();
    const run_id = await createIn(world, process);
    for (let step = 0; step < steps; step++) await world.step();
    const resuming = process.runtime.resume({ run_id, await_resume: { ok: true } });
    const run = given(await world.until(resuming, process));
    const order = (await world.log(run_id)).map(resultKey).filter((key) => key !== undefined);
    expect({ steps, shown: textsOf(run) }).toEqual({ steps, shown: [order.join()] });
    orders.add(order.join());
  }
  expect([...orders].sort()).toEqual(["ask#1,look#1", "look#1,ask#1"]);
});

it.each([
  { late: false, mode: "sync", await_id: "ask#1" },
  { late: false, mode: "async", await_id: undefined },
  { late: true, mode: "sync", await_id: undefined },
  { late: true, mode: "async", await_id: "ask#1" },
] as const)(
  "an answer is refused if another process took the run over while it was read, whether it names its question or not (late: $late, $mode, $await_id)",
  async ({ late, mode, await_id }) => {
    let goOn: () => void = () => {};
    const isRead = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const world = new World({
      late,
      register: ({ runtime, name }) => {
        const validate = async (value: unknown): Promise<{ value: unknown }> => {
          if (name === "process-1") await isRead;
          return { value };
        };
        const schema = { "~standard": { version: 1, vendor: "test", validate } } as const;
        runtime.register("agent", { durable: true }, async (_input, { ask }) => {
          const first = await ask("Well?", { schema });
          return `${JSON.stringify(first)} ${JSON.stringify(await ask("And?"))}`;
        });
      },
    });
    const first = world.start();
    const run_id = await createIn(world, first);
    const refused = first.runtime.resume({ run_id, await_id, await_resume: { is: "slow" }, mode });
    refused.catch(() => {});
    await world.settle();
    const second = world.start();
    const resuming = second.runtime.resume({ run_id, await_id: "ask#1", await_resume: { is: "fast" } });
    expect(given(await world.until(resuming, second)).await_request?.await_id).toBe("ask#2");
    // The first process learns that it has lost the run.
    await world.pass(2_000);
    goOn();
    expect(await world.until(refused, first)).toMatchObject({ error: { code: "answer_conflict" } });
    const ending = first.runtime.resume({ run_id, await_resume: { is: "last" } });
    expect(textsOf(given(await world.until(ending, first)))).toEqual(['{"is":"fast"} {"is":"last"}']);
  },
);

it("an answer to the question of a sub-run is in the log of both runs, or of neither", async () => {
  for (let call = 1; call <= MAX_STEPS; call++) {
    const world = new World({
      register: ({ runtime }) => {
        runtime.register("child", { durable: true }, async (_input, { ask }) => JSON.stringify(await ask("Well?")));
        runtime.register("agent", { durable: true }, async (_input, { run }) => (await run("child", "")).output);
      },
    });
    const first = world.start();
    const run_id = await createIn(world, first);
    await world.settle();
    const request = { run_id, await_id: "run:child#1/ask#1", await_resume: { is: "said" } };
    first.crash = { call: first.storeCalls.length + call, after: true };
    const outcome = await world.until(first.runtime.resume(request), first);
    if (outcome === undefined) {
      const second = world.start();
      await world.pass(2_000);
      given(await world.until(second.runtime.resume(request), second));
      expect((await world.stateOf(run_id)).status).toBe("completed");
    } else expect(given(outcome).status).toBe("completed");
    expect(world.violations).toEqual([]);
  }
});

it.each([false, true])(
  "a cancel reaches a run that another process has taken over meanwhile (late: %s)",
  async (late) => {
    const world = new World({
      late,
      register: ({ runtime }) =>
        void runtime.register("agent", { durable: true }, async (_input, { ask }) => [
          await ask("Well?"),
          await ask("And?"),
        ]),
    });
    const first = world.start();
    const run_id = await createIn(world, first);
    await world.settle();
    const second = world.start();
    const resuming = second.runtime.resume({ run_id, await_id: "ask#1", await_resume: { is: "said" } });
    expect(given(await world.until(resuming, second)).await_request?.await_id).toBe("ask#2");
    // The first process has not learned yet that it has lost the run.
    expect(["cancelling", "cancelled"]).toContain(given(await world.until(first.runtime.cancel(run_id), first)).status);
    await world.pass(2_000);
    expect((await world.stateOf(run_id)).status).toBe("cancelled");
  },
);

it.each([false, true])(
  "a runtime that is being closed takes no answer, and nothing changes (late: %s)",
  async (late) => {
    const world = new World({
      late,
      register: (process) => {
        process.runtime.register("busy", { durable: true }, (_input, { step }) =>
          step("work", () => process.wait(2_000)),
        );
        process.runtime.register("agent", { durable: true }, async (_input, { ask }) =>
          JSON.stringify(await ask("Well?")),
        );
      },
    });
    const first = world.start();
    const run_id = await createIn(world, first);
    given(await world.until(first.runtime.createRun({ agent_name: "busy", input: "", mode: "async" }), first));
    const before = await world.log(run_id);
    const closing = first.runtime.close({ drainMs: 5_000 });
    await world.pass(100);
    const answering = first.runtime.resume({ run_id, await_resume: { ok: true } });
    expect(refusedWith(await world.until(answering, first))).toBe("runtime_closed");
    await world.until(closing, first);
    expect(await world.log(run_id)).toEqual(before);
    const second = world.start();
    const again = second.runtime.resume({ run_id, await_resume: { ok: true } });
    expect(textsOf(given(await world.until(again, second)))).toEqual(['{"ok":true}']);
  },
);

it.each([{ mode: "sync" }, { mode: "async" }] as const)(
  "of two answers at once to two processes one is taken, and no line after `ask` sees the other ($mode)",
  async ({ mode }) => {
    for (let seed = 0; seed < MAX_SEEDS; seed++) {
      const seen: string[] = [];
      const world = new World({
        late: true,
        random: new Random(seed),
        register: ({ runtime }) =>
          void runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
            let answer: unknown = "none";
            try {
              answer = await ask("Well?");
            } finally {
              seen.push(JSON.stringify(answer));
            }
            await step("stay", () => void seen.push(JSON.stringify(answer)));
            return JSON.stringify([answer, await ask("And?")]);
          }),
      });
      const processes = [world.start(), world.start()] as const;
      const run_id = await createIn(world, processes[0]);
      await world.settle();
      const outcomes: string[] = [];
      for (const [n, process] of processes.entries()) {
        const answering = process.runtime.resume({ run_id, await_resume: { n }, await_id: "ask#1", mode });
        answering.then(
          () => outcomes.push("taken"),
          (error: unknown) => outcomes.push(refusedWith({ error })),
        );
      }
      await world.pass(5_000);
      const log = await world.log(run_id);
      const answers = log.flatMap((entry) => (entry.type === "resumed" ? [JSON.stringify(entry.answer)] : []));
      expect({ seed, answers: answers.length, asked: (await world.stateOf(run_id)).question?.asked.await_id }).toEqual({
        seed,
        answers: 1,
        asked: "ask#2",
      });
      expect({ seed, seen: [...new Set(seen)] }).toEqual({ seed, seen: answers });
      const [refusedAs] = outcomes.filter((outcome) => outcome !== "taken");
      expect({ seed, outcomes: outcomes.length, refusedAs }).toEqual({
        seed,
        outcomes: 2,
        refusedAs: expect.stringMatching(/^(answer_conflict|not_awaiting)$/),
      });
      expect(world.violations).toEqual([]);
    }
  },
);

it("a cancel by another process stops a run whose owner releases it at the same time", async () => {
  for (let seed = 0; seed < MAX_SEEDS; seed++) {
    const random = new Random(seed);
    const world = new World({
      late: true,
      random,
      runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 10 } },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step, ask }) =>
          Promise.all([step("look", () => process.wait(5)), ask("Well?")]),
        ),
    });
    const first = world.start();
    const run_id = await createIn(world, first);
    const second = world.start();
    for (let left = random.below(MAX_STEPS); left > 0; left--) await world.step();
    given(await world.until(second.runtime.cancel(run_id), second));
    await world.pass(3_000);
    expect({ seed, status: (await world.stateOf(run_id)).status }).toEqual({ seed, status: "cancelled" });
    expect(world.violations).toEqual([]);
  }
});

it("a run that is claimed while it is loaded for an answer is cancelled, although the load has read the older state", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  // The load takes longer than the scan that begins after it.
  const delays = [150, 80];
  const [first, second, third] = [
    replicas.start(),
    replicas.start({}, (call, method) => {
      if (method !== "read") return call();
      return new Promise<void>((resolve) => clock.setTimeout(resolve, delays.shift() ?? 0)).then(call);
    }),
    replicas.start(),
  ];
  for (const { runtime } of [first, second])
    runtime.register("agent", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
  first.kill();
  // Just before the next scan, and not before a heartbeat.
  await clock.advance(4_910);
  const refused = second.runtime.resume({ run_id, await_id: "another", await_resume: { ok: true } }).catch(() => {});
  await clock.advance(10);
  await third.runtime.cancel(run_id);
  await clock.advance(20_000);
  await refused;
  expect((await third.runtime.getRun(run_id)).status).toBe("cancelled");
});

it("A question that another process has just written to a run can be answered in the process that executes the run", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const [work, ownWork] = [deferred(), deferred()];
  const start = (): Replica => {
    const replica = replicas.start({ durability: { evictAfterMs: 10 } });
    replica.runtime.register("parent", { durable: true }, async (_input, { ask, run, step }) => {
      const own = ask("Shall I?").then(() => step("own work", () => ownWork.promise));
      await Promise.all([own, run("child", "Go.")]);
    });
    replica.runtime.register("child", { durable: true }, async (_input, { ask, sleep, step }) => {
      await sleep(100_000);
      await step("work", () => work.promise);
      await ask("Well?");
    });
    return replica;
  };
  const first = start();
  const { run_id } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  await clock.advance(1_000);
  first.kill();
  // Executes the sub-run.
  start();
  await clock.advance(100_000);
  const third = start();
  const await_resume = reply("Yes.");
  await third.runtime.resume({ run_id, await_id: "ask#1", await_resume, mode: "async" });
  await clock.settle();
  work.resolve();
  await clock.settle();
  await third.runtime.resume({ run_id, await_id: "run:child#1/ask#1", await_resume, mode: "async" });
  ownWork.resolve();
  await clock.advance(60_000);
  expect(await third.runtime.getRun(run_id)).toMatchObject({ status: "completed" });
});

/* `npm run stress -- answers` tries 1,000 of each kind, here and with the machine's clock. */

const COUNT = 60;

it.each(answerKinds)(
  "an answer $answer to a sub-run at its deadline is taken and reaches the agent, or is refused (durable: $durable)",
  async (kind) => {
    const verdicts = sumOf(await Promise.all(Array.from({ length: COUNT }, (_, seed) => answerInWorld(kind, seed))));
    expect(verdicts.wrong).toEqual([]);
    // Some of the answers come in time, and some come too late.
    const inTime = kind.answer === "that does not match" ? "answer_rejected" : "taken";
    expect(verdicts.outcomes[inTime]).toBeGreaterThan(COUNT / 10);
    expect(verdicts.outcomes["not_awaiting"]).toBeGreaterThan(COUNT / 10);
  },
);
