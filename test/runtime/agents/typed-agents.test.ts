import { AgentRuntime, CadenzaError, defineAgent, textOf } from "cadenza";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { deferred } from "../../harness/promises.ts";
import { refusal, reply, setUp } from "../../harness/runtimes.ts";

const Ticket = z.object({ text: z.string(), age: z.string().transform(Number) });
const Category = z.object({ category: z.enum(["refund", "other"]) });
const approval = z.object({ approved: z.boolean() });

const triage = defineAgent("triage", { input: Ticket, output: Category }).run(async function* ({ text, age }) {
  yield `Looking at ${text}, ${age + 1}… `;
  return { category: "refund" };
});

const json = (value: unknown) => ({ content_type: "application/json", content: JSON.stringify(value) });

describe("the input of a typed agent", () => {
  it.each([
    ["a JSON part", json({ text: "A", age: "7" })],
    ["a text of JSON", '{"text":"A","age":"7"}'],
    ["a JSON part beside a text", [{ content: "See: " }, json({ text: "A", age: "7" })]],
    ["the value itself", { text: "A", age: "7" }],
    ["the value beside a text", ["See: ", { text: "A", age: "7" }]],
  ])("is read from %s", async (_, input) => {
    const { runtime } = setUp();
    runtime.register(triage);
    expect(textOf(await runtime.createRun({ agent_name: "triage", input }))).toBe("Looking at A, 8… ");
  });

  it("is its text where that matches", async () => {
    const { runtime } = setUp();
    runtime.register(defineAgent("shout", { input: z.string() }).run((text) => text.toUpperCase()));
    expect(textOf(await runtime.createRun({ agent_name: "shout", input: "hello" }))).toBe("HELLO");
  });

  it("is refused at its sender if it does not match, in every mode, and nothing is created", async () => {
    const { runtime } = setUp();
    runtime.register(triage);
    const request = { agent_name: "triage", input: json({ text: 5, age: "7" }) };
    for (const call of [
      runtime.createRun(request),
      runtime.createRun({ ...request, mode: "async" }),
      runtime.createRun({ ...request, mode: "stream" }),
      runtime.createRun(request, { idempotencyKey: "once" }),
    ]) {
      const error = await refusal(call);
      expect(error).toMatchObject({ code: "invalid_input", agent_name: "triage" });
      expect(error.issues).toMatchObject([{ path: ["text"] }]);
    }
    expect(await runtime.listRuns()).toEqual([]);
  });

  it.each([
    ["nested more than 64 levels deep", "[".repeat(65) + "]".repeat(65), "is nested more than 64 levels deep."],
    ["more than 50,000 values", `[${"1,".repeat(50_000)}1]`, "holds more than 50000 values."],
    ["a key __proto__", '{"text":"A","age":"7","__proto__":{"isAdmin":true}}', 'has a key "__proto__".'],
    [
      "a number that loses digits",
      '{"text":9007199254740993}',
      "has a number that would lose digits: send 9007199254740993 as a string.",
    ],
  ])("is refused as JSON with %s, in a JSON part and in a text, as an answer is", async (_, content, why) => {
    const { runtime } = setUp();
    const read: unknown[] = [];
    const schema = z.looseObject({});
    runtime.register(defineAgent("takes", { input: schema }).run((input) => void read.push(input)));
    runtime.register("asks", async (_input, { ask }) => void read.push(await ask("Well?", { schema })));
    const issues = [{ path: [], message: `The JSON ${why}` }];
    for (const input of [content, { content_type: "application/json", content }])
      expect(await refusal(runtime.createRun({ agent_name: "takes", input }))).toMatchObject({
        code: "invalid_input",
        issues,
      });
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
    const answer = runtime.resume({ run_id, await_resume: reply(content) });
    expect(await refusal(answer)).toMatchObject({ code: "answer_rejected", issues });
    expect(read).toEqual([]);
  });

  it("may be any text where its schema takes a text", async () => {
    const { runtime } = setUp();
    runtime.register(defineAgent("counts", { input: z.string() }).run((text) => `${text.length}`));
    for (const input of ["[".repeat(65) + "]".repeat(65), "9007199254740993"])
      expect(textOf(await runtime.createRun({ agent_name: "counts", input }))).toBe(`${input.length}`);
  });

  it("may be validated asynchronously", async () => {
    const { runtime } = setUp();
    const even = v.pipeAsync(
      v.number(),
      v.checkAsync(async (n) => n % 2 === 0, "not even"),
      v.transform((n) => n * 10),
    );
    runtime.register(
      defineAgent("even", { input: even, output: z.number() }).run(function* (n) {
        yield `${n} `;
        return n + 1;
      }),
    );
    const run = await runtime.createRun({ agent_name: "even", input: "4" });
    expect(run.output.map(({ parts }) => parts.map(({ content }) => content))).toEqual([["40 ", "41"]]);
    expect((await refusal(runtime.createRun({ agent_name: "even", input: "3" }))).issues).toEqual([
      { path: [], message: "not even" },
    ]);
  });
});

