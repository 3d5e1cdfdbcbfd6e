import type { AgentContext, Run } from "cadenza";
import { awaitMessage, CadenzaError } from "cadenza";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { deferred } from "../../harness/promises.ts";
import {
  drain,
  eventsOf,
  questionOf,
  refusal,
  reply,
  runAgent,
  setUp,
  textOf,
  textsOf,
  typesOf,
} from "../../harness/runtimes.ts";

const json = (value: unknown) => ({
  type: "message",
  message: { role: "user", parts: [{ content_type: "application/json", content: JSON.stringify(value) }] },
});

describe("a question", () => {
  it("is shown to the client and resolves with its answer", async () => {
    const { runtime, clock } = setUp();
    let answer: unknown;
    const asking = await runAgent(runtime, async (_input, { ask }) => {
      answer = await ask("Book it?");
      return "Booked.";
    });
    expect(asking).toMatchObject({ status: "awaiting", output: [], finished_at: null });
    expect(questionOf(asking)).toEqual({
      type: "message",
      await_id: "ask#1",
      message: {
        role: "agent/agent",
        parts: [{ content_type: "text/plain", content: "Book it?", content_encoding: "plain" }],
        created_at: new Date(clock.now()).toISOString(),
        completed_at: new Date(clock.now()).toISOString(),
      },
    });

    const run = await runtime.resume({ run_id: asking.run_id, await_resume: reply("Yes.") });
    expect(answer).toMatchObject({ role: "user", parts: [{ content: "Yes." }] });
    expect(run).toMatchObject({ status: "completed", await_request: null });
    expect(textsOf(run)).toEqual(["Booked."]);
  });

  it("may be a whole message", async () => {
    const { runtime } = setUp();
    const asking = await runAgent(runtime, (_input, { ask }) => ask({ parts: [{ content: "a" }, { content: "b" }] }));
    expect(textOf(questionOf(asking).message)).toBe("a|b");
  });

  it("may be a part, asked or yielded", async () => {
    const { runtime } = setUp();
    const picture = { content_url: "data:image/png;base64,aGk=", content_type: "image/png" };
    for (const part of [{ content: "x" }, picture]) {
      const asked = await runAgent(runtime, (_input, { ask }) => ask(part));
      const yielded = await runAgent(runtime, async function* () {
        yield awaitMessage(part);
      });
      for (const run of [asked, yielded]) expect(questionOf(run).message.parts).toMatchObject([part]);
    }
  });

  it("without a schema is answered by an object as it is", async () => {
    const { runtime } = setUp();
    const asking = await runAgent(runtime, async (_input, { ask }) => ({ got: await ask("?") }));
    await runtime.resume({ run_id: asking.run_id, await_resume: { seats: [1, 2], kind: null } });
    expect(await eventsOf(runtime, asking.run_id)).toContainEqual(
      expect.objectContaining({ type: "generic", generic: { got: { seats: [1, 2], kind: null } } }),
    );
  });

  it("of a yield resolves with the await_resume itself", async () => {
    const { runtime } = setUp();
    const asking = await runAgent(runtime, async function* (): AsyncGenerator<unknown, void, unknown> {
      yield { got: yield awaitMessage("?") };
    });
    const run = await runtime.resume({ run_id: asking.run_id, await_resume: reply("Yes.") });
    const [generic] = (await eventsOf(runtime, run.run_id)).filter(({ type }) => type === "generic");
    expect(generic).toMatchObject({ generic: { got: { type: "message", message: { parts: [{ content: "Yes." }] } } } });
  });

  it("completes the open message, and the first part after the answer opens another one", async () => {
    const { runtime } = setUp();
    const asking = await runAgent(runtime, async function* () {
      yield "before";
      yield "the question";
      yield awaitMessage("?");
      yield null;
      yield "after";
    });
    expect(asking.output).toMatchObject([{ parts: [{}, {}], completed_at: expect.any(String) }]);
    const told = typesOf(await eventsOf(runtime, asking.run_id));
    expect(told.slice(2)).toEqual([
      ...["message.created", "message.part", "message.part", "message.completed", "run.awaiting"],
    ]);
    const run = await runtime.resume({ run_id: asking.run_id, await_resume: reply("ok") });
    expect(textsOf(run)).toEqual(["before|the question", "after"]);
  });

  it("completes the open message of a step body, which goes on in another message", async () => {
    const { runtime } = setUp();
    const [said, gate] = [deferred(), deferred()];
    const run = await runAgent(runtime, async function* (_input: unknown, { ask, step }: AgentContext) {
      const model = step("model", async ({ emit }) => {
        await emit("first");
        said.resolve();
        await gate.promise;
        await emit("second");
      });
      await said.promise;
      await ask("?");
      gate.resolve();
      await model;
      yield "end";
    } as () => AsyncGenerator);
    expect(run.output).toMatchObject([{ parts: [{ content: "first" }], completed_at: expect.any(String) }]);
    const ended = await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    expect(textsOf(ended)).toEqual(["first", "second", "end"]);
  });

  it("between two attempts at a step keeps nothing of the first attempt in the output", async () => {
    const { runtime } = setUp();
    const [said, gate] = [deferred(), deferred()];
    const run = await runAgent(runtime, async (_input, { ask, step }) => {
      const model = step(
        "model",
        async ({ attempt, emit }) => {
          await emit(`attempt ${attempt}`);
          said.resolve();
          if (attempt > 1) return;
          await gate.promise;
          throw new Error("busy");
        },
        { retry: { attempts: 2 } },
      );
      await said.promise;
      await ask("?");
      gate.resolve();
      await model;
    });
    const ended = await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    expect(textsOf(ended)).toEqual(["attempt 2"]);
  });

  it("with an invalid text fails the run and says what was expected", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => ask(5 as unknown as string));
    expect(run).toMatchObject({ status: "failed" });
    expect(run.error?.message).toContain("question: expected");
  });

  it("is asked several times, each answer going to its own question", async () => {
    const { runtime } = setUp();
    let run: Run = await runAgent(runtime, async function* (): AsyncGenerator<unknown, void, unknown> {
      for (const name of ["a", "b", "c"]) yield { [name]: yield awaitMessage(name) };
    });
    for (const name of ["a", "b", "c"]) {
      expect(textOf(questionOf(run).message)).toBe(name);
      run = await runtime.resume({ run_id: run.run_id, await_resume: { to: name } });
    }
    const told = (await eventsOf(runtime, run.run_id)).filter(({ type }) => type === "generic");
    expect(told).toMatchObject(["a", "b", "c"].map((name) => ({ generic: { [name]: { to: name } } })));
  });
});

