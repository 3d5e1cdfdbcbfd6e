import { gateway } from "ai";
import { mockModel } from "cadenza/testing";

const { AI_GATEWAY_API_KEY: key, MODEL: name = key ? "openai/gpt-5-mini" : "mock" } = process.env;

/** A model with prepared answers, which needs no key. */
const mock = mockModel(
  ({ text, results }) => {
    const [result] = results;
    if (result?.tool === "findOrder")
      return ["Your night train was five hours late. ", { tool: "refund", input: { euros: 40 } }];
    if (result?.output.type === "execution-denied") return "Then I leave it as it is.";
    if (result !== undefined) return "The 40 € are on their way.";
    if (/refund|money/i.test(text)) return ["I look for your order. ", { tool: "findOrder" }];
    return `You said “${text}”. Ask me for a refund, and I look into it.`;
  },
  { pauseMs: 40 },
);

/** What the agent speaks with. For another provider: `npm install @ai-sdk/openai`, and `openai("gpt-5-mini")` here. */
export const model = name === "mock" ? mock : gateway(name);
export const modelName = name === "mock" ? "a built-in model with prepared answers" : name;
