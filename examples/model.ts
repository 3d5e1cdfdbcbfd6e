import type { LanguageModel } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";

/** A model of any provider, and not its name. */
export type Model = Exclude<LanguageModel, string>;

type Prompt = Parameters<MockLanguageModelV3["doStream"]>[0]["prompt"];

/**
 * A model that answers without a network, so that the examples run anywhere. To use a real model, replace `pretendModel(…)`
 * by `openai("gpt-5")`, with `import { openai } from "@ai-sdk/openai"`. `pauseMs` is its pause between two words.
 */
export function pretendModel(answer: (prompt: Prompt) => string, pauseMs = 5): Model {
  return new MockLanguageModelV3({
    doStream: async ({ prompt }) => {
      const words = answer(prompt).split(/(?<= )/);
      const text = words.map((delta) => ({ type: "text-delta" as const, id: "1", delta }));
      return {
        stream: simulateReadableStream({
          chunkDelayInMs: pauseMs,
          chunks: [
            { type: "stream-start", warnings: [] },
            { type: "text-start", id: "1" },
            ...text,
            { type: "text-end", id: "1" },
            {
              type: "finish",
              finishReason: { unified: "stop", raw: undefined },
              usage: {
                inputTokens: { total: prompt.length * 10, noCache: prompt.length * 10, cacheRead: 0, cacheWrite: 0 },
                outputTokens: { total: words.length, text: words.length, reasoning: 0 },
              },
            },
          ],
        }),
      };
    },
  });
}