describe("a question with a schema", () => {
  const schemas = {
    zod: z.object({ seats: z.number() }),
    valibot: v.object({ seats: v.number() }),
    "an asynchronous zod": z.object({ seats: z.number() }).refine(async ({ seats }) => seats > 0, "at least one"),
    "an asynchronous valibot": v.pipeAsync(
      v.object({ seats: v.number() }),
      v.checkAsync(async ({ seats }) => seats > 0, "at least one"),
    ),
  };

  /** An agent that asks with a schema and emits the answer. */
  async function asking(
    schema: (typeof schemas)[keyof typeof schemas],
  ): Promise<ReturnType<typeof setUp> & { run: Run }> {
    const set = setUp();
    const run = await runAgent(set.runtime, async (_input, { ask }) => ({ got: await ask("How many?", { schema }) }));
    return { ...set, run };
  }

  describe.each(Object.entries(schemas))("%s", (_name, schema) => {
    it.each([
      ["the object itself", { seats: 2 }],
      ["a part of JSON", json({ seats: 2 })],
      ["a text that is JSON", reply('{ "seats": 2 }')],
    ])("takes %s", async (_title, answer) => {
      const { runtime, run } = await asking(schema);
      await runtime.resume({ run_id: run.run_id, await_resume: answer as { readonly seats: number } });
      expect((await eventsOf(runtime, run.run_id))[3 + 1]).toMatchObject({ generic: { got: { seats: 2 } } });
    });

    it("refuses an answer that does not match with the issues, and the run goes on waiting", async () => {
      const { runtime, run } = await asking(schema);
      const before = await eventsOf(runtime, run.run_id);
      const error = await refusal(runtime.resume({ run_id: run.run_id, await_resume: { seats: "two" } }));

      expect(error).toMatchObject({ code: "answer_rejected", run_id: run.run_id, await_id: "ask#1" });
      expect(error.issues).toMatchObject([{ path: ["seats"] }]);
      expect(error.message).toContain("seats: ");
      expect(await eventsOf(runtime, run.run_id)).toEqual(before);
      expect(await runtime.resume({ run_id: run.run_id, await_resume: { seats: 1 } })).toMatchObject({
        status: "completed",
      });
    });
  });

  it("takes the raw text where neither JSON nor an object matches", async () => {
    const { runtime } = setUp();
    for (const text of ["yes", "5", '{"a":1}']) {
      const run = await runAgent(runtime, (_input, { ask }) => ask("?", { schema: z.string() }));
      expect(textsOf(await runtime.resume({ run_id: run.run_id, await_resume: reply(text) }))).toEqual([text]);
    }
  });

  it("tries a part of JSON before the text, and the text as JSON before the raw text", async () => {
    const { runtime } = setUp();
    // A schema may be asked about a value more than once.
    const tried = new Set<unknown>();
    const schema = z.unknown().refine((value) => {
      tried.add(value);
      return false;
    });
    const run = await runAgent(runtime, (_input, { ask }) => ask("?", { schema }));
    const parts = [{ content: "12" }, { content_type: "application/vnd.a+json", content: '"j"' }];
    await refusal(
      runtime.resume({ run_id: run.run_id, await_resume: { type: "message", message: { role: "user", parts } } }),
    );
    expect([...tried]).toEqual(["j", '12"j"']);

    tried.clear();
    await refusal(runtime.resume({ run_id: run.run_id, await_resume: reply(" 12 ") }));
    expect([...tried]).toEqual([12, " 12 "]);
  });

  it("is a part of the question's message as JSON Schema", async () => {
    const { run } = await asking(schemas.zod);
    const [text, schema] = questionOf(run).message.parts;

    expect(text).toMatchObject({ content: "How many?" });
    expect(schema).toMatchObject({ content_type: "application/schema+json", await_id: "ask#1" });
    expect(JSON.parse(schema?.content ?? "")).toMatchObject({
      type: "object",
      properties: { seats: { type: "number" } },
    });
  });

  it("gives the agent the schema's output, and the log the answer as it came", async () => {
    const { runtime } = setUp();
    const schema = z.object({ day: z.string().transform((day) => day.toUpperCase()) });
    let given: { day: string } | undefined;
    const run = await runAgent(runtime, async (_input, { ask }) => {
      given = await ask("When?", { schema });
    });
    await runtime.resume({ run_id: run.run_id, await_resume: { day: "mon" } });
    const { history } = await runtime.getSession(run.session_id);

    expect(given).toEqual({ day: "MON" });
    expect(history.map(textOf)).toContain('{"day":"mon"}');
  });

  it("validates one answer at a time: the first one wins", async () => {
    const { runtime, clock } = setUp();
    const schema = z.object({ by: z.string() }).refine(async ({ by }) => {
      for (let turn = by === "slow" ? 5 : 0; turn > 0; turn--) await clock.turn();
      return true;
    });
    const run = await runAgent(runtime, async (_input, { ask }) => (await ask("?", { schema })).by);
    const slow = runtime.resume({ run_id: run.run_id, await_resume: { by: "slow" } });
    const fast = await runtime.resume({ run_id: run.run_id, await_resume: { by: "fast" } });

    expect(textsOf(fast)).toEqual(["fast"]);
    expect((await refusal(slow)).code).toMatch(/answer_conflict|not_awaiting/);
  });

  it("that throws refuses the answer, and the run goes on waiting", async () => {
    const { runtime } = setUp();
    const schema = z.object({}).refine(() => {
      throw new Error("the validator broke");
    });
    const run = await runAgent(runtime, (_input, { ask }) => ask("?", { schema }));
    await expect(runtime.resume({ run_id: run.run_id, await_resume: {} })).rejects.toThrow();
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "awaiting" });
  });

  it("has to be a Standard Schema", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => ask("?", { schema: {} as z.ZodType }));
    expect(run.error?.message).toContain("options.schema: expected a Standard Schema, received an object");
  });
});

