import { AgentRuntime, textOf } from "cadenza";
import { expect, it } from "vitest";
import { deskAgent } from "../../examples/chat/desk.ts";
import type { Ledger } from "../../examples/chat/ledger.ts";
import { realModel } from "../../examples/chat/model.ts";

it("without a key the chat has its built-in model, and says what another one needs", async () => {
  const { model, line } = await realModel({ OPENAI_API_KEY: "" });
  expect(model).toBeUndefined();
  expect(line).toContain("AI_GATEWAY_API_KEY, ANTHROPIC_API_KEY or OPENAI_API_KEY");
});

it("the key of the AI gateway gives one of its models", async () => {
  const { model, line } = await realModel({ AI_GATEWAY_API_KEY: "k", MODEL: "maker/model" });
  expect(model).toMatchObject({ provider: "gateway", modelId: "maker/model" });
  expect(line).toBe("The model maker/model of the AI gateway.");
});

it.each([
  ["OPENAI_API_KEY", "@ai-sdk/openai"],
  ["ANTHROPIC_API_KEY", "@ai-sdk/anthropic"],
])("%s needs a package, and the line says how to install it", async (key, packageName) => {
  const { model, line } = await realModel({ [key]: "k" });
  expect(model).toBeUndefined();
  expect(line).toContain(`${key} is set, and its package is missing: npm install --no-save ${packageName}@3.`);
});

it("a refund is asked for, and paid once or left alone", async () => {
  const paid: number[] = [];
  const ledger = { pay: (_key: string, euros: number) => void paid.push(euros) } as unknown as Ledger;
  const runtime = new AgentRuntime({ agents: [deskAgent(ledger, 0)] });
  const begin = () => runtime.createRun({ agent_name: "desk", input: "A refund, please" });
  const [first, second] = [await begin(), await begin()];
  expect(first.await_request?.message.parts[0]?.content).toBe("Refund 40 €?");
  expect(paid).toEqual([]);
  const refused = await runtime.resume({ run_id: first.run_id, await_resume: { approved: false } });
  expect(textOf(refused)).toMatch(/ late\.\s+Then I leave it as it is\. $/);
  const refunded = await runtime.resume({ run_id: second.run_id, await_resume: { approved: true } });
  expect(textOf(refunded)).toMatch(/ late\.\s+The 40 € are on their way\. $/);
  expect(paid).toEqual([40]);
});
