import { setImmediate as inNextTurn } from "node:timers/promises";
import { defineAgent, MemoryStore } from "cadenza";
import { expect, it } from "vitest";
import { z } from "zod";
import { deferred } from "../../harness/promises.ts";
import { drain, setUp, textsOf } from "../../harness/runtimes.ts";

/* Agents that continue as new. */

const saidIn = (messages: readonly { readonly parts: readonly { readonly content?: string }[] }[]) =>
  messages.map(({ parts }) => parts.map(({ content }) => content).join(""));

it("an agent begins again with what it has given itself, and its record shows what was said since", async () => {
  const { runtime } = setUp();
  const seen: unknown[] = [];
  runtime.register("counter", async ([message], { carry, generation, continueAsNew, emit }) => {
    seen.push([generation, carry, message?.parts[0]?.content]);
    await emit(`generation ${generation}`);
    return generation < 3 ? continueAsNew({ round: generation }) : " ends";
  });
  const run = await runtime.createRun({ agent_name: "counter", input: "go" });
  expect([run.status, textsOf(run)]).toEqual(["completed", ["generation 3| ends"]]);
  expect(new Map(seen.map((one) => [JSON.stringify(one), one])).size).toBe(3);
  expect(seen.at(-1)).toEqual([3, { round: 2 }, "go"]);
  expect(saidIn(await runtime.transcript(run.run_id))).toEqual([
    "go",
    "generation 1",
    "generation 2",
    "generation 3 ends",
  ]);
});

it("events have one numbering over all generations, and each generation tells that the run goes on", async () => {
  const { runtime } = setUp();
  runtime.register("twice", async function* (_input, { generation, continueAsNew }) {
    yield `part ${generation}`;
    return generation === 1 ? continueAsNew() : undefined;
  });
  const { run_id } = await runtime.createRun({ agent_name: "twice", input: "" });
  const events = await drain(runtime.events(run_id));
  expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
  expect(events.map(({ type }) => type)).toEqual([
    "run.created",
    "run.in-progress",
    ...["message.created", "message.part", "message.completed"],
    "run.in-progress",
    ...["message.created", "message.part", "message.completed"],
    "run.completed",
  ]);
  const details = runtime.events(run_id, { detail: true });
  const told: unknown[] = [];
  for await (const event of details) if (event.type === "generation.started") told.push(event.generation);
  expect(told).toEqual([2]);
});

it.each(["async function", "function", "async generator", "generator"])("of any form: %s", async (form) => {
  const { runtime } = setUp();
  const next = { generation: 0 };
  if (form === "async function")
    runtime.register("agent", async (_input, { generation, continueAsNew }) => {
      next.generation = generation;
      return generation < 2 ? continueAsNew() : "end";
    });
  else if (form === "function")
    runtime.register("agent", (_input, { generation, continueAsNew }) => {
      next.generation = generation;
      return generation < 2 ? (continueAsNew() as never) : "end";
    });
  else if (form === "generator")
    runtime.register("agent", function* (_input, { generation, continueAsNew }) {
      next.generation = generation;
      yield "e";
      return generation < 2 ? continueAsNew() : "nd";
    });
  else
    runtime.register("agent", async function* (_input, { generation, continueAsNew }) {
      next.generation = generation;
      yield "e";
      return generation < 2 ? continueAsNew() : "nd";
    });
  const run = await runtime.createRun({ agent_name: "agent", input: "" });
  expect([textsOf(run).join("").replace("|", ""), next.generation]).toEqual(["end", 2]);
});

it("operations of each generation have keys, ids of questions and idempotency keys of their own", async () => {
  const { runtime } = setUp();
  const keys = new Set<string>();
  runtime.register("agent", { durable: true }, async (_input, { ask, step, generation, continueAsNew, uuid }) => {
    await step("charge", ({ idempotencyKey }) => void keys.add(idempotencyKey));
    await step("number", () => void keys.add(uuid()));
    await ask(`question ${generation}`);
    return generation < 3 ? continueAsNew() : "end";
  });
  let run = await runtime.createRun({ agent_name: "agent", input: "" });
  const { run_id } = run;
  const ids: unknown[] = [];
  for (let n = 0; n < 3; n++) {
    ids.push(run.await_request?.await_id);
    run = await runtime.resume({ run_id, await_resume: { n } });
  }
  expect([run.status, ids]).toEqual(["completed", ["ask#1", "ask#2.1", "ask#3.1"]]);
  expect(keys.size).toBe(6);
});