describe("several questions at once", () => {
  async function askAll({ ask, emit }: AgentContext, ...names: string[]): Promise<void> {
    await Promise.all(
      names.map(async (name) => {
        await ask(name);
        await emit(`${name} answered`);
      }),
    );
  }

  it("are shown one after the other, and each gets its own answer", async () => {
    const { runtime } = setUp();
    let run: Run = await runAgent(runtime, (_input, context) => askAll(context, "a", "b", "c"));
    const shown: string[] = [];
    while (run.status === "awaiting") {
      shown.push(textOf(questionOf(run).message));
      run = await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    }
    expect(shown).toEqual(["a", "b", "c"]);
    expect(textsOf(run)).toEqual(["a answered|b answered|c answered"]);
  });

  it("are open at once: the next one is shown with the answer to the first", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, (_input, context) => askAll(context, "a", "b"));
    const next = await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    expect(questionOf(next).await_id).toBe("ask#2");
    const types = typesOf(await eventsOf(runtime, run.run_id));
    expect(types.slice(2, 5)).toEqual(["run.awaiting", "run.in-progress", "run.awaiting"]);
  });

  it("can be answered in any order, by their ids", async () => {
    const { runtime } = setUp();
    const { run_id } = await runAgent(runtime, (_input, context) => askAll(context, "a", "b", "c"));
    const second = await runtime.resume({ run_id, await_id: "ask#2", await_resume: reply("ok") });
    expect(questionOf(second).await_id).toBe("ask#1");
    const third = await runtime.resume({ run_id, await_id: "ask#3", await_resume: reply("ok") });
    expect(questionOf(third).await_id).toBe("ask#1");
    const last = await runtime.resume({ run_id, await_resume: reply("ok") });
    expect(textsOf(last)).toEqual(["b answered|c answered|a answered"]);
  });

  it("are answered without waiting: the run goes on, and then shows the next one", async () => {
    const { runtime } = setUp();
    const { run_id } = await runAgent(runtime, (_input, context) => askAll(context, "a", "b"));
    const accepted = await runtime.resume({ run_id, await_resume: reply("ok"), mode: "async" });
    expect(accepted).toMatchObject({ status: "in-progress", await_request: null });
    expect(questionOf(await runtime.getRun(run_id)).await_id).toBe("ask#2");
  });

  it("are answered by streams, of which each begins after the question that was shown before", async () => {
    const { runtime } = setUp();
    const { run_id } = await runAgent(runtime, (_input, context) => askAll(context, "a", "b", "c"));
    const follow = (await_id: string) =>
      drain(runtime.resume({ run_id, await_id, await_resume: reply("ok"), mode: "stream" }));
    const streams = [await follow("ask#1"), await follow("ask#3"), await follow("ask#2")];
    expect(typesOf(streams[0] ?? [])).toEqual(["run.in-progress", "run.awaiting"]);
    expect(streams.map((events) => events.at(-1)?.type)).toEqual(["run.awaiting", "run.awaiting", "run.completed"]);
    // No event is in two of them, and none is left out.
    const all = await eventsOf(runtime, run_id);
    expect(streams.flat()).toEqual(all.slice(3));
    // Repeated, they give the same events.
    expect([await follow("ask#1"), await follow("ask#3"), await follow("ask#2")]).toEqual(streams);
  });

  it("are withdrawn when the agent ends without them", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, async (_input, { ask, emit }) => {
      const answers = [ask("a"), ask("b")];
      await answers[0];
      await emit("that will do");
    });
    await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    await clock.settle();
    const ended = await runtime.getRun(run.run_id);
    expect(ended).toMatchObject({ status: "completed", await_request: null });
    expect((await refusal(runtime.resume({ run_id: run.run_id, await_resume: { x: 1 } }))).code).toBe("not_awaiting");
  });

  it("a question that the agent does not await is withdrawn when the agent ends", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => {
      void ask("a");
      return "done";
    });
    await runtime.getRun(run.run_id);
    const types = typesOf(await eventsOf(runtime, run.run_id));
    expect(types.at(-1)).toBe("run.completed");
    expect(types.filter((type) => type === "run.completed")).toHaveLength(1);
  });
});

