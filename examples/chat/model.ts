/** The model of the chat: a real one if there is a key for it, else one that gives prepared answers. */
import { gateway } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import type { Model } from "../model.ts";

/**
 * Where a key leads: to a model of the AI gateway, or to a package with a provider, and its function that makes a model.
 * The major version 3 of these packages is the one for `ai` 6.
 */
interface Provider {
  readonly model: string;
  readonly from?: readonly [packageName: string, maker: string];
}

const providers: ReadonlyMap<string, Provider> = new Map([
  ["AI_GATEWAY_API_KEY", { model: "openai/gpt-5-mini" }],
  ["ANTHROPIC_API_KEY", { model: "claude-sonnet-4-5", from: ["@ai-sdk/anthropic", "anthropic"] }],
  ["OPENAI_API_KEY", { model: "gpt-5-mini", from: ["@ai-sdk/openai", "openai"] }],
]);

/**
 * The model for the first key in the environment, and a line that says which. `MODEL` names another model of the same
 * provider. Undefined without a key, or if the provider's package is missing, which the line says.
 */
export async function realModel(
  env: Readonly<Record<string, string | undefined>>,
): Promise<{ readonly model: Model | undefined; readonly line: string }> {
  const [key, provider] = [...providers].find(([name]) => (env[name] ?? "") !== "") ?? [];
  if (key === undefined || provider === undefined)
    return { model: undefined, line: `A built-in model with prepared answers. Real ones need ${known()}.` };
  const id = env["MODEL"] ?? provider.model;
  if (provider.from === undefined) return { model: gateway(id), line: `The model ${id} of the AI gateway.` };
  const [packageName, maker] = provider.from;
  try {
    const made = (await import(packageName)) as Readonly<Record<string, (id: string) => Model>>;
    return { model: made[maker]?.(id), line: `The model ${id} of ${packageName}.` };
  } catch (error) {
    if ((error as { readonly code?: string }).code !== "ERR_MODULE_NOT_FOUND") throw error;
    const line = `${key} is set, and its package is missing: npm install --no-save ${packageName}@3. A built-in model answers.`;
    return { model: undefined, line };
  }
}

function known(): string {
  return [...providers.keys()].join(", ").replace(/, (?=\w+$)/, " or ");
}

type Prompt = Parameters<MockLanguageModelV3["doStream"]>[0]["prompt"];

/** A model with prepared answers, which pauses between two words for so many milliseconds. */
export function preparedModel(pauseMs: number): Model {
  return new MockLanguageModelV3({
    doStream: async ({ prompt }) => {
      const { text, refund } = answerTo(prompt);
      const words = text.split(/(?<= )/).map((delta) => ({ type: "text-delta" as const, id: "1", delta }));
      const input = JSON.stringify({ euros: 40 });
      const call = { type: "tool-call" as const, toolCallId: `refund-${prompt.length}`, toolName: "refund", input };
      return {
        stream: simulateReadableStream({
          initialDelayInMs: pauseMs,
          chunkDelayInMs: pauseMs,
          chunks: [
            { type: "text-start", id: "1" },
            ...words,
            { type: "text-end", id: "1" },
            ...(refund ? [call] : []),
            {
              type: "finish",
              finishReason: { unified: refund ? "tool-calls" : "stop", raw: undefined },
              usage: {
                inputTokens: { total: prompt.length, noCache: prompt.length, cacheRead: 0, cacheWrite: 0 },
                outputTokens: { total: words.length, text: words.length, reasoning: 0 },
              },
            },
          ],
        }),
      };
    },
  });
}

function answerTo(prompt: Prompt): { readonly text: string; readonly refund: boolean } {
  const last = prompt.at(-1);
  const [part] = last === undefined || typeof last.content === "string" ? [] : last.content;
  if (part?.type === "tool-result") {
    const isDenied = part.output.type === "execution-denied";
    return { text: isDenied ? "Then I leave it as it is. " : "The 40 € are on their way. ", refund: false };
  }
  const wish = part?.type === "text" ? part.text : "";
  if (/story/i.test(wish)) return { text: "And then the night train went on. ".repeat(100), refund: false };
  if (!/refund/i.test(wish))
    return {
      text: `You said “${wish}”. Ask me for a long story, or for a refund, and I look into it. `,
      refund: false,
    };
  const text = "I am looking for your order. It is the night train to Penzance, which came five hours late. ";
  return { text, refund: true };
}
