/** An agent of a refund desk: it works in steps, has a model write its texts, and asks a person before it pays. */
import { setTimeout as sleep } from "node:timers/promises";
import { streamText } from "ai";
import { defineAgent } from "cadenza";
import { aiSdk } from "cadenza/ai-sdk";
import * as z from "zod";
import type { Model } from "../model.ts";
import { pretendModel } from "../model.ts";

/** How long each of the two systems around the agent takes. */
const WORK_MS = 500;
/** The pause of the built-in model between two words. */
const PAUSE_MS = 40;

export function refundDesk(model: Model = builtIn) {
  return defineAgent("refund-desk", { durable: true, version: "1" }, async (_input, context) => {
    const { step, ask } = context;
    const write = async (prompt: string): Promise<void> => {
      const sdk = aiSdk(context);
      await sdk.consume(streamText({ model: sdk.model(model), prompt, onError: () => undefined }));
    };

    const order = await step("find the order", async () => {
      await sleep(WORK_MS);
      return { train: "the night train to Penzance", paid: 89, hoursLate: 5 };
    });
    await write(
      `A customer wants a refund. The order: ${JSON.stringify(order)}. Advise 40 € to a colleague, in one short sentence.`,
    );
    const { approved } = await ask("Refund 40 €?", { schema: z.object({ approved: z.boolean() }) });
    if (approved) await step("refund 40 €", () => sleep(WORK_MS));
    await write(
      `Tell the customer in one short sentence that ${approved ? "40 € are on their way" : "nothing is paid"}.`,
    );
  });
}

/** A model with prepared answers. */
const builtIn = pretendModel(
  (prompt) =>
    JSON.stringify(prompt).includes("Advise")
      ? "The night train came five hours late, so I would pay 40 of the 89 € back."
      : "Sorry for the long night. 40 € are on their way to you.",
  PAUSE_MS,
);
