import type { AgentRuntime, Run } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { deferred } from "../../harness/promises.ts";
import { eventsOf, questionOf, refusal, setUp, textOf, textsOf, typesOf } from "../../harness/runtimes.ts";
import { hookedStore, lateStore } from "../../harness/store-proxy.ts";

const number = z.object({ n: z.number() });

it("the question of a sub-run has the same deadline in its parent", async () => {
  const { runtime, clock } = setUp();
  runtime.register("child", async (_input, { ask }) =>
    JSON.stringify(await ask("Well?", { timeoutMs: 1_000, default: { n: 7 } })),
  );
  runtime.register("parent", async function* (_input, { run }) {
    yield textsOf(await run("child", "")).join();
  });
  const { run_id, await_request } = await runtime.createRun({ agent_name: "parent", input: "" });
  expect(await_request).toMatchObject({ expires_at: new Date(clock.now() + 1_000).toISOString() });
  await clock.advance(1_001);
  expect(textsOf(await runtime.getRun(run_id))).toEqual(['{"n":7}']);
});

it("the question of a sub-run without a deadline has none in its parent", async () => {
  const { runtime } = setUp();
  runtime.register("child", async (_input, { ask }) =>
    JSON.stringify(await ask("Well?", { timeoutMs: Number.POSITIVE_INFINITY })),
  );
  runtime.register("parent", (_input, { run }) => run("child", ""));
  expect(questionOf(await runtime.createRun({ agent_name: "parent", input: "" }))).not.toHaveProperty("expires_at");
});

/** An agent that runs itself until it is refused, and emits its depth and the refusal. */
function registerDeep(runtime: AgentRuntime): void {
  runtime.register("deep", async (input, { run }) => {
    const depth = Number(input[0]?.parts[0]?.content);
    try {
      return textsOf(await run("deep", String(depth + 1))).join();
    } catch (error) {
      if (!CadenzaError.is(error)) throw error;
      return `${depth} ${error.code} ${error.limit} ${error.agent_name}`;
    }
  });
}

describe("the depth of sub-runs", () => {
  it.each([
    [undefined, 32],
    [0, 0],
    [3, 3],
    [Number.POSITIVE_INFINITY, undefined],
  ])("is limited by maxDepth (%s), and the agent may catch that", async (maxDepth, reached) => {
    const { runtime } = setUp({ limits: { maxDepth, maxLiveRuns: 40 } });
    registerDeep(runtime);
    const run = await runtime.createRun({ agent_name: "deep", input: "0" });
    const limit = reached === undefined ? "39 limit_reached maxLiveRuns" : `${reached} limit_reached maxDepth`;
    expect(textsOf(run).join()).toContain(limit);
  });

  it("counts the runs above a run, and not those beside it", async () => {
    const { runtime } = setUp({ limits: { maxDepth: 1 } });
    runtime.register("leaf", (input) => input);
    runtime.register("wide", async (_input, { run }) => {
      const runs = await Promise.all(Array.from({ length: 5 }, (_, n) => run("leaf", String(n))));
      return runs.flatMap(textsOf).join();
    });
    expect(textsOf(await runtime.createRun({ agent_name: "wide", input: "" }))).toEqual(["0,1,2,3,4"]);
  });

  it("fails a run whose agent exceeds it and does not catch the error", async () => {
    const { runtime } = setUp({ limits: { maxDepth: 0 } });
    runtime.register("agent", async (_input, { run }) => void (await run("agent", "")));
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "limit_reached" } } });
    expect(run.error?.message).toBe('A run of agent "agent" would have 1 ancestors; limits.maxDepth allows 0.');
  });
});