it("an answer that is repeated in the next generation changes nothing, and answers no other question", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { ask, generation, continueAsNew }) => {
    const { parts = [] } = (await ask("Well?")) as { parts?: readonly { content?: string }[] };
    return generation < 2 ? continueAsNew(parts[0]?.content) : `said ${parts[0]?.content}`;
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  const answer = { run_id, await_id: "ask#1", await_resume: { type: "message", message: say("one") } as const };
  await runtime.resume(answer);
  const again = await runtime.resume(answer);
  expect([again.status, again.await_request?.await_id]).toEqual(["awaiting", "ask#2.1"]);
  const other = runtime.resume({ ...answer, await_resume: { type: "message", message: say("two") } });
  await expect(other).rejects.toMatchObject({ code: "answer_conflict" });
  const last = await runtime.resume({ run_id, await_resume: { type: "message", message: say("three") } });
  expect(textsOf(last)).toEqual(["said three"]);
});

it.each([false, true])("no message is lost that arrives as a generation ends (durable: %s)", async (durable) => {
  const { runtime, clock } = setUp();
  runtime.register("inbox", { durable }, async (_input, { carry, receive, sleep, continueAsNew }) => {
    const got = (carry ?? []) as readonly unknown[];
    const first = await Promise.race([receive("n"), sleep(10).then(() => "tick")]);
    if (first === "stop") return JSON.stringify(got);
    return continueAsNew(first === "tick" ? got : [...got, first]);
  });
  const { run_id } = await runtime.createRun({ agent_name: "inbox", input: "", mode: "async" });
  for (let turns = 0; turns < 30; turns++) {
    const passing = clock.advance(10);
    for (let turn = 0; turn < turns; turn++) await clock.turn();
    await runtime.send({ to: run_id, name: "n", data: turns });
    await passing;
  }
  const ended = drain(runtime.events(run_id));
  await runtime.send({ to: run_id, name: "n", data: "stop" });
  await clock.advance(10);
  await ended;
  const [[text = ""] = []] = [textsOf(await runtime.getRun(run_id))];
  expect((JSON.parse(text) as readonly number[]).toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: 30 }, (_, n) => n),
  );
});

it("messages that nothing has received stay, and one that is sent again arrives once", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { receive, ask, generation, continueAsNew }) => {
    if (generation === 1) {
      await ask("Go?");
      return continueAsNew();
    }
    await ask("Again?");
    const got = [await receive("note"), await receive("note", { timeoutMs: 0, default: "none" })];
    return got.join();
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  const send = () => runtime.send({ to: run_id, name: "note", data: "first" }, { idempotencyKey: "key" });
  await send();
  await runtime.resume({ run_id, await_resume: {} });
  await send();
  await runtime.resume({ run_id, await_resume: {} });
  expect(textsOf(await runtime.getRun(run_id))).toEqual(["first,none"]);
});

it("questions are withdrawn and sub-runs cancelled when a generation ends", async () => {
  const { runtime } = setUp();
  runtime.register("child", { durable: true }, async (_input, { ask }) => void (await ask("Below?")));
  runtime.register("agent", { durable: true }, async (_input, { run, ask, generation, continueAsNew }) => {
    if (generation > 1) return "end";
    const below = run("child", "");
    const asked = ask("Mine?");
    await Promise.race([below.catch(() => {}), asked.catch(() => {}), ask("Go?", { name: "go" })]);
    return continueAsNew();
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  const { children } = await runtime.details(run_id);
  await runtime.resume({ run_id, await_id: "ask#2", await_resume: {}, mode: "async" });
  await drain(runtime.events(run_id, { until: "end" }));
  const run = await runtime.getRun(run_id);
  expect([run.status, textsOf(run)]).toEqual(["completed", ["end"]]);
  const [child = ""] = children;
  expect((await runtime.getRun(child)).status).toBe("cancelled");
});

it("a cancel stops the generation that is at work", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { ask, generation, continueAsNew }) => {
    return generation < 3 ? continueAsNew() : void (await ask("Well?"));
  });
  const { run_id, status } = await runtime.createRun({ agent_name: "agent", input: "" });
  expect(status).toBe("awaiting");
  await runtime.cancel(run_id);
  await drain(runtime.events(run_id, { until: "end" }));
  expect((await runtime.getRun(run_id)).status).toBe("cancelled");
});

