import type { AgentRuntime, Message, Scope } from "cadenza";
import type { FoundRun } from "cadenza/store";
import { expect, it } from "vitest";
import { T0 } from "../harness/logs.ts";
import { never, nextTurn } from "../harness/promises.ts";
import { questionOf, refusal, reply, textOf, textsOf } from "../harness/runtimes.ts";
import type { Hook } from "../harness/store-proxy.ts";
import { WakeQueue } from "../harness/wake-queue.ts";
import type { Replica, Replicas } from "../harness/world/replicas.ts";
import { inMemory } from "../harness/world/replicas.ts";

/* Tenants whose runs have the same id, in processes that load, wake, find and lose these runs. */

const ID = "00000000-0000-4000-8000-000000000001";
const TENANTS = ["red", "blue"];
const sameIds = { uuid: () => ID, token: () => "token" };
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };

function register(runtime: AgentRuntime): void {
  runtime.register("desk", { durable: true }, async (input, { ask }) => {
    const secret = input.map(textOf).join("");
    const answer = await ask(`What about ${secret}?`);
    return `${secret}: ${"parts" in answer ? textOf(answer as Message) : ""}`;
  });
}

/** Each tenant has a run that waits for an answer, and no process has loaded any of them. */
async function waiting(replicas: Replicas, tenants = TENANTS): Promise<void> {
  let tokens = 0;
  const first = replicas.start({ durability, ids: { ...sameIds, token: () => `first-${++tokens}` } });
  register(first.runtime);
  for (const tenant of tenants)
    await first.runtime.scope({ tenant }).createRun({ agent_name: "desk", input: `the secret of ${tenant}` });
  await replicas.clock.advance(1_000);
  first.kill();
}

async function answer(scope: Scope, text: string): Promise<string[]> {
  const { await_id } = questionOf(await scope.getRun(ID));
  return textsOf(await scope.resume({ run_id: ID, await_id, await_resume: reply(text) }));
}

/** Answers in a later turn. */
const late: Hook = async (call) => {
  await nextTurn();
  return call();
};

it("a run that is being loaded does not exist for another tenant", async () => {
  const replicas = inMemory();
  await waiting(replicas, ["red"]);
  const { runtime } = replicas.start({ durability, ids: sameIds }, late);
  register(runtime);
  const red = answer(runtime.scope({ tenant: "red" }), "of red");
  const await_resume = reply("of blue");
  const blue: Promise<unknown>[] = [];
  for (let turn = 0; turn < 20; turn++) {
    blue.push(refusal(runtime.scope({ tenant: "blue" }).resume({ run_id: ID, await_resume })));
    blue.push(refusal(runtime.scope({ tenant: "blue" }).cancel(ID)));
    await nextTurn();
  }
  await replicas.clock.settle();
  expect(await red).toEqual(["the secret of red: of red"]);
  for (const error of await Promise.all(blue)) expect(error).toMatchObject({ code: "run_not_found" });
});

it("runs with the same id are loaded side by side, each for its tenant", async () => {
  const replicas = inMemory();
  await waiting(replicas);
  const { runtime } = replicas.start({ durability, ids: sameIds }, late);
  register(runtime);
  const answers = TENANTS.map((tenant) => answer(runtime.scope({ tenant }), `of ${tenant}`));
  await replicas.clock.settle();
  expect(await Promise.all(answers)).toEqual([["the secret of red: of red"], ["the secret of blue: of blue"]]);
});

it("runs with the same id are read by readers in another process, each for its tenant", async () => {
  const replicas = inMemory();
  await waiting(replicas);
  const { runtime } = replicas.start({ durability, ids: sameIds });
  register(runtime);
  const web = replicas.start({ durability, ids: sameIds, work: false });
  const texts = TENANTS.map(async (tenant) => {
    const seen: string[] = [];
    for await (const event of web.runtime.scope({ tenant }).events(ID, { until: "end" }))
      if (event.type === "message.completed") seen.push(event.message.parts[0]?.content ?? "");
    return seen.at(-1);
  });
  await replicas.clock.advance(1_000);
  for (const tenant of TENANTS) await answer(runtime.scope({ tenant }), `of ${tenant}`);
  await replicas.clock.advance(2_000);
  expect(await Promise.all(texts)).toEqual(["the secret of red: of red", "the secret of blue: of blue"]);
});

