/** The model of the chat: a real one if there is a key for it, else one that gives prepared answers. */
import { gateway } from "ai";
import { mockModel } from "cadenza/testing";
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

/** A model with prepared answers, which pauses between two words for so many milliseconds. */
export function preparedModel(pauseMs: number): Model {
  return mockModel(
    ({ text, results: [result] }) => {
      if (result !== undefined)
        return result.output.type === "execution-denied" ? "Then I leave it as it is. " : "The 40 € are on their way. ";
      if (/story/i.test(text)) return "And then the night train went on. ".repeat(100);
      if (!/refund/i.test(text))
        return `You said “${text}”. Ask me for a long story, or for a refund, and I look into it. `;
      return [
        "I am looking for your order. It is the night train to Penzance, which came five hours late. ",
        { tool: "refund", input: { euros: 40 } },
      ];
    },
    { pauseMs },
  );
}