it("a carry is checked by its schema when it is given, and read by it", async () => {
  const { runtime } = setUp();
  const carry = z.object({ left: z.number(), at: z.coerce.date() });
  const agent = defineAgent("typed", { carry, output: z.object({ days: z.number() }) }).run(
    async (_input, { carry: given, continueAsNew }) => {
      const { left, at } = given ?? { left: 2, at: new Date(0) };
      if (left === 0) return { days: at.getTime() / 86_400_000 };
      return continueAsNew({ left: left - 1, at: new Date(at.getTime() + 86_400_000).toISOString() });
    },
  );
  const wrong = defineAgent("wrong", { carry }).run(async (_input, { continueAsNew }) =>
    continueAsNew({ left: "many" as never, at: "" }),
  );
  runtime.register(agent).register(wrong);
  expect(await runtime.call(agent, "")).toEqual({ days: 2 });
  expect((await runtime.createRun({ agent_name: "wrong", input: "" })).status).toBe("failed");
});

it("a run whose agent does not return what continueAsNew gives fails, and says why", async () => {
  const { runtime } = setUp();
  runtime.register("forgets", async (_input, { continueAsNew }) => void continueAsNew());
  runtime.register("yields", async function* (_input, { continueAsNew }) {
    yield continueAsNew();
  });
  const forgot = await runtime.createRun({ agent_name: "forgets", input: "" });
  expect(forgot.error?.message).toBe("The agent has called continueAsNew, and has not returned what it gives.");
  const yielded = await runtime.createRun({ agent_name: "yields", input: "" });
  expect([yielded.status, yielded.error?.code]).toEqual(["failed", forgot.error?.code]);
});

it("what was said joins the session at the end of each generation, and the next one sees it in its history", async () => {
  const { runtime } = setUp();
  runtime.register("chat", { durable: true }, async (_input, { session, ask, emit, generation, continueAsNew }) => {
    const before = saidIn(await session.history({ last: 3 }));
    await ask(`heard ${before.join("|")}`);
    await emit(`answer ${generation}`);
    return generation < 3 ? continueAsNew() : undefined;
  });
  const session_id = crypto.randomUUID();
  let run = await runtime.createRun({ agent_name: "chat", input: "hi", session_id });
  const heard: unknown[] = [];
  for (const text of ["one", "two", "three"]) {
    heard.push(run.await_request?.message.parts[0]?.content);
    run = await runtime.resume({ run_id: run.run_id, await_resume: { type: "message", message: say(text) } });
  }
  expect(heard).toEqual(["heard ", "heard heard |one|answer 1", "heard heard heard |one|answer 1|two|answer 2"]);
  const { history } = await runtime.getSession(session_id);
  expect(saidIn(history)).toEqual(saidIn(await runtime.transcript(run.run_id)));
  expect(saidIn(history).filter((text) => !text?.startsWith("heard"))).toEqual([
    "hi",
    "one",
    "answer 1",
    "two",
    "answer 2",
    "three",
    "answer 3",
  ]);
});

