/** An agent that asks, and then books a train. Each side effect is a step. */
import { setTimeout as sleep } from "node:timers/promises";
import { defineAgent, textOf } from "cadenza";
import * as z from "zod";

const decisionSchema = z.object({ approved: z.boolean() });

export const booking = defineAgent("booking", { durable: true, version: "1" }, async function* (input, context) {
  const train = await context.step("search", async () => {
    console.log("  (searching for a train)");
    await sleep(300);
    return { name: "Night Riviera", price: 89 };
  });
  yield `${textOf(input)}: the ${train.name} has a place for ${train.price} €.\n`;

  const { approved } = await context.ask("Book it?", { schema: decisionSchema });
  if (!approved) return "Not booked.\n";

  // The key is the same on every attempt: the other side can tell a second attempt from a second booking.
  const ticket = await context.step("book", async ({ idempotencyKey, attempt }) => {
    console.log(`  (booking, attempt ${attempt})`);
    await sleep(1_500);
    return idempotencyKey.slice(0, 8);
  });
  return `Booked: ticket ${ticket}.\n`;
});
