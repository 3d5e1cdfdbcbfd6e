/** An agent of a refund desk. Its model calls and its payment are steps, so that a crash repeats none that has ended. */
import { setTimeout as sleep } from "node:timers/promises";
import { defineAgent } from "cadenza";
import * as z from "zod";
import { textOf } from "../text.ts";
import type { Ledger } from "./ledger.ts";

const approval = z.object({ approved: z.boolean() });

export function deskAgent(ledger: Ledger, pauseMs: number) {
  return defineAgent("desk", { durable: true, version: "1" }, async (input, { step, ask }) => {
    /** A pretend model, which streams its answer. */
    const say = (text: string): Promise<void> =>
      step("model", async ({ emit, signal, idempotencyKey }) => {
        ledger.add("model call", idempotencyKey);
        for (const word of text.split(/(?<= )/)) {
          await sleep(pauseMs, undefined, { signal });
          await emit(word);
        }
      });
    const wish = textOf(input.slice(-1));
    if (!/refund/i.test(wish)) return say(`You said “${wish}”. Ask me for a refund, and I look into it. `);
    await say("I am looking for your order. It is the night train to Penzance, which came five hours late. ");
    const { approved } = await ask("Refund 40 €?", { name: "approval", kind: "approval", schema: approval });
    if (!approved) return say("Then I leave it as it is. ");
    await step("pay", ({ idempotencyKey }) => ledger.pay(idempotencyKey, 40));
    return say("The 40 € are on their way. ");
  });
}