it.each([false, true])(
  "a sub-run has one budget in all generations, and sees what is left (durable: %s)",
  async (durable) => {
    const { runtime } = setUp();
    const options = { durable };
    runtime.register("child", options, async (_input, { step, usage, carry, generation, continueAsNew }) => {
      const seen = [...((carry ?? []) as readonly number[]), usage.remaining];
      await step("think", () => usage.add({ totalTokens: 80 }));
      seen.push(usage.remaining);
      return generation < 3 ? continueAsNew(seen) : seen.join();
    });
    runtime.register("parent", options, async (_input, { run }) => {
      const { output } = await run("child", "", { budget: { totalTokens: 500 } });
      return output[0]?.parts[0]?.content;
    });
    const ended = await runtime.createRun({ agent_name: "parent", input: "" }, { budget: { totalTokens: 1_000 } });
    expect(textsOf(ended)).toEqual(["500,420,420,340,340,260"]);
  },
);

it("each generation has the whole budget, and all of its log", async () => {
  const { runtime } = setUp({ limits: { maxLogEntries: 40 } });
  runtime.register(
    "agent",
    { durable: true, budget: { totalTokens: 10 } },
    async (_input, { usage, step, emit, generation, continueAsNew }) => {
      await step("model", () => usage.add({ input_tokens: 6, output_tokens: 0 }));
      for (let n = 0; n < 20; n++) await emit({ n });
      return generation < 4 ? continueAsNew() : `${usage.total?.total_tokens} ${usage.remaining}`;
    },
  );
  const run = await runtime.createRun({ agent_name: "agent", input: "" });
  expect([run.status, run.error, textsOf(run)]).toEqual(["completed", null, ["24 4"]]);
});

it("a step that is still at work when its generation ends records nothing", async () => {
  const { runtime } = setUp();
  let finish = (): void => {};
  runtime.register("agent", { durable: true }, async (_input, { step, ask, generation, continueAsNew, signal }) => {
    if (generation === 1) {
      const late = step("late", () => new Promise<string>((resolve) => (finish = () => resolve("late"))));
      late.catch(() => {});
      await step("other", () => "");
      return continueAsNew(signal.aborted);
    }
    await ask("Well?");
    return step("late", () => `new, ${signal.aborted}`);
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  finish();
  const run = await runtime.resume({ run_id, await_resume: {} });
  expect([run.status, run.error, textsOf(run)]).toEqual(["completed", null, ["new, false"]]);
});

it("a fork of a run begins with the generation that it forks", async () => {
  const { runtime } = setUp();
  const charged: string[] = [];
  runtime.register("agent", { durable: true }, async (_input, { step, receive, generation, continueAsNew }) => {
    await step("charge", () => void charged.push(`${generation}`));
    if (generation === 1) return continueAsNew("carried");
    const note = await receive("note");
    return step("end", () => `${generation} ${note}`);
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await runtime.send({ to: run_id, name: "note", data: "x" });
  await drain(runtime.events(run_id, { until: "end" }));
  const fork = await runtime.fork(run_id, { before: "end#2.1" });
  expect([fork.status, textsOf(fork)]).toEqual(["completed", ["2 x"]]);
  const first = await runtime.fork(run_id, { before: "charge#1", mode: "async" });
  await drain(runtime.events(first.run_id, { until: "end" }));
  expect(textsOf(await runtime.getRun(first.run_id))).toEqual(["2 x"]);
  expect(charged).toEqual(["1", "2", "1", "2"]);
});

it("a fork that continues as new keeps the order of the messages that came before it", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { ask, step, receive, generation, continueAsNew }) => {
    if (generation === 1) await ask("Well?");
    if (generation === 2) await step("here", () => 1);
    return generation < 3 ? continueAsNew() : `${await receive("note")} ${await receive("note")}`;
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  for (const data of ["one", "two"]) await runtime.send({ to: run_id, name: "note", data });
  expect(textsOf(await runtime.resume({ run_id, await_resume: { ok: true } }))).toEqual(["one two"]);
  expect(textsOf(await runtime.fork(run_id, { before: "here#2.1" }))).toEqual(["one two"]);
});

it("an agent that begins again for ever leaves turns to others, and can be cancelled", async () => {
  const { runtime } = setUp();
  let generations = 0;
  runtime.register("endless", (_input, { continueAsNew }) => {
    generations += 1;
    return continueAsNew() as never;
  });
  const { run_id } = await runtime.createRun({ agent_name: "endless", input: "", mode: "async" });
  while (generations < 20) await inNextTurn();
  await runtime.cancel(run_id);
  await drain(runtime.events(run_id, { until: "end" }));
  const ended = generations;
  for (let n = 0; n < 5; n++) await inNextTurn();
  expect([(await runtime.getRun(run_id)).status, generations]).toEqual(["cancelled", ended]);
});

it("watchers are told of the questions of each generation, and of those that are withdrawn for the next one", async () => {
  const { runtime } = setUp({ store: new MemoryStore({ feed: { keepMs: Number.POSITIVE_INFINITY } }) });
  runtime.register("agent", { durable: true }, async (_input, { ask, generation, continueAsNew }) => {
    if (generation > 1) return "end";
    ask("Never answered").catch(() => {});
    await ask("Go?");
    return continueAsNew();
  });
  const told: string[] = [];
  const watching = (async () => {
    for await (const { event } of runtime.watch()) {
      const what = "await_id" in event ? `${event.await_id} ${"how" in event ? event.how : "asked"}` : "";
      told.push(`${event.type} ${what}`.trim());
      if (event.type === "run.completed") return;
    }
  })();
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  await runtime.resume({ run_id, await_id: "ask#2", await_resume: {}, mode: "async" });
  await watching;
  expect([...new Set(told)]).toEqual([
    "run.awaiting ask#1 asked",
    "run.awaiting ask#2 asked",
    "question.settled ask#2 answer",
    "question.settled ask#1 withdrawn",
    "run.completed",
  ]);
});

it("interceptors learn which call of the agent is the first of the run", async () => {
  const calls: boolean[] = [];
  const { runtime } = setUp({
    interceptors: [
      {
        run: (info, next) => {
          calls.push(info.isFirst);
          return next();
        },
      },
    ],
  });
  runtime.register("agent", async (_input, { generation, continueAsNew }) =>
    generation < 3 ? continueAsNew() : undefined,
  );
  await runtime.createRun({ agent_name: "agent", input: "" });
  expect(calls.filter((isFirst) => isFirst)).toHaveLength(1);
  expect(calls[0]).toBe(true);
});

it("an agent may change what it carries, whatever is executed again", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { carry, step, generation, continueAsNew }) => {
    const given = (carry ?? { items: [] }) as { items: string[] };
    given.items.push(`item ${generation}`);
    await step("one", () => 1);
    await step("two", () => 2);
    return generation < 3 ? continueAsNew(given) : given.items.join();
  });
  const run = await runtime.createRun({ agent_name: "agent", input: "" });
  expect(textsOf(run)).toEqual(["item 1,item 2,item 3"]);
  const fork = await runtime.fork(run.run_id, { before: "two#3.1" });
  expect(textsOf(fork)).toEqual(["item 1,item 2,item 3"]);
});

