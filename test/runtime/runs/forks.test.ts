import type { StepScope } from "cadenza";
import { AgentRuntime, MemoryStore, textOf } from "cadenza";
import { describe, expect, it } from "vitest";
import { drain, refusal, reply, setUp, setUpOnFile } from "../../harness/runtimes.ts";

/* `fork`: a new run that begins with what another one has recorded. */

const places = [
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const;

const isDurable = { durable: true } as const;

describe.each(places)("a fork %s", (_where, make) => {
  it("tries the step again with which its run has failed, and nothing before it", async () => {
    const { runtime } = make();
    const called: string[] = [];
    let isUp = false;
    runtime.register("agent", isDurable, async function* (_input, { step }) {
      yield "Looking up. ";
      const cents = await step("look up", ({ idempotencyKey }) => {
        called.push(`look up ${idempotencyKey}`);
        return 4000;
      });
      yield `Found ${cents}. `;
      const paid = await step("pay", ({ idempotencyKey, attempt }) => {
        called.push(`pay ${idempotencyKey} ${attempt}`);
        if (!isUp) throw new Error("The bank is down.");
        return "Paid.";
      });
      yield paid;
    });
    const failed = await runtime.createRun({ agent_name: "agent", input: "x" });
    expect(failed.status).toBe("failed");
    const [lookUp, pay] = called;
    isUp = true;
    called.length = 0;
    const fork = await runtime.fork(failed.run_id);
    expect(fork).toMatchObject({ status: "completed", agent_name: "agent", session_id: failed.session_id });
    expect(textOf(fork)).toBe("Looking up. Found 4000. Paid.");
    expect(called).toEqual([pay]);
    expect(lookUp).not.toBe(pay);
    expect(await runtime.getRun(failed.run_id)).toEqual(failed);
    expect(await runtime.details(fork.run_id)).toMatchObject({
      origin: { run_id: failed.run_id },
      parent_run_id: null,
      root_run_id: fork.run_id,
    });
    expect((await runtime.details(failed.run_id)).origin).toBeNull();
  });

  it("begins before the operation that is named, and may have another input and other idempotency keys", async () => {
    const { runtime } = make();
    const called: string[] = [];
    runtime.register("agent", isDurable, async ([message], { step }) => {
      const done: string[] = [];
      for (const name of ["a", "b", "b"])
        done.push(
          await step(name, ({ key, idempotencyKey }) => {
            called.push(idempotencyKey);
            return `${key} for ${message?.parts[0]?.content}`;
          }),
        );
      return done.join(", ");
    });
    const first = await runtime.createRun({ agent_name: "agent", input: "x" });
    const keys = [...called];
    const same = await runtime.fork(first.run_id, { before: "b#1", input: "y" });
    expect(textOf(same)).toBe("a#1 for x, b#1 for y, b#2 for y");
    expect(called.splice(0)).toEqual([...keys, ...keys.slice(1)]);
    const other = await runtime.fork(first.run_id, { before: "b#2", keys: "new" });
    expect(textOf(other)).toBe("a#1 for x, b#1 for x, b#2 for x");
    const [changed] = called.splice(0);
    expect(keys).not.toContain(changed);
    // A fork of a fork has the keys of that fork.
    await runtime.fork(other.run_id, { before: "b#2" });
    expect(called.splice(0)).toEqual([changed]);
    await runtime.fork(other.run_id, { before: "a#1" });
    expect(called.splice(0)[2]).toBe(changed);
    await runtime.fork(same.run_id, { before: "b#1" });
    expect(called.splice(0)).toEqual(keys.slice(1));
  });

  it("sees the same time and chance as its run, and then goes on", async () => {
    const { runtime, clock } = make();
    const seen: unknown[] = [];
    runtime.register("agent", isDurable, async (_input, { step, now, uuid, random }) => {
      seen.push(now(), uuid(), random());
      await step("a", () => null);
      seen.push(now(), uuid());
      await step("b", () => null);
      seen.push(uuid());
    });
    const first = await runtime.createRun({ agent_name: "agent", input: "x" });
    const before = [...seen];
    seen.length = 0;
    await clock.advance(60_000);
    await runtime.fork(first.run_id, { before: "b#1" });
    expect(seen.slice(-6)).toEqual(before.slice(-6));
  });

  it("asks again what has no answer, with a new deadline, and keeps the answers that it has", async () => {
    const { runtime, clock } = make();
    runtime.register("agent", isDurable, async (_input, { ask }) => {
      const first = await ask("Name?");
      const second = await ask("Sure?", { timeoutMs: 1_000 });
      return `${JSON.stringify(first)} ${JSON.stringify(second)}`;
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "x" });
    await runtime.resume({ run_id: run.run_id, await_resume: { name: "Ann" } });
    await clock.advance(1_000);
    await clock.settle();
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "failed" });
    const fork = await runtime.fork(run.run_id);
    expect(fork).toMatchObject({ status: "awaiting", await_request: { await_id: "ask#2" } });
    const asked = fork.await_request?.expires_at ?? "";
    expect(Date.parse(asked)).toBe(clock.now() + 1_000);
    const answered = await runtime.resume({ run_id: fork.run_id, await_resume: { sure: true } });
    expect(textOf(answered)).toBe('{"name":"Ann"} {"sure":true}');
    expect((await runtime.transcript(fork.run_id)).map(({ parts }) => parts[0]?.content).slice(0, 3)).toEqual([
      "x",
      "Name?",
      JSON.stringify({ name: "Ann" }),
    ]);
  });

  it("keeps the messages that came before the cut, also those that the agent has not taken", async () => {
    const { runtime, clock } = make();
    let fails = true;
    runtime.register("agent", isDurable, async (_input, { receive, step }) => {
      const first = await receive("word");
      await step("check", () => {
        if (fails) throw new Error("No.");
        return null;
      });
      const second = await receive("word");
      return `${first} ${second}`;
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    await runtime.send({ to: run_id, name: "other", data: "ignored" });
    await runtime.send({ to: run_id, name: "word", data: "one" });
    await clock.settle();
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "failed" });
    fails = false;
    const fork = await runtime.fork(run_id, { mode: "async" });
    await clock.settle();
    await runtime.send({ to: fork.run_id, name: "word", data: "two" });
    await clock.settle();
    expect(textOf(await runtime.getRun(fork.run_id))).toBe("one two");
  });

  it("does not start a sub-run again that has ended, and starts a new one for one that has failed, with its keys", async () => {
    const { runtime } = make();
    const keys: string[] = [];
    let isUp = false;
    runtime.register("child", isDurable, async ([message], { step }) =>
      step("work", ({ idempotencyKey }) => {
        keys.push(idempotencyKey);
        if (!isUp && message?.parts[0]?.content === "two") throw new Error("Not now.");
        return "done";
      }),
    );
    runtime.register("parent", isDurable, async (_input, { run }) => {
      const outcomes = [await run("child", "one"), await run("child", "two")];
      const failed = outcomes.find(({ status }) => status !== "completed");
      if (failed !== undefined) throw new Error("A child has failed.");
      return outcomes.map(textOf).join(", ");
    });
    const failed = await runtime.createRun({ agent_name: "parent", input: "x" });
    expect(failed.status).toBe("failed");
    isUp = true;
    const fork = await runtime.fork(failed.run_id);
    expect(textOf(fork)).toBe("done, done");
    const [one, two, again] = keys;
    expect(keys).toEqual([one, two, again]);
    expect(again).toBe(two);
    expect((await runtime.details(failed.run_id)).children).toHaveLength(2);
    expect((await runtime.details(fork.run_id)).children).toHaveLength(1);
  });

  it("begins again what had no result beside the operation that is named: sub-runs as new ones, waits with new deadlines", async () => {
    const { runtime, clock } = make();
    runtime.register("child", isDurable, async function* (_input, { sleep }) {
      yield "From the child. ";
      await sleep(10_000);
      yield "Its end. ";
    });
    runtime.register("parent", isDurable, async (_input, { run, sleep, receive, step }) => {
      const child = run("child", "", { show: true });
      const others = [sleep(20_000), receive("word", { timeoutMs: 30_000, default: "none" })];
      await sleep(5_000);
      await step("check", () => null);
      await Promise.all([child, ...others]);
    });
    const { run_id } = await runtime.createRun({ agent_name: "parent", input: "x", mode: "async" });
    for (let at = 0; at < 40; at++) {
      await clock.advance(1_000);
      await clock.settle();
    }
    const run = await runtime.getRun(run_id);
    expect([run.status, textOf(run)]).toEqual(["completed", "From the child. Its end. "]);
    const began = clock.now();
    const { run_id: fork } = await runtime.fork(run_id, { before: "check#1", mode: "async" });
    await clock.settle();
    const waits = await drain(runtime.events(fork, { until: "now", detail: true }) as never);
    const untils = waits.flatMap((event) => ("until" in event ? [Date.parse(String(event.until)) - began] : []));
    expect(untils).toEqual([-35_000, 20_000, 30_000]);
    for (let at = 0; at < 40; at++) {
      await clock.advance(1_000);
      await clock.settle();
    }
    const copy = await runtime.getRun(fork);
    expect([copy.status, textOf(copy)]).toEqual(["completed", "From the child. Its end. "]);
    const [child, ...more] = (await runtime.details(fork)).children;
    expect(more).toEqual([]);
    expect((await runtime.details(run_id)).children).not.toContain(child);
  });

  it("counts neither the usage nor the time of its run", async () => {
    const { runtime, clock } = make();
    let isUp = false;
    runtime.register("agent", { durable: true, timeoutMs: 1_000 }, async (_input, { step, usage }) => {
      await step("plan", () => {
        usage.add({ input_tokens: 100, output_tokens: 10 });
        return null;
      });
      const done = await step("act", () => (isUp ? "Done." : new Promise<never>(() => {})));
      usage.add({ input_tokens: 1, output_tokens: 2 });
      return done;
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    await clock.advance(1_000);
    await clock.advance(1_000);
    await clock.settle();
    expect(await runtime.getRun(run_id)).toMatchObject({
      status: "failed",
      error: { data: { reason: "run_timeout" } },
    });
    isUp = true;
    await clock.advance(60_000);
    const fork = await runtime.fork(run_id);
    expect(textOf(fork)).toBe("Done.");
    const { usage, started_at, created_at } = await runtime.details(fork.run_id);
    expect(usage).toMatchObject({ input_tokens: 1, output_tokens: 2 });
    expect(Date.parse(started_at ?? "")).toBeGreaterThanOrEqual(Date.parse(created_at));
    const { status } = await runtime.getAgent("agent");
    expect(status?.avg_run_time_seconds).toBeLessThan(2);
  });

  it("of a run that was cancelled goes on from there, and begins nowhere behind that", async () => {
    const { runtime, clock } = make();
    const called: string[] = [];
    runtime.register("agent", isDurable, async (_input, { step, ask }) => {
      await step("a", () => void called.push("a"));
      try {
        await ask("?");
      } finally {
        await step("b", () => void called.push("b")).catch(() => {});
      }
      return "Done.";
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "x" });
    await runtime.cancel(run.run_id, { wait: true });
    const fork = await runtime.fork(run.run_id);
    expect(fork).toMatchObject({ status: "awaiting", await_request: { await_id: "ask#1" } });
    expect(textOf(await runtime.resume({ run_id: fork.run_id, await_resume: reply("yes") }))).toBe("Done.");
    expect(called.filter((name) => name === "a")).toEqual(["a"]);
    await clock.settle();
  });

  it("keeps what was given to its run, and may be made once with an idempotency key", async () => {
    const { runtime } = make();
    runtime.register("agent", isDurable, (_input, { metadata, labels, principal }) =>
      JSON.stringify([metadata, labels, principal]),
    );
    const mine = runtime.scope({ principal: "ann" });
    const given = { metadata: { order: 17 }, labels: { order: "O-17" } };
    const { run_id, session_id } = await mine.createRun({ agent_name: "agent", input: "x" }, given);
    const [first, second] = await Promise.all([
      runtime.fork(run_id, { before: undefined, idempotencyKey: "k" }),
      runtime.fork(run_id, { idempotencyKey: "k" }),
    ]);
    expect(second?.run_id).toBe(first?.run_id);
    expect(textOf(first)).toBe(JSON.stringify([given.metadata, given.labels, "ann"]));
    expect(await runtime.fork(run_id, { idempotencyKey: "k", mode: "async" })).toEqual(first);
    expect(await refusal(runtime.fork(run_id, { idempotencyKey: "k", keys: "new" }))).toMatchObject({
      code: "idempotency_conflict",
    });
    expect((await runtime.listRuns({ session_id })).map((run) => run.run_id).sort()).toEqual(
      [run_id, first?.run_id].sort(),
    );
  });

  it("is made once with an idempotency key, also when its run has gone on or failed meanwhile", async () => {
    const { runtime, clock } = make();
    runtime.register("agent", isDurable, async (_input, { receive, step }) => {
      await receive("word");
      await step("check", () => null);
      await receive("word");
      return step("pay", (): string => {
        throw new Error("The bank is down.");
      });
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    const fork = (before?: string) => runtime.fork(run_id, { before, idempotencyKey: "k", mode: "async" });
    await clock.settle();
    const first = await fork();
    await runtime.send({ to: run_id, name: "word", data: "one" });
    await clock.settle();
    expect((await fork()).run_id).toBe(first.run_id);
    await runtime.send({ to: run_id, name: "word", data: "two" });
    await clock.settle();
    expect((await runtime.getRun(run_id)).status).toBe("failed");
    expect((await fork()).run_id).toBe(first.run_id);
    expect(await refusal(fork("check#1"))).toMatchObject({ code: "idempotency_conflict" });
  });

  it("goes on with another version of its agent", async () => {
    const { runtime } = make();
    const fn =
      (greeting: string) =>
      async (_input: unknown, context: { step: (name: string, fn: (s: StepScope) => string) => Promise<string> }) =>
        `${greeting} ${await context.step("name", () => "Ann")}`;
    runtime.register("agent", { durable: true, version: "1" }, fn("Hello"));
    const first = await runtime.createRun({ agent_name: "agent", input: "x" });
    runtime.register("agent", { durable: true, version: "2" }, fn("Good day"));
    expect(textOf(await runtime.fork(first.run_id))).toBe("Hello Ann");
    const second = await runtime.fork(first.run_id, { version: "2" });
    expect(textOf(second)).toBe("Good day Ann");
    expect((await runtime.details(second.run_id)).version).toBe("2");
    expect(await refusal(runtime.fork(first.run_id, { version: "3" }))).toMatchObject({
      code: "agent_not_found",
      message: expect.stringContaining('of version "3"'),
    });
  });

  it("tries again the operation whose error was not handled, although others have ended after it", async () => {
    const { runtime } = make();
    const called: string[] = [];
    let isUp = false;
    runtime.register("agent", isDurable, async (_input, { step }) => {
      const call = (name: string, fn: () => unknown = () => null): Promise<unknown> =>
        step(name, () => {
          called.push(name);
          return fn() as string;
        });
      await call("first");
      try {
        await call("second", () => {
          if (!isUp) throw new Error("Not now.");
          return null;
        });
      } catch (error) {
        await call("compensate");
        throw new Error("It did not work.", { cause: error });
      }
      return "Done.";
    });
    const failed = await runtime.createRun({ agent_name: "agent", input: "x" });
    expect(called.splice(0)).toEqual(["first", "second", "compensate"]);
    isUp = true;
    expect(textOf(await runtime.fork(failed.run_id))).toBe("Done.");
    expect(called).toEqual(["second"]);
  });

  it("has the events of its run before the cut, and then its own", async () => {
    const { runtime } = make();
    let isUp = false;
    runtime.register("agent", isDurable, async function* (_input, { step }) {
      yield "a";
      yield await step("b", () => {
        if (!isUp) throw new Error("Not now.");
        return "b";
      });
    });
    const failed = await runtime.createRun({ agent_name: "agent", input: "x" });
    isUp = true;
    const fork = await runtime.fork(failed.run_id, { mode: "async" });
    expect(fork.status).toBe("in-progress");
    const events = await drain(runtime.events(fork.run_id, { until: "end" }));
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    expect(events.map(({ type }) => type)).toEqual([
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
  });
});

describe("a fork", () => {
  it("is refused for a run, a store or an agent that is not durable, for an unknown run, and for a wrong option", async () => {
    const { runtime } = setUp();
    const plain = new AgentRuntime({ store: new MemoryStore() });
    plain.register("durable", isDurable, () => "x");
    runtime.register("durable", { durable: true, version: "1" }, async (_input, { step }) => step("a", () => "x"));
    const there = await plain.createRun({ agent_name: "durable", input: "x" });
    expect(await refusal(plain.fork(there.run_id))).toMatchObject({
      code: "not_forkable",
      message: expect.stringContaining("its store is not durable"),
    });
    const { run_id } = await runtime.createRun({ agent_name: "durable", input: "x" });
    expect(await refusal(runtime.fork(run_id, { before: "b#1" }))).toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("(a#1)"),
    });
    for (const wrong of [{ before: "" }, { keys: "other" }, { mode: "stream" }, { version: 1 }, { after: "x" }])
      expect(await refusal(runtime.fork(run_id, wrong as never))).toMatchObject({ code: "invalid_argument" });
    expect(await refusal(runtime.fork("00000000-0000-4000-8000-0000000000ff"))).toMatchObject({
      code: "run_not_found",
    });
    expect(await refusal(runtime.scope({ tenant: "other" }).fork(run_id))).toMatchObject({ code: "run_not_found" });
    await plain.close();
  });

  it("takes a slot of its agent, and may be cancelled while it waits for one", async () => {
    const { runtime, clock } = setUp();
    let atWork = 0;
    let most = 0;
    let release: () => void = () => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    let waits = false;
    runtime.register("agent", { durable: true, concurrency: { max: 1 } }, async (_input, { step }) => {
      await step("a", () => null);
      return step("b", async () => {
        atWork += 1;
        most = Math.max(most, atWork);
        if (waits) await gate;
        atWork -= 1;
        return "Done.";
      });
    });
    const first = await runtime.createRun({ agent_name: "agent", input: "x" });
    waits = true;
    const forks = await Promise.all([1, 2, 3].map(() => runtime.fork(first.run_id, { before: "b#1", mode: "async" })));
    await clock.settle();
    const last = forks[2]?.run_id ?? "";
    const cancelling = runtime.cancel(last, { wait: true });
    await clock.advance(1_000);
    expect(await cancelling).toMatchObject({ status: "cancelled" });
    release();
    await clock.settle();
    expect(most).toBe(1);
    const statuses = await Promise.all(forks.map(async ({ run_id }) => (await runtime.getRun(run_id)).status));
    expect(statuses).toEqual(["completed", "completed", "cancelled"]);
  });
});