describe("a question with a deadline", () => {
  it("tells the client its deadline", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => ask("?", { timeoutMs: 60_000 }));
    expect(questionOf(run).expires_at).toBe(new Date(clock.now() + 60_000).toISOString());
  });

  it("resolves with its default at the deadline, not validated", async () => {
    const { runtime, clock } = setUp();
    let given: unknown;
    const run = await runAgent(runtime, async (_input, { ask }) => {
      given = await ask("?", { schema: z.number(), timeoutMs: 1_000, default: "none" as unknown as number });
      return "went on";
    });
    await clock.advance(999);
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "awaiting" });
    await clock.advance(1);
    expect(given).toBe("none");
    expect(textsOf(await runtime.getRun(run.run_id))).toEqual(["went on"]);
  });

  it("of a yield resolves with its default too", async () => {
    const { runtime, clock } = setUp();
    const sent: unknown[] = [];
    await runAgent(runtime, async function* (): AsyncGenerator<unknown, void, unknown> {
      sent.push(yield awaitMessage("?", { timeoutMs: 10, default: { no: true } }));
    });
    await clock.advance(10);
    expect(sent).toEqual([{ no: true }]);
  });

  it("fails the run when it expires without a default, and its finally blocks run", async () => {
    const { runtime, clock } = setUp();
    const seen: unknown[] = [];
    const run = await runAgent(runtime, async function* (_input: unknown, { ask, signal }: AgentContext) {
      try {
        yield "asking";
        await ask("?", { timeoutMs: 1_000 }).catch((error: unknown) => {
          seen.push(error);
          throw error;
        });
      } finally {
        seen.push(signal.aborted);
        yield "cleaned up";
      }
    } as () => AsyncGenerator);
    await clock.advance(1_000);
    const failed = await runtime.getRun(run.run_id);

    expect(failed).toMatchObject({
      status: "failed",
      await_request: null,
      error: { code: "server_error", data: { reason: "await_timeout", await_id: "ask#1" } },
    });
    expect(textsOf(failed)).toEqual(["asking", "cleaned up"]);
    expect(seen).toEqual([expect.objectContaining({ code: "await_timeout", await_id: "ask#1" }), true]);
  });

  it("of a yield fails the run when it expires, and its finally blocks run", async () => {
    const { runtime, clock } = setUp();
    let cleaned = false;
    const run = await runAgent(runtime, async function* () {
      try {
        yield awaitMessage("?", { timeoutMs: 5 });
      } finally {
        cleaned = true;
      }
    });
    await clock.advance(5);
    expect(cleaned).toBe(true);
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "failed" });
  });

  it("has the runtime's deadline if it names none", async () => {
    const { runtime, clock } = setUp({ awaitTimeoutMs: 500 });
    const ask = await runAgent(runtime, (_input, context) => context.ask("?"));
    const yielding = await runAgent(runtime, async function* () {
      yield awaitMessage("?");
    });
    const patient = await runAgent(runtime, (_input, context) =>
      context.ask("?", { timeoutMs: Number.POSITIVE_INFINITY }),
    );
    await clock.advance(500);
    for (const { run_id } of [ask, yielding]) expect(await runtime.getRun(run_id)).toMatchObject({ status: "failed" });
    expect(await runtime.getRun(patient.run_id)).toMatchObject({ status: "awaiting" });
  });

  it("that is open behind another has a deadline of its own", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) =>
      Promise.all([ask("a"), ask("b", { timeoutMs: 1_000 })]).then(() => "both"),
    );
    expect(questionOf(run)).toMatchObject({ await_id: "ask#1" });
    await clock.advance(999);
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "awaiting" });
    await clock.advance(1);
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "failed" });
  });

  it("takes no answer when it has expired", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, async (_input, { ask }) => {
      await ask("?", { timeoutMs: 10, default: {} });
      await ask("And now?");
    });
    await clock.advance(10);
    const late = runtime.resume({ run_id: run.run_id, await_id: "ask#1", await_resume: { late: true } });
    expect((await refusal(late)).code).toBe("not_awaiting");
    expect(questionOf(await runtime.getRun(run.run_id)).await_id).toBe("ask#2");
  });

  it("that is answered in time leaves no timer", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => ask("?", { timeoutMs: 10_000 }).then(() => "ok"));
    const before = clock.timers;
    await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    await clock.settle();
    expect(clock.timers).toBeLessThanOrEqual(before);
    await clock.advance(20_000);
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "completed" });
  });

  it("may expire while an answer is being validated: the answer comes too late, and the run has one end", async () => {
    const { runtime, clock } = setUp();
    const { promise, resolve } = deferred<boolean>();
    const schema = z.object({}).refine(() => promise);
    const run = await runAgent(runtime, (_input, { ask }) => ask("?", { schema, timeoutMs: 10 }).then(() => "ok"));
    const answering = refusal(runtime.resume({ run_id: run.run_id, await_resume: {} }));
    await clock.advance(10);
    resolve(true);

    expect((await answering).code).toBe("not_awaiting");
    expect(await runtime.getRun(run.run_id)).toMatchObject({
      status: "failed",
      error: { data: { reason: "await_timeout" } },
    });
    expect(typesOf(await eventsOf(runtime, run.run_id)).filter((type) => type.startsWith("run."))).toEqual([
      "run.created",
      "run.in-progress",
      "run.awaiting",
      "run.failed",
    ]);
  });
});