it("the body of a durable step cannot begin a generation", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { step, continueAsNew }) => {
    const inside = () => {
      try {
        continueAsNew();
        return "none";
      } catch (error) {
        return (error as { code: string }).code;
      }
    };
    return step("inside", inside);
  });
  expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toEqual(["nested_operation"]);
});

function say(content: string) {
  return { role: "user" as const, parts: [{ content_type: "text/plain", content }] };
}

it("a generation begins at the time at which the one before has ended", async () => {
  const { runtime, clock } = setUp();
  const seen = new Map<number, number>();
  runtime.register("sleeper", { durable: true }, async (_input, { generation, continueAsNew, now, sleep }) => {
    seen.set(generation, now());
    await sleep("1h");
    return generation < 3 ? continueAsNew() : "end";
  });
  const began = clock.now();
  await runtime.createRun({ agent_name: "sleeper", input: "", mode: "async" });
  for (let hour = 0; hour < 3; hour++) await clock.advance(3_600_000);
  expect([...seen.values()].map((at) => at - began)).toEqual([0, 3_600_000, 7_200_000]);
});

it("what a step emits that was left is dropped, and is counted", async () => {
  const { runtime } = setUp();
  let emit: ((text: string) => Promise<void>) | undefined;
  const left = deferred();
  runtime.register("leaves", async (_input, { generation, continueAsNew, step, ask }) => {
    if (generation === 2) return void (await ask("Well?"));
    void step("aside", async (scope) => {
      emit = (text) => scope.emit(text);
      await scope.emit("before");
      await left.promise;
    });
    await step("main", () => undefined);
    return continueAsNew();
  });
  const { run_id } = await runtime.createRun({ agent_name: "leaves", input: "" });
  await emit?.("late");
  expect((await runtime.stats()).dropped).toBe(1);
  left.resolve();
  expect(saidIn(await runtime.transcript(run_id))).toEqual(["", "before", "Well?"]);
});

