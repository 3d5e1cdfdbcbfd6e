import { generateText, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import type { AgentFunction, Message } from "cadenza";
import * as z from "zod";

/*
 * Agents as users of the AI SDK write them, with its mock model. The model streams with `simulateReadableStream`, which
 * reads ahead with a timer of its own. The agents are correct: no tool of the kit may report a problem.
 */

type Answer = Awaited<ReturnType<MockLanguageModelV3["doStream"]>>;
type Chunk = Answer["stream"] extends ReadableStream<infer Part> ? Part : never;

const usage = {
  inputTokens: { total: 7, noCache: 7, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 3, text: 3, reasoning: 0 },
};

function streamOf(chunks: readonly Chunk[], chunkDelayInMs: number): Answer {
  return { stream: simulateReadableStream({ chunks: [...chunks], initialDelayInMs: chunkDelayInMs, chunkDelayInMs }) };
}

/** A model that calls its weather tool, and then answers. Its answer depends on the prompt alone. */
function weatherModel(chunkDelayInMs = 1): MockLanguageModelV3 {
  return new MockLanguageModelV3({
    doStream: async ({ prompt }) => {
      const last = prompt.at(-1);
      if (last?.role !== "tool") {
        return streamOf(
          [
            { type: "stream-start", warnings: [] },
            { type: "tool-call", toolCallId: "call-1", toolName: "weather", input: '{"city":"Rome"}' },
            { type: "finish", finishReason: { unified: "tool-calls", raw: undefined }, usage },
          ],
          chunkDelayInMs,
        );
      }
      const words = ["It ", "is ", "sunny ", "in ", "Rome."];
      return streamOf(
        [
          { type: "stream-start", warnings: [] },
          { type: "text-start", id: "1" },
          ...words.map((delta) => ({ type: "text-delta" as const, id: "1", delta })),
          { type: "text-end", id: "1" },
          { type: "finish", finishReason: { unified: "stop", raw: undefined }, usage },
        ],
        chunkDelayInMs,
      );
    },
    doGenerate: async () => ({
      content: [{ type: "text", text: "refund" }],
      finishReason: { unified: "stop", raw: undefined },
      usage,
      warnings: [],
    }),
  });
}

/** The agent of `examples/ai-sdk.ts`. */
const poet: AgentFunction = async function* (input, context) {
  const answer = streamText({
    model: weatherModel(),
    prompt: promptOf(input),
    tools: { weather: weatherTool() },
    stopWhen: stepCountIs(3),
    abortSignal: context.signal,
  });
  yield* answer.textStream;
  context.usage.add(await answer.totalUsage);
};

/** Classifies with one call of a model, and answers with another. */
const triage: AgentFunction = async function* (input, context) {
  const prompt = promptOf(input);
  const category = await context.step("classify", async ({ signal }) => {
    const { text } = await generateText({ model: weatherModel(), prompt, abortSignal: signal });
    return text;
  });
  yield `It is about a ${category}. `;
  const { ok } = await context.ask("Shall I look?", { schema: z.object({ ok: z.boolean() }) });
  if (!ok) return;
  const { textStream, totalUsage } = streamText({
    model: weatherModel(),
    prompt,
    tools: { weather: weatherTool() },
    stopWhen: stepCountIs(3),
    abortSignal: context.signal,
  });
  for await (const text of textStream) yield text;
  context.usage.add(await totalUsage);
};

/** The call of the model is a step, which emits its tokens. */
const streamedStep: AgentFunction = async (input, context) => {
  await context.step("answer", async ({ emit, signal }) => {
    const answer = streamText({
      model: weatherModel(),
      prompt: promptOf(input),
      tools: { weather: weatherTool() },
      stopWhen: stepCountIs(3),
      abortSignal: signal,
    });
    let whole = "";
    for await (const text of answer.textStream) {
      whole += text;
      await emit(text);
    }
    return whole;
  });
};

function promptOf(input: readonly Message[]): string {
  return input.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("\n");
}

function weatherTool() {
  return tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  });
}

export const aiSdkAgents: Readonly<Record<string, { agent: AgentFunction; answers: readonly unknown[] }>> = {
  "streams an answer": { agent: poet, answers: [] },
  "asks between two calls of its model": { agent: triage, answers: [{ ok: true }] },
  "streams in a step": { agent: streamedStep, answers: [] },
};