describe("resume", () => {
  /** A run that asks twice and emits both answers. */
  async function asking() {
    const set = setUp();
    const run = await runAgent(set.runtime, async (_input, { ask, emit }) => {
      await emit({ first: await ask("one") });
      await emit({ second: await ask("two") });
    });
    return { ...set, run_id: run.run_id };
  }

  it("in mode sync gives the run when it rests again", async () => {
    const { runtime, run_id } = await asking();
    expect(questionOf(await runtime.resume({ run_id, await_resume: { n: 1 } })).await_id).toBe("ask#2");
    expect(await runtime.resume({ run_id, await_resume: { n: 2 }, mode: "sync" })).toMatchObject({
      status: "completed",
    });
  });

  it("in mode async gives the run as it goes on, before its agent does anything", async () => {
    const { runtime, clock, run_id } = await asking();
    const accepted = await runtime.resume({ run_id, await_resume: { n: 1 }, mode: "async" });
    expect(accepted).toMatchObject({ status: "in-progress", await_request: null });
    await clock.settle();
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "awaiting" });
  });

  it("in mode async gives the status in-progress also for a run that ends at once", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => ask("?").then(() => undefined));
    const accepted = await runtime.resume({ run_id: run.run_id, await_resume: { n: 1 }, mode: "async" });
    expect(accepted.status).toBe("in-progress");
    await clock.settle();
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "completed" });
  });

  it("in mode stream starts right after the question", async () => {
    const { runtime, run_id } = await asking();
    const events = await drain(runtime.resume({ run_id, await_resume: { n: 1 }, mode: "stream" }));
    expect(typesOf(events)).toEqual(["run.in-progress", "generic", "run.awaiting"]);
    expect(events[0]?.id).toBe(4);
  });

  it("in mode stream starts right after the question, even if the agent has emitted something since", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async (_input, { ask, emit }) => {
      const answer = ask("?");
      await emit("meanwhile");
      await answer;
      await emit("then");
    });
    const events = await drain(runtime.resume({ run_id: run.run_id, await_resume: { n: 1 }, mode: "stream" }));
    expect(typesOf(events)).toEqual([
      "message.created",
      "message.part",
      "run.in-progress",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
  });

  it("with a bad mode is refused", async () => {
    const { runtime, run_id } = await asking();
    const error = await refusal(runtime.resume({ run_id, await_resume: {}, mode: "later" as "sync" }));
    expect(error).toMatchObject({ code: "invalid_argument" });
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "awaiting" });
  });

  it.each([
    ["an id", { await_id: "ask#1" }, {}],
    ["an idempotency key", {}, { idempotencyKey: "k" }],
  ])("with %s again gives the same result, now and when the run has ended", async (_title, ids, options) => {
    const { runtime, run_id } = await asking();
    const request = { run_id, await_resume: { n: 1 }, ...ids };
    const first = await runtime.resume(request, options);
    expect(await runtime.resume(request, options)).toEqual(first);
    await runtime.resume({ run_id, await_resume: { n: 2 } });
    const events = await eventsOf(runtime, run_id);

    const again = await runtime.resume(request, options);
    expect(again).toEqual(await runtime.getRun(run_id));
    expect(again.status).toBe("completed");
    expect(await eventsOf(runtime, run_id)).toEqual(events);
  });

  it.each([
    ["an id", { await_id: "ask#1" }, {}, "answer_conflict"],
    ["an idempotency key", {}, { idempotencyKey: "k" }, "idempotency_conflict"],
  ])(
    "with %s again and another answer is a conflict, now and when the run has ended",
    async (_title, ids, options, code) => {
      const { runtime, run_id } = await asking();
      await runtime.resume({ run_id, await_resume: { n: 1 }, ...ids }, options);
      const other = () => refusal(runtime.resume({ run_id, await_resume: { n: "other" }, ...ids }, options));
      expect((await other()).code).toBe(code);
      await runtime.resume({ run_id, await_resume: { n: 2 } });
      expect((await other()).code).toBe(code);
    },
  );

  it("again as a stream gives the same events", async () => {
    const { runtime, run_id } = await asking();
    const request = { run_id, await_resume: { n: 1 }, await_id: "ask#1", mode: "stream" } as const;
    const first = await drain(runtime.resume(request));
    expect(await drain(runtime.resume(request))).toEqual(first);
    await runtime.resume({ run_id, await_resume: { n: 2 } });
    expect(await drain(runtime.resume(request))).toEqual(first);
  });

  it("at the same time with the same answer is accepted twice and delivered once", async () => {
    const { runtime, run_id } = await asking();
    const request = { run_id, await_resume: { n: 1 }, await_id: "ask#1" };
    const [one, two] = await Promise.all([runtime.resume(request), runtime.resume(request)]);
    expect(one).toEqual(two);
    expect(typesOf(await eventsOf(runtime, run_id)).filter((type) => type === "generic")).toHaveLength(1);
  });

  it("at the same time with different answers is accepted once", async () => {
    const { runtime, run_id } = await asking();
    const outcomes = await Promise.allSettled(
      [1, 2, 3].map((n) => runtime.resume({ run_id, await_resume: { n }, await_id: "ask#1" })),
    );
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
    expect(questionOf(await runtime.getRun(run_id)).await_id).toBe("ask#2");
  });

  it("of a run that does not ask is refused", async () => {
    const { runtime, clock } = setUp();
    runtime.register("busy", () => new Promise(() => undefined));
    const run = await runtime.createRun({ agent_name: "busy", input: "x", mode: "async" });
    const early = await refusal(runtime.resume({ run_id: run.run_id, await_resume: {} }));
    expect(early).toMatchObject({ code: "not_awaiting", run_id: run.run_id });
    await clock.settle();
    const later = await refusal(runtime.resume({ run_id: run.run_id, await_resume: {} }));
    expect(later.code).toBe("not_awaiting");
    expect(later.message).toBe(`Run ${run.run_id} does not wait for an answer. It has no open question.`);
  });

  it("to a question that is not open is refused, and the open ones are named", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async (_input, { ask }) => {
      await Promise.all(Array.from({ length: 7 }, (_, n) => ask(`${n}?`)));
    });
    const { run_id } = run;
    const error = await refusal(runtime.resume({ run_id, await_id: "ask#9", await_resume: {} }));
    expect(error).toMatchObject({ code: "not_awaiting", run_id, await_id: "ask#9" });
    expect(error.message).toBe(
      `Run ${run_id} does not wait for an answer to "ask#9". Its open questions: ask#1, ask#2, ask#3, ask#4, ask#5 and others.`,
    );
  });

  it("of a run that is being cancelled is refused, and its questions reject", async () => {
    const { runtime, clock } = setUp();
    const seen: unknown[] = [];
    const run = await runAgent(runtime, async (_input, { ask }) => {
      await ask("?").catch((error: unknown) => seen.push(error));
      await ask("Once more?").catch((error: unknown) => seen.push(error));
      await new Promise(() => undefined);
    });
    await runtime.cancel(run.run_id);
    const error = await refusal(runtime.resume({ run_id: run.run_id, await_resume: {} }));
    expect(error.code).toBe("run_cancelling");
    await clock.settle();
    expect(seen).toHaveLength(2);
    expect(seen.every((one) => CadenzaError.is(one) && one.code === "run_cancelled")).toBe(true);
  });

  it("of a run that does not exist is refused", async () => {
    const { runtime } = setUp();
    const run_id = "00000000-0000-4000-8000-000000000000";
    expect(await refusal(runtime.resume({ run_id, await_resume: {} }))).toMatchObject({
      code: "run_not_found",
      run_id,
    });
    const stream = runtime.resume({ run_id, await_resume: {}, mode: "stream" });
    expect((await refusal(stream)).code).toBe("run_not_found");
  });

  it("with a message of the protocol is the same as with its defaults written out", async () => {
    const { runtime, run_id } = await asking();
    const request = { run_id, await_id: "ask#1" };
    await runtime.resume({ ...request, await_resume: { message: { parts: [{ content: "a" }] } } });
    const spelt = {
      role: "user" as const,
      parts: [{ content: "a", content_type: "text/plain", content_encoding: "plain" }],
    };
    expect(await runtime.resume({ ...request, await_resume: { type: "message", message: spelt } })).toMatchObject({
      status: "awaiting",
    });
  });

  it("keeps its own copy of the answer", async () => {
    const { runtime, run_id } = await asking();
    const answer = { list: [1] };
    await runtime.resume({ run_id, await_resume: answer, await_id: "ask#1" });
    answer.list.push(2);
    expect((await refusal(runtime.resume({ run_id, await_resume: answer, await_id: "ask#1" }))).code).toBe(
      "answer_conflict",
    );
    expect(await runtime.resume({ run_id, await_resume: { list: [1] }, await_id: "ask#1" })).toMatchObject({
      status: "awaiting",
    });
  });
});
