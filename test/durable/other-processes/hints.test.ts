import type { RunKey, StoreHint } from "cadenza/store";
import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { textsOf } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import { isRead } from "../../harness/store-proxy.ts";
import { inMemoryWithHints } from "../../harness/world/replicas.ts";

/* A store that gives hints: events, answers and messages of other processes arrive at once, and it is polled less. */

const durability = { leaseMs: 10_000, heartbeatMs: 3_000, scanMs: 1_000, evictAfterMs: 60_000 };

/** Processes on one store that tells all of them of each write, as long as `isHinting`. */
function hinting() {
  const { replicas, tell, watching } = inMemoryWithHints();
  const state = { isHinting: true, asked: 0, watching };
  const hook: Hook = (call, method, [key]) => {
    const answer = call();
    if (method === "moved") state.asked += 1;
    const isWrite = !isRead(method) && ["create", "append", "post", "claim"].includes(method);
    if (isWrite && state.isHinting) queueMicrotask(() => tell({ moved: [key as RunKey], due: true }));
    return answer;
  };
  return { replicas, state, tell, start: (work: boolean) => replicas.start({ durability, work }, hook) };
}

it.each([
  { isHinting: true, latest: 0 },
  { isHinting: false, latest: 1_000 },
])("a reader elsewhere gets an event at most $latest ms later (hints arrive: $isHinting)", async (situation) => {
  const { replicas, state, start } = hinting();
  const { clock } = replicas;
  state.isHinting = situation.isHinting;
  const [web, worker] = [start(false), start(true)];
  web.runtime.declare({ name: "ticking", durable: true });
  const said: number[] = [];
  worker.runtime.register("ticking", { durable: true }, async function* (_input, { step }) {
    for (let n = 0; n < 5; n++) {
      await step("pause", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 1_300)));
      said.push(clock.now());
      yield `${n}`;
    }
  });
  const heard: number[] = [];
  const reading = (async () => {
    for await (const event of web.runtime.createRun({ agent_name: "ticking", input: "", mode: "stream" }))
      if (event.type === "message.part") heard.push(clock.now());
  })();
  await clock.advance(12_000);
  await reading;
  const delays = said.map((at, n) => (heard[n] ?? Number.POSITIVE_INFINITY) - at);
  expect(delays).toHaveLength(5);
  expect(Math.max(...delays)).toBeLessThanOrEqual(situation.latest);
  expect(Math.max(...delays)).toBeGreaterThanOrEqual(situation.latest / 4);
});

it("an answer and a message reach a run at work in another process before its next heartbeat", async () => {
  const { replicas, start } = hinting();
  const { clock } = replicas;
  const [web, worker] = [start(false), start(true)];
  web.runtime.declare({ name: "busy", durable: true });
  worker.runtime.register("busy", { durable: true }, async (_input, { ask, receive, step }) => {
    const work = step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 2_500)));
    const got = await Promise.all([ask("Go?"), receive("mail", { timeoutMs: 2_000, default: "late" })]);
    const at = clock.now();
    await work;
    return JSON.stringify({ got, after: at - begun });
  });
  const begun = clock.now();
  const { run_id } = await web.runtime.createRun({ agent_name: "busy", input: "", mode: "async" });
  await clock.advance(1_000);
  await web.runtime.send({ to: run_id, name: "mail", data: "in time" });
  const answering = web.runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" });
  await clock.advance(10);
  await answering;
  await clock.advance(3_000);
  const [text = "{}"] = textsOf(await web.runtime.getRun(run_id));
  expect(JSON.parse(text)).toEqual({ got: [{ ok: true }, "in time"], after: 1_000 });
});

it("many hints cost few questions, and the store is watched only while that is of use", async () => {
  const { replicas, state, tell, start } = hinting();
  const { clock } = replicas;
  state.isHinting = false;
  const web = start(false);
  web.runtime.declare({ name: "idle", durable: true });
  expect(state.watching.size).toBe(0);
  const { run_id } = await web.runtime.createRun({ agent_name: "idle", input: "", mode: "async" });
  const reader = web.runtime.events(run_id, { until: "end" })[Symbol.asyncIterator]();
  await reader.next();
  const pending = reader.next();
  await clock.advance(10);
  expect(state.watching.size).toBe(1);
  state.asked = 0;
  const unknown = { tenant: "other", run_id };
  for (let n = 0; n < 1_000; n++) tell({ moved: [{ tenant: "", run_id }, unknown], due: true });
  await clock.advance(100);
  expect(state.asked).toBeGreaterThan(0);
  expect(state.asked).toBeLessThanOrEqual(2);
  state.asked = 0;
  await clock.advance(10_000);
  expect(state.asked).toBe(10);
  const closing = web.runtime.close();
  await expect(pending).rejects.toMatchObject({ code: "runtime_closed" });
  await closing;
  expect(state.watching.size).toBe(0);
  tell({ moved: [{ tenant: "", run_id }], due: true });
});

it("a reader learns at once of what the store told while it was reading", async () => {
  const { replicas, start, tell } = hinting();
  const { clock } = replicas;
  const ended = deferred();
  const [slow, worker] = [replicas.start({ durability, work: false }, readsSlowly(ended.promise, tell)), start(true)];
  slow.runtime.declare({ name: "quick", durable: true });
  worker.runtime.register("quick", { durable: true }, (_input, { step }) => step("work", () => "done"));
  const began = clock.now();
  let took: number | undefined;
  const created = slow.runtime.createRun({ agent_name: "quick", input: "" }).then((run) => {
    took = clock.now() - began;
    return run;
  });
  while ((await worker.runtime.listRuns({ status: "completed" })).length === 0) await clock.advance(0);
  await clock.advance(0);
  ended.resolve();
  await clock.advance(10);
  expect(took).toBeLessThanOrEqual(10);
  expect((await created).status).toBe("completed");
});

/** Each read of a log is answered with what was there, after something has happened. */
function readsSlowly(happened: Promise<void>, tell: (hint: StoreHint) => void): Hook {
  return (call, method, [key]) => {
    const answer = call();
    if (method === "read") return happened.then(() => answer);
    if (!isRead(method) && method === "create") queueMicrotask(() => tell({ moved: [key as RunKey], due: true }));
    return answer;
  };
}
