import type { RunKey } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { deferred, nextTurn } from "../../harness/promises.ts";
import { Random } from "../../harness/random.ts";
import { share } from "../../harness/share.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/*
 * A process that executes no run answers the questions of sub-runs. When its call has resolved, no run shows the
 * question as open, whatever the calls of the store took.
 */

const TRIALS = share(150, 40);
const durability = { leaseMs: 60_000, heartbeatMs: 20_000, scanMs: 50 };

/** Lets each call of the store take some turns of the event loop, before its effect and after it. */
function slowly(random: Random): Hook {
  return async (call) => {
    for (let left = random.below(5); left > 0; left--) await nextTurn();
    const answer = await call();
    for (let left = random.below(5); left > 0; left--) await nextTurn();
    return answer;
  };
}

function register({ runtime }: Replica): void {
  runtime.register("bottom", { durable: true }, async (_input, { ask }) => {
    await Promise.all([ask("First?"), ask("Second?")]);
    return JSON.stringify(await ask("Third?"));
  });
  runtime.register("middle", { durable: true }, async (_input, { run }) => (await run("bottom", "")).status);
  runtime.register("top", { durable: true }, async (_input, { run, ask }) => {
    const [below] = await Promise.all([run("middle", ""), ask("Mine?")]);
    return below.status;
  });
}

/** Lets time pass until a promise is settled. */
async function passing<T>({ clock }: Replica, promise: Promise<T>): Promise<T> {
  let isOver = false;
  const over = promise.finally(() => {
    isOver = true;
  });
  // A rejection is thrown below.
  over.catch(() => undefined);
  for (let step = 0; step < 2_000 && !isOver; step++) await clock.advance(10);
  if (!isOver) throw new Error("The promise was not settled within five seconds.");
  return over;
}

/** The open questions of a run, read without delay. */
async function openIn({ runtime }: Replica, run_id: string): Promise<readonly string[]> {
  const { await_requests } = await runtime.details(run_id);
  return await_requests.map(({ await_id }) => await_id);
}

async function shown(one: Replica, run_id: string, await_id: string): Promise<void> {
  for (let step = 0; step < 2_000; step++) {
    if ((await openIn(one, run_id)).includes(await_id)) return;
    await one.clock.advance(10);
  }
  throw new Error(`Run ${run_id} does not show ${await_id}.`);
}

it.each(["async", "sync"] as const)(
  "an answered question of a sub-run is settled in all runs above when the call in mode %s resolves",
  async (mode) => {
    const seed = Number(process.env["SEED"] ?? 27);
    for (let trial = 0; trial < TRIALS; trial++) {
      const random = new Random(`${seed}/${trial}/${mode}`);
      const replicas = inMemory(1 + random.below(6));
      const workers = Array.from({ length: 1 + random.below(2) }, () => replicas.start({ durability }, slowly(random)));
      for (const worker of workers) register(worker);
      const [first = expect.fail()] = workers;
      const caller = replicas.start({ durability, work: false }, slowly(random));
      const reader = replicas.start({ durability, work: false });
      const { runtime } = caller;
      const { run_id } = await passing(first, first.runtime.createRun({ agent_name: "top", input: "", mode: "async" }));
      const at = `seed ${seed}, trial ${trial}`;
      for (const question of random.chance(0.5) ? ["ask#1", "ask#2", "ask#3"] : ["ask#2", "ask#1", "ask#3"]) {
        const await_id = `run:middle#1/run:bottom#1/${question}`;
        await shown(reader, run_id, await_id);
        const reply = { run_id, await_id, await_resume: { question }, mode } as const;
        const key = random.chance(0.3) ? `${trial}/${question}` : undefined;
        const calls = [runtime.resume(reply, { idempotencyKey: key })];
        if (key !== undefined) calls.push(runtime.resume(reply, { idempotencyKey: key }));
        for (const call of calls) {
          const looking = call.then(async (run) => ({ run, open: await openIn(reader, run_id) }));
          const { run, open } = await passing(caller, looking);
          expect(run.await_request?.await_id, `the result, ${question}, ${at}`).not.toBe(await_id);
          expect(open, `the run, ${question}, ${at}`).not.toContain(await_id);
        }
      }
      await shown(reader, run_id, "ask#1");
      const ended = runtime.resume({ run_id, await_id: "ask#1", await_resume: {}, mode: "sync" });
      expect((await passing(caller, ended)).status, at).toBe("completed");
      for (const one of [...workers, caller, reader]) void one.runtime.close({ drainMs: 0 }).catch(() => undefined);
      await replicas.clock.advance(1_000);
    }
  },
);