it("an answer that is repeated in the next generation has the stream that it had at first", async () => {
  const { runtime } = setUp();
  runtime.register("asks", async (_input, { ask, emit, generation, continueAsNew }) => {
    await ask(`Well ${generation}?`);
    await emit(`heard ${generation}`);
    return generation < 3 ? continueAsNew() : undefined;
  });
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
  const answer = (idempotencyKey: string) =>
    drain(
      runtime.resume(
        { run_id, mode: "stream", await_resume: { type: "message", message: { role: "user", parts: [] } } },
        { idempotencyKey },
      ),
    );
  const [first, second] = [await answer("one"), await answer("two")];
  expect(await answer("one")).toEqual(first);
  expect(await answer("two")).toEqual(second);
});

it("a message that is sent again is recognised among the last hundred, however many wait", async () => {
  const { runtime } = setUp();
  runtime.register("inbox", async (_input, { carry, continueAsNew, receive }) => {
    if (carry === undefined) {
      await receive("go");
      return continueAsNew([]);
    }
    const got = [...(carry as readonly unknown[])];
    for (let n = 0; n < 7; n++) {
      const message = await receive("m");
      if (message === "stop") return got.join();
      got.push(message);
    }
    return continueAsNew(got);
  });
  const { run_id } = await runtime.createRun({ agent_name: "inbox", input: "", mode: "async" });
  const send = (data: number) => runtime.send({ to: run_id, name: "m", data }, { idempotencyKey: `key ${data}` });
  const all = Array.from({ length: 231 }, (_, n) => n);
  for (const n of all) await send(n);
  await runtime.send({ to: run_id, name: "go", data: null });
  while ((await runtime.details(run_id)).generation < 35) await inNextTurn();
  // With the one that let it go.
  for (const n of all.slice(-99)) await send(n);
  await runtime.send({ to: run_id, name: "m", data: "stop" });
  await drain(runtime.events(run_id));
  expect(textsOf(await runtime.getRun(run_id))).toEqual([all.join()]);
});

it("a fork of a later generation adds to its session what it says itself", async () => {
  const { runtime } = setUp();
  const seen: unknown[] = [];
  runtime.register(
    "chat",
    { durable: true },
    async (_input, { generation, continueAsNew, session, step, emit, ask }) => {
      await step("look", () => 1);
      seen.push([generation, saidIn(await session.history())]);
      await emit(`said ${generation}`);
      return generation === 1 ? continueAsNew() : ask("And?");
    },
  );
  const { run_id, session_id } = await runtime.createRun({ agent_name: "chat", input: "hi" });
  const fork = await runtime.fork(run_id, { before: "look#2.1" });
  expect(seen.at(-1)).toEqual([2, ["hi", "said 1"]]);
  await runtime.cancel(fork.run_id, { wait: true });
  const { history, ...session } = await runtime.getSession(session_id);
  expect([saidIn(history), session]).toEqual([["hi", "said 1"], { id: session_id, state: null }]);
});

it("a fork of a later generation has events without a gap, also where the one before left a message open", async () => {
  const { runtime } = setUp();
  runtime.register("talks", { durable: true }, async (_input, { generation, emit, step, continueAsNew }) => {
    await emit(`open in ${generation}`);
    await step("work", () => generation);
    return generation < 3 ? continueAsNew() : undefined;
  });
  const { run_id } = await runtime.createRun({ agent_name: "talks", input: "" });
  const fork = await runtime.fork(run_id, { before: "work#2.1" });
  const events = await drain(runtime.events(fork.run_id));
  expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
});