describe("the output of a typed agent", () => {
  it("is a JSON part with the name output, as the agent has returned it", async () => {
    const { runtime } = setUp();
    runtime.register(
      defineAgent("count", { output: z.object({ n: z.string().transform(Number) }) }).run(() => ({ n: "5" })),
    );
    const { output } = await runtime.createRun({ agent_name: "count", input: "" });
    expect(output.map(({ parts }) => parts)).toEqual([
      [{ name: "output", content_type: "application/json", content: '{"n":"5"}', content_encoding: "plain" }],
    ]);
  });

  it("that does not match fails the run", async () => {
    const { runtime } = setUp();
    runtime.register(defineAgent("wrong", { output: Category }).run(() => ({ category: "refnd" }) as never));
    runtime.register(defineAgent("lossy", { output: z.any() }).run(async () => ({ at: new Date(0) })));
    for (const agent_name of ["wrong", "lossy"]) {
      const { status, error } = await runtime.createRun({ agent_name, input: "" });
      expect({ status, reason: error?.data }).toEqual({ status: "failed", reason: { reason: "invalid_output" } });
      const failure = await refusal(runtime.call({ name: agent_name, options: {} }, ""));
      expect(failure).toMatchObject({ code: "run_failed", run: { status: "failed" } });
    }
  });

  it("is emitted by a generator that was answered, thrown into, and cancelled", async () => {
    const { runtime, clock } = setUp();
    const ended: string[] = [];
    runtime.register(
      defineAgent("asking", { output: z.string() }).run(async function* () {
        try {
          const answer = yield { type: "message", message: "Well?" };
          return `answered ${JSON.stringify(answer)}`;
        } catch (error) {
          return `declined: ${(error as Error).message}`;
        } finally {
          ended.push("finally");
        }
      }),
    );
    const create = () => runtime.createRun({ agent_name: "asking", input: "" });
    const outputOf = async (run: Promise<{ output: readonly { parts: readonly { content?: string | null }[] }[] }>) =>
      (await run).output.at(-1)?.parts.at(-1)?.content;
    const first = await create();
    expect(await outputOf(runtime.resume({ run_id: first.run_id, await_resume: { n: 1 } }))).toContain("answered");
    const second = await create();
    expect(await outputOf(runtime.resume({ run_id: second.run_id, decline: { reason: "No." } }))).toContain("No.");
    const third = await create();
    await runtime.cancel(third.run_id);
    await clock.advance(0);
    expect(await runtime.getRun(third.run_id)).toMatchObject({ status: "cancelled" });
    expect(ended.length).toBeGreaterThanOrEqual(3);
  });
});