it("runs with the same id that a process owns and has not loaded are found with one heartbeat", async () => {
  const replicas = inMemory();
  const begun: string[] = [];
  const start = (hook?: Hook): Replica => {
    const replica = replicas.start({ durability: { ...durability, scanMs: 60_000 }, ids: sameIds }, hook);
    replica.runtime.register("work", { durable: true }, (input) => {
      begun.push(input.map(textOf).join(""));
      return "done";
    });
    return replica;
  };
  // The answers of `take` are lost: the runs belong to a process that does not know of them.
  let isLosing = false;
  const worker = start((call, method) => {
    const taken = call();
    return isLosing && method === "take" ? [] : taken;
  });
  await replicas.clock.advance(100);
  isLosing = true;
  const web = replicas.start({ durability, ids: sameIds, work: false });
  web.runtime.declare({ name: "work", durable: true });
  for (const tenant of TENANTS)
    await web.runtime.scope({ tenant }).createRun({ agent_name: "work", input: tenant, mode: "async" });
  await replicas.clock.advance(60_000);
  expect(begun.toSorted()).toEqual(["blue", "red"]);
  for (const tenant of TENANTS) expect((await worker.runtime.scope({ tenant }).getRun(ID)).status).toBe("completed");
});

it("a run that a process owns and has not loaded is found while it begins another one", async () => {
  const replicas = inMemory();
  const begun: string[] = [];
  const worker = replicas.start({ durability, ids: sameIds }, async (call, method, [key]) => {
    const { tenant } = (key ?? {}) as { readonly tenant?: string };
    // The log of the one is read for ever, and the answer that gives the other one is lost.
    if (method === "read" && tenant === "red") return never();
    const answer = await call();
    return method === "take" ? (answer as FoundRun[]).filter(({ key: { tenant: of } }) => of !== "blue") : answer;
  });
  worker.runtime.register("work", { durable: true }, (input) => {
    begun.push(input.map(textOf).join(""));
    return "done";
  });
  const web = replicas.start({ durability, ids: sameIds, work: false });
  web.runtime.declare({ name: "work", durable: true });
  for (const tenant of TENANTS)
    await web.runtime.scope({ tenant }).createRun({ agent_name: "work", input: tenant, mode: "async" });
  await replicas.clock.advance(5_000);
  expect(begun).toEqual(["blue"]);
});

it("runs with the same id that cannot be read are reported for each tenant, and their retries are counted apart", async () => {
  const replicas = inMemory();
  const web = replicas.start({ durability, ids: sameIds, work: false });
  web.runtime.declare({ name: "work", durable: true });
  for (const tenant of TENANTS)
    await web.runtime.scope({ tenant }).createRun({ agent_name: "work", input: tenant, mode: "async" });
  const unreadable = new Set(TENANTS);
  const worker = replicas.start({ durability, ids: sameIds }, (call, method, [key]) => {
    const { tenant } = (key ?? {}) as { readonly tenant?: string };
    if (method === "read" && tenant !== undefined && unreadable.has(tenant)) throw new Error("The log cannot be read.");
    return call();
  });
  worker.runtime.register("work", { durable: true }, (input) => `${input.map(textOf).join("")} is done.`);
  await replicas.clock.advance(900);
  const { damaged } = await worker.runtime.stats();
  expect(damaged?.map(({ tenant, attempts }) => ({ tenant, attempts }))).toEqual([
    { tenant: "red", attempts: 1 },
    { tenant: "blue", attempts: 1 },
  ]);
  unreadable.delete("red");
  await replicas.clock.advance(10_000);
  expect((await worker.runtime.stats()).damaged).toMatchObject([{ tenant: "blue" }]);
  const red = await worker.runtime.scope({ tenant: "red" }).getRun(ID);
  expect(textsOf(red)).toEqual(["red is done."]);
});

it("runs with the same id are brought by a waker, each for its tenant", async () => {
  const replicas = inMemory();
  const queue = new WakeQueue(replicas.clock);
  const started: [string, number][] = [];
  const start = (work: boolean): Replica => {
    const waker = queue.connect();
    const replica = replicas.start({
      durability: { ...durability, scanMs: 60_000, waker },
      ids: sameIds,
      ...(!work && { work }),
    });
    if (work)
      replica.runtime.register("work", { durable: true }, (input, { step }) =>
        step("one", () => {
          started.push([input.map(textOf).join(""), replicas.clock.now()]);
          return new Promise<void>((resolve) => replicas.clock.setTimeout(resolve, 500));
        }),
      );
    else replica.runtime.declare({ name: "work", durable: true });
    return replica;
  };
  start(true);
  const web = start(false);
  await replicas.clock.advance(100);
  const at = T0 + 2_000;
  for (const tenant of TENANTS)
    await web.runtime
      .scope({ tenant })
      .createRun({ agent_name: "work", input: tenant, mode: "async" }, { startAt: at });
  await replicas.clock.advance(3_000);
  expect(started).toEqual([
    ["red", at],
    ["blue", at],
  ]);
  await replicas.clock.advance(1_000);
  for (const tenant of TENANTS) expect((await web.runtime.scope({ tenant }).getRun(ID)).status).toBe("completed");
});
