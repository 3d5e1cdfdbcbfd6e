import { defineAgent } from "cadenza";
import * as z from "zod";

/** Resolves when the run that was begun with some words may go on. */
export type Gate = (words: string) => Promise<void>;

/** An agent that says some words, asks where its user wants that, and waits in the middle of what a step says. */
export function waitingDesk(gate: Gate) {
  return defineAgent("desk", { durable: true }, async function* (input, { ask, step }) {
    const words = input.at(-1)?.parts[0]?.content ?? "";
    yield "One ";
    if (words.startsWith("ask")) {
      const { approved } = await ask("Refund 40 €?", { schema: z.object({ approved: z.boolean() }) });
      yield approved ? "yes " : "no ";
    }
    await step("model", async ({ emit, signal }) => {
      await emit("two ");
      await Promise.race([gate(words), aborted(signal)]);
      await emit("three.");
    });
  });
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}