describe("a question that a parent passes on", () => {
  it("has in each run that shows it the id under which that run takes the answer", async () => {
    const { runtime } = setUp();
    nested(runtime);
    const root = await runtime.createRun({ agent_name: "root", input: "" });
    const runs = await runtime.listRuns({ status: "awaiting", roots: false, output: true });
    expect(runs.map(({ agent_name }) => agent_name).sort()).toEqual(["child", "parent", "root"]);
    for (const run of runs) {
      const { await_id, message } = questionOf(run);
      expect(message.parts).toMatchObject([{ content: "n?" }, { content_type: "application/schema+json", await_id }]);
    }
    expect(questionOf(root).await_id).toBe("run:parent#1/run:child#1/ask#1");
  });

  it("has in each of them the role of the agent that asks", async () => {
    const { runtime } = setUp();
    nested(runtime);
    await runtime.createRun({ agent_name: "root", input: "" });
    const runs = await runtime.listRuns({ status: "awaiting", roots: false, output: true });
    expect(runs.map((run) => questionOf(run).message.role)).toEqual(["agent/child", "agent/child", "agent/child"]);
    const [question] = (await runtime.details(runOf(runs, "root").run_id)).await_requests;
    expect(question?.message.role).toBe("agent/child");
  });

  it.each(["root", "parent", "child"])(
    "may be answered at the %s, and is then answered at all of them",
    async (name) => {
      const { runtime, clock } = setUp();
      nested(runtime);
      await runtime.createRun({ agent_name: "root", input: "" });
      const runs = await runtime.listRuns({ status: "awaiting", roots: false, output: true });
      const asking = runOf(runs, name);
      const request = { run_id: asking.run_id, await_id: questionOf(asking).await_id };
      expect((await refusal(runtime.resume({ ...request, await_resume: { n: "one" } }))).code).toBe("answer_rejected");
      for (const run of runs) expect(await runtime.getRun(run.run_id)).toEqual(run);

      await runtime.resume({ ...request, await_resume: { n: 1 } });
      await clock.settle();
      for (const run of runs) {
        const { run_id, status } = await runtime.getRun(run.run_id);
        expect(status).toBe("completed");
        const again = { run_id, await_id: questionOf(run).await_id };
        expect((await runtime.resume({ ...again, await_resume: { n: 1 } })).status).toBe("completed");
        expect(await refusal(runtime.resume({ ...again, await_resume: { n: 2 } }))).toMatchObject({
          code: "answer_conflict",
          run_id,
        });
        const types = typesOf(await eventsOf(runtime, run_id)).filter((type) => type.startsWith("run."));
        expect(types).toEqual(["run.created", "run.in-progress", "run.awaiting", "run.in-progress", "run.completed"]);
      }
      const { history } = await runtime.getSession(runOf(runs, "root").session_id);
      expect(history.map(textOf)).toContain('{"n":1}');
    },
  );

  it("may be answered at the sub-run while its parent asks something else", async () => {
    const { runtime, clock } = setUp();
    runtime.register("child", async (_input, { ask }) => `${(await ask("n?", { schema: number })).n}`);
    runtime.register("parent", async (_input, { run, ask }) => {
      const [, child] = await Promise.all([ask("Well?"), run("child", "")]);
      return child.output;
    });
    const parent = await runtime.createRun({ agent_name: "parent", input: "" });
    await clock.settle();
    const child = runOf(await runtime.listRuns({ status: "awaiting", roots: false, output: true }), "child");
    expect(textOf(questionOf(parent).message)).toBe("Well?");
    expect((await runtime.resume({ run_id: child.run_id, await_resume: { n: 4 } })).status).toBe("completed");
    expect(textsOf(await runtime.resume({ run_id: parent.run_id, await_resume: { ok: true } }))).toEqual(["4"]);
    // The parent shows its own question again after that of the sub-run is settled.
    expect((await eventsOf(runtime, parent.run_id)).filter(({ type }) => type === "run.awaiting")).toHaveLength(2);
  });

  it.each(["sync", "async", "stream"] as const)("is answered in mode %s like one of the run's own", async (mode) => {
    const { runtime, clock } = setUp();
    runtime.register("child", async (_input, { ask }) => JSON.stringify([await ask("one?"), await ask("two?")]));
    runtime.register("parent", async (_input, { run }) => (await run("child", "")).output);
    const { run_id } = await runtime.createRun({ agent_name: "parent", input: "" });
    const seen: string[] = [];
    if (mode === "stream")
      for await (const event of runtime.resume({ run_id, await_resume: { n: 1 }, mode })) seen.push(event.type);
    else seen.push((await runtime.resume({ run_id, await_resume: { n: 1 }, mode })).status);
    expect(seen).toEqual(
      { sync: ["awaiting"], async: ["in-progress"], stream: ["run.in-progress", "run.awaiting"] }[mode],
    );
    await clock.settle();
    expect(textOf(questionOf(await runtime.getRun(run_id)).message)).toBe("two?");
  });

  it("takes an answer once under an idempotency key, at the parent and at the sub-run", async () => {
    const { runtime } = setUp();
    runtime.register("child", async (_input, { ask }) => JSON.stringify(await ask("n?")));
    runtime.register("parent", async (_input, { run }) => (await run("child", "")).output);
    const parent = await runtime.createRun({ agent_name: "parent", input: "" });
    const child = runOf(await runtime.listRuns({ status: "awaiting", roots: false, output: true }), "child");
    const options = { idempotencyKey: "key" };
    await runtime.resume({ run_id: child.run_id, await_resume: { n: 1 } }, options);
    for (const { run_id } of [parent, child]) {
      expect((await runtime.resume({ run_id, await_resume: { n: 1 } }, options)).status).toBe("completed");
      const other = runtime.resume({ run_id, await_resume: { n: 2 } }, options);
      expect((await refusal(other)).code).toBe("idempotency_conflict");
    }
  });

  it.each(["timed-out", "settled"])("takes no answer after the entry %s", async (type) => {
    let answering: Promise<CadenzaError> | undefined;
    let run_id = "";
    const hooked = hookedStore((call, method, parameters) => {
      const write = (method === "append" ? parameters[2] : undefined) as { entries: readonly Entry[] } | undefined;
      if (write?.entries.some((entry) => entry.type === type))
        answering ??= refusal(runtime.resume({ run_id, await_resume: { n: 1 } }));
      return call();
    }, lateStore());
    const { runtime, clock } = setUp({ store: hooked });
    runtime.register("child", async (_input, { ask }) =>
      JSON.stringify(await ask("n?", { timeoutMs: 1_000, default: { n: 0 } })),
    );
    runtime.register("parent", async (_input, { run }) => (await run("child", "")).output);
    const creating = runtime.createRun({ agent_name: "parent", input: "" });
    await clock.settle();
    run_id = (await creating).run_id;
    await clock.advance(1_000);
    expect(await answering).toMatchObject({ code: "not_awaiting", run_id });
    expect(textsOf(await runtime.getRun(run_id))).toEqual(['{"n":0}']);
  });

  it("takes no answer that was being validated at its deadline", async () => {
    const { runtime, clock } = setUp();
    const read = deferred();
    const validate = async (value: unknown) => read.promise.then(() => ({ value }));
    const schema = { "~standard": { version: 1, vendor: "test", validate } } as const;
    runtime.register("child", async (_input, { ask }) =>
      JSON.stringify(await ask("n?", { schema, timeoutMs: 1_000, default: { n: 0 } })),
    );
    runtime.register("parent", async (_input, { run }) => (await run("child", "")).output);
    const { run_id } = await runtime.createRun({ agent_name: "parent", input: "" });
    const answering = refusal(runtime.resume({ run_id, await_resume: { n: 1 } }));
    await clock.advance(1_000);
    read.resolve();
    await clock.settle();
    expect(await answering).toMatchObject({ code: "not_awaiting", run_id });
    expect(textsOf(await runtime.getRun(run_id))).toEqual(['{"n":0}']);
  });
});