describe("an answer to a sub-run that is deleted meanwhile", () => {
  const await_id = "run:child#1/ask#1";

  /** A run that shows the question of its sub-run, which the calls of one of the processes do not reach for a while. */
  async function asking(isReached: "until its post" | "never") {
    const replicas = inMemory();
    const worker = replicas.start({ durability });
    worker.runtime.register("child", { durable: true }, async (_input, { ask }) => JSON.stringify(await ask("Well?")));
    worker.runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("child", "")).status);
    const creating = worker.runtime.createRun({ agent_name: "parent", input: "", mode: "async" });
    const { run_id } = await passing(worker, creating);
    await shown(worker, run_id, await_id);
    const [child = expect.fail()] = await worker.runtime.listRuns({ parent: run_id });
    const held = deferred();
    const goingOn = deferred<"in vain" | undefined>();
    let isHeld = isReached === "never";
    const caller = replicas.start({ durability, work: false }, async (call, method, [key]) => {
      const isOfChild = (key as RunKey | undefined)?.run_id === child.run_id;
      if (isOfChild && isHeld) {
        held.resolve();
        if ((await goingOn.promise) === "in vain") return;
      }
      isHeld ||= isOfChild && method === "post";
      return call();
    });
    /** Answers as the process that is held, and resolves when it is. */
    const answer = async (mode: "sync" | "async") => {
      const call = caller.runtime.resume({ run_id, await_id, await_resume: { number: 1 }, mode });
      // A rejection is looked at later.
      call.catch(() => undefined);
      await passing(caller, held.promise);
      return { call };
    };
    return { worker, caller, run_id, child: child.run_id, answer, goOn: goingOn.resolve };
  }

  it.each(["async", "sync"] as const)(
    "is accepted if it is the one that the run above has, in mode %s",
    async (mode) => {
      const { worker, caller, run_id, child, answer, goOn } = await asking("until its post");
      const { call } = await answer(mode);
      await worker.clock.advance(1_000);
      await worker.runtime.delete(child);
      goOn(undefined);
      const status = mode === "sync" ? "completed" : "in-progress";
      expect(await passing(caller, call)).toMatchObject({ run_id, status });
    },
  );

  it("is refused if the run above has another one", async () => {
    const { worker, caller, run_id, child, answer, goOn } = await asking("never");
    const { call } = await answer("async");
    await passing(worker, worker.runtime.resume({ run_id, await_id, await_resume: { number: 2 }, mode: "sync" }));
    await worker.runtime.delete(child);
    goOn(undefined);
    await expect(passing(caller, call)).rejects.toMatchObject({ code: "answer_conflict", run_id, await_id });
  });

  it("is refused if the run above shows the question still", async () => {
    const { caller, run_id, answer, goOn } = await asking("never");
    const { call } = await answer("async");
    goOn("in vain");
    await expect(passing(caller, call)).rejects.toMatchObject({ code: "not_awaiting", run_id, await_id });
  });

  it("finds no run if the run above is deleted too", async () => {
    const { worker, caller, run_id, answer, goOn } = await asking("never");
    const { call } = await answer("async");
    await passing(worker, worker.runtime.resume({ run_id, await_id, await_resume: { number: 2 }, mode: "sync" }));
    await worker.runtime.delete(run_id);
    goOn(undefined);
    await expect(passing(caller, call)).rejects.toMatchObject({ code: "run_not_found", run_id });
  });
});

it("a late word of an answered question does not hide a question that the run above has asked meanwhile", async () => {
  const replicas = inMemory();
  const posting = deferred();
  const working = deferred();
  const first = replicas.start();
  const second = replicas.start({}, async (call, method) => {
    if (method === "post") await posting.promise;
    return call();
  });
  for (const { runtime } of [first, second]) {
    runtime.register("helper", { durable: true }, async (_input, { ask }) => void (await ask("Below?")));
    runtime.register("agent", { durable: true }, async (_input, { ask, run, step }) => {
      await Promise.all([run("helper", ""), step("work", () => working.promise)]);
      await ask("Above?");
    });
  }
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  const [below] = await first.runtime.listRuns({ parent: run_id });
  const answering = second.runtime.resume({ run_id: below?.run_id ?? "", await_resume: { ok: true } });
  await replicas.clock.settle();
  working.resolve();
  await replicas.clock.advance(1_000);
  const awaiting = async () => (await second.runtime.listRuns({ status: "awaiting" })).map((run) => run.run_id);
  expect(await awaiting()).toEqual([run_id]);
  posting.resolve();
  await answering;
  await replicas.clock.advance(1_000);
  expect(await awaiting()).toEqual([run_id]);
  expect((await first.runtime.details(run_id)).await_requests).toHaveLength(1);
});
