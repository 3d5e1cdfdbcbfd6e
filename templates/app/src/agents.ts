import type { LanguageModel } from "ai";
import { stepCountIs, streamText, tool } from "ai";
import { defineAgent } from "cadenza";
import { aiSdk, idempotencyKeyOf } from "cadenza/ai-sdk";
import * as z from "zod";
import { model } from "./model.ts";

const system = `You work at the refund desk of a railway. If a passenger wants money back, look for the order, and refund what may
be refunded. A person is asked before a refund is paid. Say in one sentence what you have found or done.`;

const findOrder = tool({
  description: "Finds the last order of the passenger.",
  inputSchema: z.object({}),
  execute: () => ({ order: "O-17", train: "Night train to Penzance", late_hours: 5, euros: 40 }),
});

const refund = tool({
  description: "Pays money back.",
  inputSchema: z.object({ euros: z.number().int().min(1).max(40) }),
  // Give the key to your payment service: it is the same when a call is made again after a crash.
  execute: ({ euros }, options) => ({ refunded: euros, key: idempotencyKeyOf(options) }),
});

/** The agent, with a model of your choice. Each call of the model and of a tool is a step: a finished one is not made again. */
export function deskAgent(spoken: Exclude<LanguageModel, string>) {
  return defineAgent("desk", { durable: true }, async (input, context) => {
    const sdk = aiSdk(context);
    const question = ({ euros }: { euros: number }) => `Refund ${euros} €?`;
    const answer = streamText({
      model: sdk.model(spoken),
      system,
      tools: sdk.tools({ findOrder, refund }, { approve: { refund: { question } } }),
      messages: [...sdk.messages(await context.session.history()), ...sdk.messages(input)],
      stopWhen: stepCountIs(5),
      onError: () => {}, // `consume` throws the error
    });
    await sdk.consume(answer); // The text is emitted while it arrives.
  });
}

export const agents = [deskAgent(model)] as const;