it("the record of a sub-run names its parent", async () => {
  const { runtime } = setUp();
  nested(runtime);
  await runtime.createRun({ agent_name: "root", input: "" });
  const runs = await runtime.listRuns({ status: "awaiting", roots: false, output: true });
  const [root, parent, child] = ["root", "parent", "child"].map((name) => runOf(runs, name).run_id);
  const detailsOf = async (run_id = "") => runtime.details(run_id);
  expect(await detailsOf(root)).toMatchObject({ run_id: root, parent_run_id: null, root_run_id: root });
  expect(await detailsOf(parent)).toMatchObject({ run_id: parent, parent_run_id: root, root_run_id: root });
  expect(await detailsOf(child)).toMatchObject({ run_id: child, parent_run_id: parent, root_run_id: root });
  // The protocol's record has no such key.
  expect(Object.keys(runOf(runs, "child"))).toEqual(Object.keys(runOf(runs, "root")));
  const other = runtime.scope({ tenant: "other" });
  expect((await refusal(other.details(child ?? ""))).code).toBe("run_not_found");
  expect((await refusal(runtime.details("no id"))).code).toBe("invalid_argument");
});

it("a durable run whose sub-runs only wait is left to any process, and goes on at their end", async () => {
  const { runtime, clock, store } = setUp();
  runtime.register("sleeps", { durable: true }, async (_input, { sleep }) => sleep(60_000).then(() => "slept"));
  runtime.register("receives", { durable: true }, async (_input, { receive }) => `${await receive("mail")}`);
  runtime.register("asks", { durable: true }, async (_input, { ask }) => `${(await ask("n?", { schema: number })).n}`);
  runtime.register("parent", { durable: true }, async (_input, { run }) => {
    const all = await Promise.all(["sleeps", "receives", "asks"].map((name) => run(name, "")));
    return all.flatMap((one) => textsOf(one)).join();
  });
  runtime.register("root", { durable: true }, async (_input, { run }) => textsOf(await run("parent", "")).join());
  const { run_id } = await runtime.createRun({ agent_name: "root", input: "", mode: "async" });
  const headsOf = async () =>
    Promise.all(
      (await runtime.listRuns()).map(async (one) => [one.agent_name, (await store.find({ tenant: "", ...one }))?.head]),
    );
  await clock.advance(1_000);
  await runtime.resume({ run_id, await_resume: { n: 5 }, mode: "async" });
  await clock.advance(1_000);
  const heads = Object.fromEntries(await headsOf());
  const until = clock.now() - 2_000 + 60_000;
  const free = { status: "in-progress", owner: null, due_at: null };
  expect(heads).toMatchObject({ root: free, parent: free, receives: free, sleeps: { owner: null, due_at: until } });
  const receiving = (await runtime.listRuns()).find((one) => one.agent_name === "receives");
  await runtime.send({ to: receiving?.run_id ?? "", name: "mail", data: "mail" });
  await clock.advance(60_000);
  expect(textsOf(await runtime.getRun(run_id))).toEqual(["slept,mail,5"]);
});

/** A run that asks, and two above it. */
function nested(runtime: AgentRuntime): void {
  runtime.register("child", async (_input, { ask }) => `${(await ask("n?", { schema: number })).n}`);
  runtime.register("parent", async (_input, { run }) => (await run("child", "")).output);
  runtime.register("root", async (_input, { run }) => (await run("parent", "")).output);
}

function runOf(runs: readonly Run[], agent_name: string): Run {
  const found = runs.find((run) => run.agent_name === agent_name);
  if (found === undefined) throw new Error(`There is no run of ${agent_name}.`);
  return found;
}
