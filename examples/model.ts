import type { LanguageModel } from "ai";
import type { MockModel } from "cadenza/testing";
import { mockModel } from "cadenza/testing";

/** A model of any provider, and not its name. */
export type Model = Exclude<LanguageModel, string>;

/**
 * A model that answers without a network, so that the examples run anywhere. To use a real model, replace `pretendModel(…)`
 * by `openai("gpt-5")`, with `import { openai } from "@ai-sdk/openai"`. `pauseMs` is its pause between two words.
 */
export function pretendModel(answer: (prompt: MockModel["calls"][number]["prompt"]) => string, pauseMs = 5): Model {
  return mockModel(({ prompt }) => answer(prompt), { pauseMs });
}