describe("a call", () => {
  it("gives the output of the schema, and the messages of an agent without one", async () => {
    const { runtime } = setUp();
    const count = defineAgent("count", { input: z.int(), output: z.string().transform(Number) }).run((n) => `${n + 1}`);
    const echo = defineAgent("echo", (input) => input);
    runtime.register(triage, count, echo);
    expect(await runtime.call(triage, { text: "A", age: "7" })).toEqual({ category: "refund" });
    expect(await runtime.call(count, 4)).toBe(5);
    expect((await runtime.call(echo, "Hello")).map(textOf)).toEqual(["Hello"]);
  });

  it("rejects with the run that has failed or was cancelled", async () => {
    const { runtime } = setUp();
    const failing = defineAgent("failing", async () => {
      throw new Error("secret");
    });
    const stuck = defineAgent("stuck", async (_input, { ask }) => ask("?"));
    runtime.register(failing, stuck);
    const failed = await refusal(runtime.call(failing, ""));
    expect(failed).toMatchObject({ code: "run_failed", run: { status: "failed" } });
    expect(failed.run_id).toBe(failed.run?.run_id);
    expect(failed.message).not.toContain("secret");
    const cancelled = refusal(
      runtime.call(stuck, "", {
        onQuestion: async ({ run_id }) => {
          await runtime.cancel(run_id);
          return undefined;
        },
      }),
    );
    expect(await cancelled).toMatchObject({ code: "run_cancelled", run: { status: "cancelled" } });
  });

  it("is refused for an agent that is not registered, and for an input that does not match", async () => {
    const { runtime } = setUp();
    expect((await refusal(runtime.call(triage, { text: "A", age: "7" }))).code).toBe("agent_not_found");
    runtime.register(triage);
    expect((await refusal(runtime.call(triage, { text: 5, age: "7" } as never))).code).toBe("invalid_input");
    expect((await refusal(runtime.call(triage, { text: new Date(0) } as never))).code).toBe("invalid_argument");
  });

  it("answers all questions that are open at once, each once", async () => {
    const { runtime } = setUp();
    const desk = defineAgent("desk", { questions: { approval }, output: z.array(z.boolean()) }).run(
      async (_input, { ask }) => {
        const answers = await Promise.all([ask("A?", { name: "approval" }), ask("B?", { name: "approval" })]);
        answers.push(await ask("C?", { name: "approval" }));
        return answers.map(({ approved }) => approved);
      },
    );
    runtime.register(desk);
    const asked: string[] = [];
    const first = deferred<{ approved: boolean }>();
    const approved = await runtime.call(desk, "", {
      onQuestion: ({ message, name }) => {
        const text = message.parts[0]?.content ?? "";
        asked.push(`${name} ${text}`);
        // The first is answered after the second.
        if (text === "A?") return first.promise;
        first.resolve({ approved: false });
        return { approved: true };
      },
    });
    expect(approved).toEqual([false, true, true]);
    expect(asked).toEqual(["approval A?", "approval B?", "approval C?"]);
  });

  it("rejects with what the one who answers throws, and with the refusal of the answer", async () => {
    const { runtime } = setUp();
    const desk = defineAgent("desk", { questions: { approval } }).run(async (_input, { ask }) => {
      await ask("?", { name: "approval" });
    });
    runtime.register(desk);
    const thrown = runtime.call(desk, "", {
      onQuestion: () => {
        throw new CadenzaError("ambiguous", "No idea.");
      },
    });
    expect((await refusal(thrown)).code).toBe("ambiguous");
    const unfit = await refusal(runtime.call(desk, "", { onQuestion: () => ({ approved: 5 }) }));
    expect(unfit.code).toBe("answer_rejected");
    expect((await runtime.listRuns()).map(({ status }) => status)).toEqual(["awaiting", "awaiting"]);
  });

  it("takes answers of any JSON, declines, and leaves questions to others", async () => {
    const { runtime } = setUp();
    const desk = defineAgent("desk", { output: z.array(z.unknown()) }).run(async (_input, { ask }) => [
      await ask("?", { schema: z.number() }),
      await ask("?", { schema: z.string() }),
      await ask("?", { schema: z.array(z.null()) }),
      await ask("?").catch((error: CadenzaError) => error.code),
      await ask("?", { schema: z.string() }),
    ]);
    runtime.register(desk);
    let count = 0;
    const answers = await runtime.call(desk, "", {
      onQuestion: (question) => {
        count += 1;
        if (count === 5)
          void runtime.resume({ run_id: question.run_id, await_resume: reply("from elsewhere"), mode: "async" });
        return [5, "five", [null], question.decline("No."), undefined][count - 1];
      },
    });
    expect(answers).toEqual([5, "five", [null], "answer_declined", "from elsewhere"]);
  });

  it("stops waiting when its signal aborts, and the run goes on", async () => {
    const { runtime } = setUp();
    const stuck = defineAgent("stuck", async (_input, { ask }) => ask("?"));
    runtime.register(stuck);
    const controller = new AbortController();
    const called = runtime.call(stuck, "", {
      signal: controller.signal,
      onQuestion: () => {
        controller.abort(new Error("enough"));
        return undefined;
      },
    });
    await expect(called).rejects.toThrow("enough");
    expect((await runtime.listRuns())[0]).toMatchObject({ status: "awaiting" });
  });

  it("inside an agent gives the output, and a rejection that the agent may catch", async () => {
    const { runtime } = setUp();
    const wrong = defineAgent("wrong", { input: z.int(), output: z.int() }).run(() => "no" as never);
    runtime.register(triage, wrong);
    runtime.register("caller", async (_input, { call }) => {
      const { category } = await call(triage, { text: "A", age: "7" });
      const codes = await Promise.all([
        call(wrong, 5).catch((error: CadenzaError) => `${error.code} ${error.run?.status}`),
        call(wrong, "5" as never).catch((error: CadenzaError) => error.code),
        call({ name: "nowhere", options: {} }, "").catch((error: CadenzaError) => error.code),
      ]);
      return [category, ...codes].join();
    });
    const run = await runtime.createRun({ agent_name: "caller", input: "" });
    expect(textOf(run)).toBe("refund,run_failed failed,invalid_input,agent_not_found");
  });
});

