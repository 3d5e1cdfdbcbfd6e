/** An agent of a refund desk. Its model calls and its payment are steps, so that a crash repeats none that has ended. */
import { stepCountIs, streamText, tool } from "ai";
import { defineAgent } from "cadenza";
import { aiSdk, idempotencyKeyOf } from "cadenza/ai-sdk";
import * as z from "zod";
import type { Model } from "../model.ts";
import type { Ledger } from "./ledger.ts";
import { preparedModel } from "./model.ts";

const system = `You work at the refund desk of a railway. The order of the user is a night train to Penzance, which came five
hours late. For this 40 € may be refunded. If the user wants a refund, say in a sentence what you have found, and use the
tool. A person is asked before it pays. Say in a sentence what has become of it.`;

/** `pauseMs` is the pause of the built-in model between two words. */
export function deskAgent(ledger: Ledger, pauseMs: number, model: Model = preparedModel(pauseMs)) {
  const refund = tool({
    description: "Pays money back.",
    inputSchema: z.object({ euros: z.int().min(1).max(40) }),
    execute: ({ euros }, options) => {
      ledger.pay(idempotencyKeyOf(options), euros);
      return { refunded: euros };
    },
  });
  return defineAgent("desk", { durable: true, version: "2" }, async (input, context) => {
    const sdk = aiSdk(context);
    const question = ({ euros }: { readonly euros: number }) => `Refund ${euros} €?`;
    const result = streamText({
      model: sdk.model(model),
      system,
      tools: sdk.tools({ refund }, { approve: { refund: { question } } }),
      messages: [...sdk.messages(await context.session.history()), ...sdk.messages(input)],
      stopWhen: stepCountIs(5),
      onError: () => undefined, // `consume` throws the error
    });
    await sdk.consume(result); // The text is emitted while it arrives.
  });
}
