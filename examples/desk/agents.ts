/** A travel desk: the concierge runs two agents side by side, and one of them asks for an approval. */
import { setTimeout as sleep } from "node:timers/promises";
import type { AgentContext } from "cadenza";
import { defineAgent } from "cadenza";
import * as z from "zod";

export const MAX_EUROS = 100;

const input = z.object({ text: z.string().min(1) });
const refunded = z.object({ euros: z.int() });

/** What a person fills in. */
const approval = z.object({
  approved: z.boolean().meta({ title: "Pay it back" }),
  reason: z.enum(["late", "damaged", "other"]).meta({ title: "Because it was" }),
  euros: z.int().min(1).max(MAX_EUROS).meta({ title: "Euros" }),
  note: z.string().max(200).meta({ title: "Note" }).optional(),
});

/** The agents, whose pretend models pause between two words for so many milliseconds. */
export function deskAgents(pauseMs: number) {
  /** A model call, which streams its answer. */
  const say = (text: string, { step }: Pick<AgentContext, "step">): Promise<void> =>
    step("model", async ({ emit, signal }) => {
      for (const word of text.split(/(?<= )/)) {
        await sleep(pauseMs, undefined, { signal });
        await emit(word);
      }
    });

  const search = defineAgent("search", { durable: true, version: "1", input }).run(async (_input, context) =>
    say("I look for your order. It is the night train to Penzance, which came five hours late. ", context),
  );

  const refund = defineAgent("refund", {
    durable: true,
    version: "1",
    input,
    output: refunded,
    questions: { approval },
  }).run(async (_input, context) => {
    await say("I see what you may get back. A person has to approve it. ", context);
    const { approved, euros } = await context.ask("What do we pay back?", { name: "approval", kind: "approval" });
    if (!approved) return { euros: 0 };
    await say(`I pay ${euros} €. `, context);
    return { euros };
  });

  const concierge = defineAgent("concierge", { durable: true, version: "1", input, output: refunded }).run(
    async function* ({ text }, { call }) {
      yield "Two colleagues look into it. ";
      const [{ euros }] = await Promise.all([call(refund, { text }), call(search, { text })]);
      yield euros === 0 ? "I am sorry, there is nothing to pay back." : `You get ${euros} €.`;
      return { euros };
    },
  );

  return [concierge, search, refund] as const;
}

export type Agents = ReturnType<typeof deskAgents>;