describe("declared questions and messages", () => {
  const desk = defineAgent("desk", {
    questions: { approval },
    messages: { payment: z.object({ cents: z.int() }) },
  }).run(async (_input, { ask, receive }) => {
    const { approved } = await ask("Refund?", { name: "approval" });
    const { cents } = await receive("payment");
    return `${approved} ${cents}`;
  });

  it("are refused at their sender where they do not match", async () => {
    const { runtime } = setUp();
    runtime.register(desk);
    const { run_id } = await runtime.createRun({ agent_name: "desk", input: "" }, { labels: { order: "1" } });
    expect((await refusal(runtime.resume({ run_id, await_resume: { approved: "yes" } }))).code).toBe("answer_rejected");
    for (const to of [run_id, { labels: { order: "1" } }]) {
      const error = await refusal(runtime.send({ to, name: "payment", data: { cents: "5" } }));
      expect(error).toMatchObject({ code: "message_rejected", issues: [{ path: ["cents"] }] });
    }
    await runtime.send({ to: run_id, name: "not declared", data: 5 });
    await runtime.resume({ run_id, await_resume: { approved: true }, mode: "async" });
    await runtime.send({ to: run_id, name: "payment", data: { cents: 5 } });
    for await (const _ of runtime.events(run_id, { until: "end" }));
    expect(textOf(await runtime.getRun(run_id))).toBe("true 5");
  });

  it("stand in the manifest as JSON Schema, beside the metadata of the agent", async () => {
    const { runtime } = setUp();
    runtime.register(desk, triage);
    const { metadata } = await runtime.getAgent("desk");
    expect(metadata?.annotations?.["cadenza"]).toMatchObject({
      questions: { approval: { properties: { approved: { type: "boolean" } } } },
      messages: { payment: { properties: { cents: { type: "integer" } } } },
    });
    const manifest = await runtime.getAgent("triage");
    expect(manifest.input_content_types).toEqual(["application/json", "text/plain"]);
    expect(manifest.metadata?.annotations?.["cadenza"]).toMatchObject({
      input: { properties: { text: { type: "string" }, age: { type: "string" } } },
      output: { properties: { category: { enum: ["refund", "other"] } } },
    });
  });
});

describe("agents of a runtime", () => {
  it("may be given to its constructor, and are registered all or none", async () => {
    const echo = defineAgent("echo", (input) => input);
    const runtime = new AgentRuntime({ agents: [echo, triage] });
    expect((await runtime.listAgents()).map(({ name }) => name)).toEqual(["echo", "triage"]);
    const third = defineAgent("third", () => "");
    expect(() => runtime.register(third, echo)).toThrow(expect.objectContaining({ code: "agent_exists" }));
    expect(() => runtime.register(third, third)).toThrow(expect.objectContaining({ code: "agent_exists" }));
    expect((await refusal(runtime.getAgent("third"))).code).toBe("agent_not_found");
    expect(() => new AgentRuntime({ agents: "echo" as never })).toThrow(/options.agents/);
    expect(() => new AgentRuntime({ agents: new Array(1) })).toThrow(/agent: expected .*, received undefined/);
    expect(() => new AgentRuntime({ agents: ["echo"] as never })).toThrow(/agent/);
  });

  it("refuse schemas that are none, and schemas beside a function", () => {
    for (const options of [{ input: {} }, { output: 5 }, { questions: { a: 5 } }, { messages: [] }])
      expect(() => defineAgent("a", options as never)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
    expect(() => defineAgent("a", { input: z.string() } as never, () => "")).toThrow(/input/);
    expect(() => defineAgent("a", {}).run(5 as never)).toThrow(/fn/);
  });
});
