import { APICallError, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { defineAgent } from "cadenza";
import { aiSdk } from "cadenza/ai-sdk";
import { drive, everyInterruption, mockModel } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import * as z from "zod";

const refund = tool({ inputSchema: z.object({ euros: z.int() }), execute: ({ euros }) => `paid ${euros}` });
const prompt = "My train was late.";
const silent = { onError: () => undefined };

describe("a mock model", () => {
  it("says its one text to each call, and counts the tokens", async () => {
    const model = mockModel("one two three");
    const { text, usage, finishReason } = await generateText({ model, prompt });
    expect(text).toBe("one two three");
    expect(finishReason).toBe("stop");
    expect(usage).toMatchObject({ inputTokens: 10, outputTokens: 3, totalTokens: 13 });
    expect((await generateText({ model, prompt })).text).toBe(text);
  });

  it("streams an answer word by word", async () => {
    const parts: string[] = [];
    for await (const part of streamText({ model: mockModel("one two\nthree"), prompt }).textStream) parts.push(part);
    expect(parts).toEqual(["one ", "two\n", "three"]);
  });

  it.each(["generateText", "streamText"])("calls tools in %s, and gets their results", async (name) => {
    const model = mockModel([
      ["I look. ", { tool: "refund", input: { euros: 40 } }, { tool: "refund", input: { euros: 2 } }],
      "Done.",
    ]);
    const call = { model, prompt, tools: { refund }, stopWhen: stepCountIs(3) };
    const result = name === "streamText" ? streamText(call) : await generateText(call);
    const steps = await result.steps;
    expect(steps.map(({ text, finishReason }) => [text, finishReason])).toEqual([
      ["I look. ", "tool-calls"],
      ["Done.", "stop"],
    ]);
    expect(new Set(steps[0]?.toolCalls.map(({ toolCallId }) => toolCallId)).size).toBe(2);
    expect(model.calls.map(({ number, text, results }) => ({ number, text, results }))).toEqual([
      { number: 1, text: prompt, results: [] },
      {
        number: 2,
        text: prompt,
        results: [
          { tool: "refund", output: { type: "text", value: "paid 40" } },
          { tool: "refund", output: { type: "text", value: "paid 2" } },
        ],
      },
    ]);
  });

  it("tells a call the results that are new to it", async () => {
    const model = mockModel([
      { tool: "refund", input: { euros: 1 } },
      { tool: "refund", input: { euros: 2 } },
      "Done.",
    ]);
    await generateText({ model, prompt, tools: { refund }, stopWhen: stepCountIs(3) });
    expect(model.calls.map(({ results }) => results.map(({ output }) => output.value))).toEqual([
      [],
      ["paid 1"],
      ["paid 2"],
    ]);
  });

  it("answers by a function of the call", async () => {
    const model = mockModel(async ({ text, results, prompt: messages, options }) =>
      results.length > 0
        ? `${messages.length} messages`
        : [`${text} at ${String(options["temperature"])}. `, { tool: "refund", input: { euros: 1 } }],
    );
    const call = { model, system: "Be kind.", temperature: 0.5, tools: { refund }, stopWhen: stepCountIs(2) };
    const { steps } = await generateText({
      ...call,
      messages: [
        { role: "user", content: "Who?" },
        { role: "assistant", content: "Me." },
        {
          role: "user",
          content: [
            { type: "text", text: "You" },
            { type: "text", text: "there" },
          ],
        },
      ],
    });
    expect(steps.map(({ text }) => text)).toEqual(["You\nthere at 0.5. ", "6 messages"]);
  });

  it("gives an object where the AI SDK wants one", async () => {
    const output = Output.object({ schema: z.object({ city: z.string() }) });
    const model = mockModel(JSON.stringify({ city: "Rome" }));
    expect((await generateText({ model, prompt, output })).output).toEqual({ city: "Rome" });
  });

  it("fails with an error", async () => {
    const model = mockModel([
      new Error("The provider is down."),
      new Error("Still down."),
      ["half ", new Error("terminated"), "never"],
    ]);
    await expect(generateText({ model, prompt, maxRetries: 0 })).rejects.toThrow("The provider is down.");
    await expect(model.doStream({ prompt: [] })).rejects.toThrow("Still down.");
    const parts: string[] = [];
    const { fullStream } = streamText({ model, prompt, ...silent });
    for await (const part of fullStream) {
      if (part.type === "text-delta") parts.push(part.text);
      if (part.type === "error") parts.push(String(part.error));
    }
    expect(parts).toEqual(["half ", "Error: terminated"]);
    await expect(
      generateText({ model: mockModel([["half", new Error("no")]]), prompt, maxRetries: 0 }),
    ).rejects.toThrow("no");
  });

  it("is tried again after an error that the AI SDK calls retryable", async () => {
    const busy = new APICallError({ message: "busy", url: "", requestBodyValues: {}, isRetryable: true });
    const t = drive(async (input, context) => {
      const sdk = aiSdk(context, { retry: { attempts: 2, backoffMs: 0 } });
      return (await generateText({ model: sdk.model(mock), messages: sdk.messages(input) })).text;
    }, prompt);
    const mock = mockModel([busy, "At last."]);
    expect((await t.finish()).status).toBe("completed");
    expect(t.text()).toBe("At last.");
  });

  it("says that its list is used up", async () => {
    const model = mockModel(["one"]);
    await generateText({ model, prompt });
    await expect(generateText({ model, prompt, maxRetries: 0 })).rejects.toThrow(
      "The mock model was called 2 times, and its list has 1 answers. Add one, or give a function.",
    );
  });

  it.each([
    ["waits for an answer", () => mockModel(() => new Promise(() => undefined))],
    ["pauses before its first word", () => mockModel("one two", { pauseMs: 60_000 })],
  ])("ends at once when it is aborted while it %s", async (_, make) => {
    const abort = new AbortController();
    const model = make();
    const ended = generateText({ model, prompt, abortSignal: abort.signal, maxRetries: 0 });
    abort.abort(new Error("enough"));
    await expect(ended).rejects.toThrow("enough");

    const other = new AbortController();
    const alone = model.doGenerate({ prompt: [], abortSignal: other.signal });
    other.abort(new Error("enough of this"));
    await expect(alone).rejects.toThrow("enough of this");
    await expect(model.doGenerate({ prompt: [], abortSignal: abort.signal })).rejects.toThrow("enough");
  });

  it("breaks its stream when it is aborted between two words", async () => {
    const abort = new AbortController();
    const { stream } = await mockModel("one two").doStream({ prompt: [], abortSignal: abort.signal });
    const reader = stream.getReader();
    for (const type of ["stream-start", "text-start", "text-delta"])
      expect((await reader.read()).value).toMatchObject({ type });
    abort.abort(new Error("enough"));
    await expect(reader.read()).rejects.toThrow("enough");
  });

  it("pauses before each word, and has its own id", async () => {
    const model = mockModel("one two", { pauseMs: 1, modelId: "slow" });
    expect(await streamText({ model, prompt }).text).toBe("one two");
    expect(model.modelId).toBe("slow");
  });

  it("has the same ids of tool calls in another process, and no id twice in a run", async () => {
    const desk = () =>
      defineAgent("desk", { durable: true }, async (input, context) => {
        const sdk = aiSdk(context);
        const model = mockModel(({ results, prompt: { length } }) =>
          results.length > 0 && length > 4 ? "Done." : { tool: "refund", input: { euros: length } },
        );
        const { steps } = await generateText({
          model: sdk.model(model),
          tools: sdk.tools({ refund }, { approve: { refund: true } }),
          messages: sdk.messages(input),
          stopWhen: stepCountIs(5),
        });
        return steps.flatMap(({ toolCalls }) => toolCalls.map(({ toolCallId }) => toolCallId)).join(" ");
      });
    const t = drive(desk(), prompt);
    for (let asked = 0; asked < 2; asked++) {
      await t.until("await");
      await t.answer({ approved: true });
    }
    await t.finish();
    expect(t.text().trim()).toBe("call-1-1 call-3-1");
    (await everyInterruption(desk(), prompt, { answers: [{ approved: true }, { approved: true }] })).assert();
  });

  it("refuses what it does not understand", async () => {
    // @ts-expect-error A number is no answer.
    expect(() => mockModel(7)).toThrow("answers: expected a text, a list or a function, received 7.");
    // @ts-expect-error There is no such option.
    expect(() => mockModel("one", { pause: 1 })).toThrow('options: there is no option "pause"');
    expect(() => mockModel("one", { pauseMs: -1 })).toThrow("options.pauseMs: expected a number from 0");
    // @ts-expect-error A call of a tool has the name of the tool.
    const model = mockModel([{ name: "refund" }]);
    await expect(generateText({ model, prompt, maxRetries: 0 })).rejects.toThrow("answer: expected a text, a call");
  });
});
