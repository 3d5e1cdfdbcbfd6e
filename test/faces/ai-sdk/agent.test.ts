import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { AgentContext, Message, MessagePart, StreamedEvent } from "cadenza";
import { AgentRuntime, CadenzaError, defineAgent } from "cadenza";
import type { AiSdkOptions } from "cadenza/ai-sdk";
import { aiSdk, idempotencyKeyOf } from "cadenza/ai-sdk";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { setUp } from "../../harness/runtimes.ts";
import type { Call } from "./models.ts";
import { answer, Broken, pretend } from "./models.ts";
import { versions } from "./versions.ts";

type Reply = (call: Call, nth: number) => ReturnType<typeof answer> | Broken;

/** The texts and trajectories of messages. */
function said(messages: readonly Message[]): unknown[] {
  return messages.map(({ parts }) => {
    const use = parts[0]?.metadata;
    return use?.kind === "trajectory" ? [use.tool_name, use.tool_output] : textOf(parts);
  });
}

function textOf(parts: readonly MessagePart[]): string {
  return parts.map(({ content }) => content).join("");
}

const input = z.object({ city: z.string() });
const call = (id: string, city: string, name = "weather") => ({ id, name, input: { city } });

describe.each(versions)("$name", ({ sdk: ai, models }) => {
  /** A model whose n-th call gets the n-th reply. */
  function modelOf(reply: Reply, version: "v2" | "v3" | "v4" = models) {
    const calls: Call[] = [];
    return {
      calls,
      model: pretend(version, (given) => {
        calls.push(given);
        return reply(given, calls.length);
      }),
    };
  }

  const apiError = (isRetryable: boolean, responseHeaders: Record<string, string> = {}) =>
    new ai.APICallError({
      message: "No.",
      url: "https://model.example",
      requestBodyValues: {},
      isRetryable,
      responseHeaders,
    });

  /** Runs an agent with a durable context, and gives what a test looks at. */
  async function begin(
    agent: (sdk: ReturnType<typeof aiSdk>, context: AgentContext) => unknown,
    options?: AiSdkOptions,
  ) {
    const set = setUp();
    set.runtime.register("agent", { durable: true }, async (_input, context) =>
      agent(aiSdk(context, options), context),
    );
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "Hi", mode: "async" });
    await set.clock.settle();
    return { ...set, run_id, run: () => set.runtime.getRun(run_id), details: () => set.runtime.details(run_id) };
  }

  /** Streams an answer with tools, and waits for it. */
  const streamed = (
    model: ReturnType<typeof pretend>,
    tools: (sdk: ReturnType<typeof aiSdk>) => object = () => ({}),
  ) => {
    return async (sdk: ReturnType<typeof aiSdk>) => {
      const given = { model: sdk.model(model), tools: tools(sdk) as never, prompt: "Hi", onError: () => undefined };
      await sdk.consume(ai.streamText({ ...given, stopWhen: ai.stepCountIs(5) as never }));
    };
  };

  it("emits a streamed answer while it arrives, records it in one step, and counts its tokens", async () => {
    const { model, calls } = modelOf(() => answer("Soft the soloist plays."));
    const { run, runtime, run_id } = await begin(streamed(model));
    expect(await run()).toMatchObject({ status: "completed" });
    expect((await run()).output.map(({ parts }) => parts.map(({ content }) => content))).toEqual([
      ["Soft ", "the ", "soloist ", "plays."],
    ]);
    expect(calls).toHaveLength(1);
    expect((await runtime.details(run_id)).usage).toMatchObject({ input_tokens: 10, output_tokens: 4 });
  });

  it("emits no text of a call that does not stream, that wants JSON, or with show: false", async () => {
    const { model } = modelOf(({ responseFormat }) =>
      answer(responseFormat?.type === "json" ? '{"ok":true}' : "Secret."),
    );
    const { run: record } = await begin(
      async (sdk) => {
        const output = ai.Output.object({ schema: z.object({ ok: z.boolean() }) });
        const { text } = await ai.generateText({ model: sdk.model(model), prompt: "Hi" });
        const json = ai.streamText({ model: sdk.model(model), prompt: "Hi", output });
        await sdk.consume(json);
        const hidden = ai.streamText({ model: sdk.model(model), prompt: "Hi" });
        return JSON.stringify([text, await json.output]) + (await hidden.text);
      },
      { show: false },
    );
    expect(said((await record()).output)).toEqual(['["Secret.",{"ok":true}]Secret.']);
    const shown = await begin(async (sdk) => {
      const output = ai.Output.object({ schema: z.object({ ok: z.boolean() }) });
      await sdk.consume(ai.streamText({ model: sdk.model(model), prompt: "Hi", output }));
      await ai.generateText({ model: sdk.model(model), prompt: "Hi" });
    });
    expect((await shown.run()).output).toEqual([]);
  });

  it("shows a torn answer once, and a new message after it", async () => {
    const whole = answer("One two three four.");
    const { model } = modelOf((_call, nth) => (nth === 1 ? new Broken(whole.slice(0, 6)) : whole));
    const { run, clock, runtime, run_id } = await begin(streamed(model));
    await clock.advance(2_000);
    const { output, status } = await run();
    expect([status, said(output)]).toEqual(["completed", ["One two three four."]]);
    const seen: string[] = [];
    for await (const event of runtime.events(run_id, { until: "end" }) as AsyncIterable<StreamedEvent>)
      if (event.type.startsWith("message"))
        seen.push(event.type === "message.part" ? (event.part.content ?? "") : event.type.slice("message.".length));
    expect(seen.join("|")).toBe("created|One |two |three |created|One |two |three |four.|completed");
  });

  it("tries again what the AI SDK calls retryable, three times, after the pause that the response asks for", async () => {
    const { model, calls } = modelOf(() => {
      throw apiError(true, { "retry-after": "30" });
    });
    const { run, clock } = await begin(streamed(model));
    await clock.advance(29_999);
    expect(calls).toHaveLength(1);
    await clock.advance(1);
    expect(calls).toHaveLength(2);
    await clock.advance(30_000);
    // The AI SDK would have tried each of them three times more.
    expect([calls.length, (await run()).status]).toEqual([3, "failed"]);
  });

  it("does not try again what the AI SDK calls final, or does not mark", async () => {
    for (const error of [apiError(false), new Error("Oh.")]) {
      const { model, calls } = modelOf(() => {
        throw error;
      });
      const { run, clock } = await begin(streamed(model));
      await clock.advance(60_000);
      expect([calls.length, (await run()).status]).toEqual([1, "failed"]);
    }
  });

  it("fails an attempt whose stream is silent for stallMs, and one whose stream ends before its answer", async () => {
    let calls = 0;
    const silent = pretend(models, () => {
      calls += 1;
      return answer("Yes.").slice(0, -1);
    });
    const doStream = async () => {
      calls += 1;
      return { stream: new ReadableStream() };
    };
    const stalled = await begin(streamed({ ...silent, doStream } as never), {
      stallMs: 1_000,
      retry: { attempts: 2, backoffMs: 0 },
    });
    await stalled.clock.advance(1_000);
    expect(calls).toBe(2);
    await stalled.clock.advance(1_000);
    expect((await stalled.run()).status).toBe("failed");
    calls = 0;
    const short = await begin(streamed(silent), { retry: { attempts: 2, backoffMs: 0 } });
    expect([calls, (await short.run()).status]).toEqual([2, "failed"]);
  });

  it("takes the models of older versions as they are", async () => {
    const { model } = modelOf(
      () =>
        answer("Old but good.").map((chunk) =>
          chunk.type === "finish"
            ? { ...chunk, finishReason: "stop", usage: { inputTokens: 7, outputTokens: 3 } }
            : chunk,
        ),
      "v2",
    );
    const { run, runtime, run_id } = await begin(streamed(model));
    expect(said((await run()).output)).toEqual(["Old but good."]);
    expect((await runtime.details(run_id)).usage).toMatchObject({ input_tokens: 7, output_tokens: 3 });
  });

  it("refuses a model that is given as text", async () => {
    const { said: lines, run } = await begin((sdk) => {
      // @ts-expect-error: the type says what to give instead
      const given = () => sdk.model("openai/gpt-5");
      expect(given).toThrow('expected a model object, such as gateway("provider/model"), received "openai/gpt-5"');
      expect(() => aiSdk({} as never, { shown: true } as never)).toThrow(CadenzaError);
    });
    expect([(await run()).status, lines]).toEqual(["completed", []]);
  });

  it("records what is new in a prompt, or only a hash, and counts another prompt in a replay", async () => {
    const { model } = modelOf((_call, nth) => (nth === 1 ? answer("", call("c1", "Rome")) : answer("Sunny.")));
    const weather = ai.tool({ inputSchema: input, execute: () => "sun" });
    const store = durable(new (await import("cadenza")).MemoryStore(), { alwaysReplay: true });
    const recorded: unknown[] = [];
    const runtime = new AgentRuntime({ store });
    let prompt = 0;
    runtime.register("agent", { durable: true }, async (_input, context) => {
      const step = async (name: string, body: never, options: object) => {
        const result = await context.step(name, body, options);
        if (name === "model") recorded.push((result as { prompt: unknown }).prompt);
        return result;
      };
      const proxy = new Proxy(context, {
        get: (target, key) => (key === "step" ? step : Reflect.get(target, key, target)),
      });
      const sdk = aiSdk(proxy);
      prompt += 1;
      const given = { model: sdk.model(model), tools: sdk.tools({ weather }), prompt: prompt === 1 ? "Hi" : "Ho" };
      await sdk.consume(ai.streamText({ ...given, stopWhen: ai.stepCountIs(3) }));
      await context.step("end", () => 1);
      return String(sdk.differences);
    });
    const { output } = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(said(output).at(-1)).toBe("1");
    expect(recorded[0]).toMatchObject({ messages: 1, known: 0, new: [{ role: "user" }] });
    await runtime.close();
  });

  it("calls tools side by side in steps of their own, and keeps their results in the transcript", async () => {
    const { model, calls } = modelOf((_call, nth) =>
      nth === 1 ? answer("I look. ", call("c1", "Rome"), call("c2", "Oslo")) : answer("Done."),
    );
    const keys: string[] = [];
    const tools = (sdk: ReturnType<typeof aiSdk>) =>
      sdk.tools({
        weather: ai.tool({
          inputSchema: input,
          execute: async ({ city }, options) => {
            keys.push(idempotencyKeyOf(options));
            if (city === "Oslo") throw new RangeError("Too cold.");
            return { city, seen: new Uint8Array([1, 2]) };
          },
        }),
      });
    const { run, runtime, run_id } = await begin(streamed(model, tools));
    const { output } = await run();
    expect(said(output)).toEqual([
      "I look. ",
      ["weather", { city: "Rome", seen: { $bytes: "AQI=" } }],
      ["weather", { value: "Too cold." }],
      "Done.",
    ]);
    expect(new Set(keys).size).toBe(2);
    const names: string[] = [];
    for await (const event of runtime.events(run_id, { until: "end", detail: true }))
      if (event.type === "step.completed") names.push(event.key);
    const transcript = aiMessages(await runtime.transcript(run_id));
    expect(transcript).toMatchObject([
      { role: "user" },
      {
        role: "assistant",
        content: [{ type: "text" }, { toolCallId: "c1", input: { city: "Rome" } }, { toolCallId: "c2" }],
      },
      { role: "tool", content: [{ toolCallId: "c1" }, { output: { type: "error-text", value: "Too cold." } }] },
      { role: "assistant", content: [{ text: "Done." }] },
    ]);
    // The model got the same results within the run.
    expect(JSON.stringify(calls[1]?.prompt)).toContain("Too cold.");
  });

  const aiMessages = (messages: readonly Message[]) => aiSdk({} as never).messages(messages);

  it("asks before a tool runs, tells the model of a refusal, and leaves the question out of the messages", async () => {
    const { model, calls } = modelOf((_call, nth) =>
      nth === 1 ? answer("", call("c1", "Rome"), call("c2", "Oslo")) : answer("Done."),
    );
    const done: string[] = [];
    const execute = ({ city }: { city: string }) => void done.push(city);
    const tools = (sdk: ReturnType<typeof aiSdk>) =>
      sdk.tools(
        { weather: ai.tool({ inputSchema: input, execute }) },
        { approve: { weather: { question: ({ city }) => `Go to ${city}?` } } },
      );
    const { details, run, runtime, run_id } = await begin(streamed(model, tools));
    const asked = (await details()).await_requests;
    expect(asked.map(({ kind, name, message }) => [kind, name, message.parts[0]?.content])).toEqual([
      ["approval", "weather", "Go to Rome?"],
      ["approval", "weather", "Go to Oslo?"],
    ]);
    await runtime.resume({ run_id, await_id: "ask#2", await_resume: { approved: true } });
    await runtime.resume({ run_id, await_id: "ask#1", decline: { reason: "Too far." } });
    expect([(await run()).status, done]).toEqual(["completed", ["Oslo"]]);
    expect(calls[1]?.prompt.at(-1)?.content).toMatchObject([
      { toolCallId: "c1", output: { type: "execution-denied", reason: "Too far." } },
      { toolCallId: "c2", output: { type: "json", value: null } },
    ]);
    const messages = aiMessages(await runtime.transcript(run_id));
    expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
  });

  it("asks for the result of a tool without a function, and decides in a step whether to ask", async () => {
    const { model, calls } = modelOf((_call, nth) =>
      nth === 1 ? answer("", call("c1", "Rome", "pick"), call("c2", "Oslo")) : answer("Done."),
    );
    const tools = (sdk: ReturnType<typeof aiSdk>) =>
      sdk.tools({
        pick: ai.tool({ inputSchema: input, outputSchema: z.object({ seat: z.number() }) }),
        weather: ai.tool({ inputSchema: input, needsApproval: ({ city }) => city === "Rome", execute: () => "sun" }),
      });
    const { details, runtime, run_id } = await begin(streamed(model, tools));
    expect((await details()).await_requests.map(({ kind, name }) => [kind, name])).toEqual([["input", "pick"]]);
    const bad = runtime.resume({ run_id, await_resume: { seat: "x" } });
    await expect(bad).rejects.toMatchObject({ code: "answer_rejected" });
    expect(await runtime.resume({ run_id, await_resume: { seat: 4 } })).toMatchObject({ status: "completed" });
    expect(calls[1]?.prompt.at(-1)?.content).toMatchObject([
      { output: { type: "json", value: { seat: 4 } } },
      { output: { type: "text", value: "sun" } },
    ]);
  });

  it("records the last value of a generator tool, and tells a model of a result that is too large", async () => {
    const { model, calls } = modelOf((_call, nth) =>
      nth === 1 ? answer("", call("c1", "Rome"), call("c2", "Oslo")) : answer("Done."),
    );
    const set = setUp({ limits: { maxStepBytes: 4_000 } });
    set.runtime.register("agent", { durable: true }, async (_input, context) => {
      const sdk = aiSdk(context);
      const weather = ai.tool({
        inputSchema: input,
        async *execute({ city }) {
          yield "…";
          yield city === "Rome" ? "sun" : "x".repeat(10_000);
        },
      });
      await streamed(model, () => sdk.tools({ weather }))(sdk);
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "" });
    const results = calls[1]?.prompt.at(-1)?.content;
    expect(results).toMatchObject([{ output: { value: "sun" } }, { output: { type: "error-text" } }]);
    expect(JSON.stringify(results)).toContain("limits.maxStepBytes");
    const preliminary: unknown[] = [];
    for await (const event of set.runtime.events(run_id, { until: "end" }))
      if (event.type === "generic")
        preliminary.push((event.generic as { preliminary_output: unknown }).preliminary_output);
    expect(preliminary).toContain("…");
  });

  it("runs another agent as a tool, shows its question, and calls a direct tool without a step", async () => {
    const { model, calls } = modelOf((_call, nth) =>
      nth === 1
        ? answer("", { id: "c1", name: "desk", input: { text: "Hello" } }, call("c2", "Oslo", "wait"))
        : answer("Done."),
    );
    const desk = defineAgent("desk", { durable: true, output: z.object({ said: z.string() }) }).run(
      async (_input, { ask }) => ({ said: await ask("Well?", { schema: z.string() }) }),
    );
    const set = setUp();
    set.runtime.register(desk);
    set.runtime.register("agent", { durable: true }, async (_input, context) => {
      const sdk = aiSdk(context);
      const wait = ai.tool({ inputSchema: input, execute: ({ city }) => context.step("in it", () => city) });
      const given = { desk: sdk.agentTool(desk, { description: "Answers." }), wait };
      await streamed(model, () => sdk.tools(given, { direct: ["wait"] }))(sdk);
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "" });
    const message = { parts: [{ content: "Fine." }] };
    await set.runtime.resume({ run_id, await_resume: { type: "message", message } });
    await set.clock.settle();
    expect(calls[1]?.prompt.at(-1)?.content).toMatchObject([
      { output: { type: "json", value: { said: "Fine." } } },
      { output: { type: "text", value: "Oslo" } },
    ]);
  });

  it("asks for the approvals that a call has ended with", async () => {
    const { model } = modelOf((_call, nth) =>
      nth === 1 ? answer("", call("c1", "Rome"), call("c2", "Oslo")) : answer("Done."),
    );
    const done: string[] = [];
    const weather = ai.tool({ inputSchema: input, needsApproval: true, execute: ({ city }) => done.push(city) });
    const { details, runtime, run_id } = await begin(async (sdk) => {
      const messages = sdk.messages([
        { role: "user", parts: [{ content: "Hi", content_type: "text/plain", content_encoding: "plain" }] },
      ]);
      const first = await ai.generateText({ model: sdk.model(model), tools: { weather }, messages });
      const answers = await sdk.approvals(first);
      if (answers === undefined) throw new Error("nothing was asked");
      const all = [...messages, ...first.response.messages, answers];
      const second = await ai.generateText({ model: sdk.model(model), tools: { weather }, messages: all });
      return `${second.text} ${await sdk.approvals(second)}`;
    });
    expect((await details()).await_requests).toHaveLength(2);
    await runtime.resume({ run_id, await_id: "ask#1", await_resume: { approved: true } });
    const over = await runtime.resume({ run_id, await_id: "ask#2", await_resume: { approved: false } });
    expect([said(over.output), done]).toEqual([["Done. undefined"], ["Rome"]]);
  });

  it("fetches no file whose origin is not allowed, whatever a message says it is", async () => {
    const asked: (string | undefined)[] = [];
    const server = createServer(({ url }, response) => {
      asked.push(url);
      response.end("INTERNAL SECRET");
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
    const { port } = server.address() as AddressInfo;
    const address = `http://localhost:${port}`;
    const file = (content_type: string, more: object): Message => ({
      role: "user",
      parts: [{ content_type, content_encoding: "plain", ...more }],
    });
    const messages = [
      file("text/plain", { content_url: `${address}/url` }),
      file("image/png", { content_url: `http://a:b@localhost:${port}/credentials`, name: "a.png" }),
      file("image/png", { content: `${address}/base64`, content_encoding: "base64" }),
      file("image/svg+xml", { content: `${address}/plain` }),
      file("image/png", { content_url: "data:image/png;base64,iVBORw0KGgo=" }),
      file("image/png", { content_url: "file:///etc/passwd" }),
    ];
    try {
      const { model, calls } = modelOf(() => answer("Fine."));
      const given = (options?: { readonly fileOrigins: readonly string[] }) =>
        begin(async (sdk) => {
          await ai.generateText({ model: sdk.model(model), messages: sdk.messages(messages, options) as never });
        });
      expect(await (await given()).run()).toMatchObject({ status: "completed" });
      expect(asked).toEqual([]);
      const texts = calls[0]?.prompt.flatMap(({ content }) =>
        (content as { type: string; text?: string }[]).flatMap(({ type, text }) => (type === "text" ? [text] : [])),
      );
      expect(texts).toEqual([
        `text/plain: ${address}/url`,
        `a.png: http://a:b@localhost:${port}/credentials`,
        `${address}/base64`,
        "image/png: file:///etc/passwd",
      ]);
      // The origin that is allowed is that of the address as it is written.
      await (await given({ fileOrigins: [`http://127.0.0.1:${port}`] })).run();
      expect(asked).toEqual([]);
    } finally {
      server.close();
    }
  });

  it("passes on files of the origins that are allowed", () => {
    const sdk = aiSdk({} as AgentContext);
    const part = {
      content_type: "image/png",
      content_encoding: "plain",
      content_url: "https://files.example/a.png",
    } as const;
    const options = { fileOrigins: ["https://FILES.example/"] };
    expect(sdk.messages([{ role: "user", parts: [part] }], options)).toEqual([
      { role: "user", content: [{ type: "file", mediaType: "image/png", data: new URL(part.content_url) }] },
    ]);
    for (const fileOrigins of ["https://a.example", ["a.example"], ["https://a.example/path"], [5], ["data:,x"]])
      expect(() => sdk.messages([], { fileOrigins } as never)).toThrow("options.fileOrigins");
    expect(() => sdk.messages([], { origins: [] } as never)).toThrow("options");
  });

  it("reads messages whose trajectories were written by hand", () => {
    const sdk = aiSdk({} as AgentContext);
    const use = { kind: "trajectory", tool_name: "t", tool_call_id: "c" };
    const poisoned = [
      { ...use, tool_input: { $url: "no url" } },
      { ...use, tool_input: { $bytes: "?" } },
      { ...use, tool_input_is_value: true },
      { ...use, model_output: "a text" },
      { ...use, model_output: { $date: 5 } },
    ].map((metadata) => ({ content_type: "text/plain", content_encoding: "plain", metadata }));
    const messages = poisoned.map((part) => ({ role: "agent", parts: [part] }) as unknown as Message);
    expect(() => sdk.messages([...messages, { role: "user", parts: [] }])).not.toThrow();
    // The result of a client's tool is what the user says, and what the user says next stays.
    const result = {
      content_type: "text/plain",
      content: "5 °C",
      content_encoding: "plain",
      tool_call_id: "c",
    } as const;
    const words = { content_type: "text/plain", content: "Thanks.", content_encoding: "plain" } as const;
    const said = [result, words].map((part) => ({ role: "user", parts: [part] }) as Message);
    expect(sdk.messages(said)).toEqual([
      { role: "user", content: [{ type: "text", text: "5 °C" }] },
      { role: "user", content: [{ type: "text", text: "Thanks." }] },
    ]);
  });

  it("works with ToolLoopAgent and with the messages of a session", async () => {
    const { model, calls } = modelOf((_call, nth) => (nth === 1 ? answer("", call("c1", "Rome")) : answer("Sunny.")));
    const set = setUp();
    set.runtime.register("agent", { durable: true }, async (given, context) => {
      const sdk = aiSdk(context);
      const weather = ai.tool({ inputSchema: input, execute: () => "sun" });
      const loop = new ai.ToolLoopAgent({ model: sdk.model(model), tools: sdk.tools({ weather }) });
      const messages = [...sdk.messages(await context.session.history()), ...sdk.messages(given)];
      await sdk.consume(await loop.stream({ messages }));
    });
    const first = await set.runtime.createRun({ agent_name: "agent", input: "Rome?" });
    await set.runtime.createRun({ agent_name: "agent", input: "Sure?", session_id: first.session_id });
    expect(calls[2]?.prompt.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant", "user"]);
  });
});

it("generateObject of ai 6 gives an agent its object", async () => {
  const { generateObject } = await import("ai");
  const set = setUp();
  const model = pretend("v3", () => answer('{"ok":true}'));
  set.runtime.register("agent", { durable: true }, async (_input, context) => {
    const { object } = await generateObject({
      model: aiSdk(context).model(model),
      schema: z.object({ ok: z.boolean() }),
      prompt: "Hi",
    });
    return JSON.stringify(object);
  });
  expect(said((await set.runtime.createRun({ agent_name: "agent", input: "" })).output)).toEqual(['{"ok":true}']);
});
