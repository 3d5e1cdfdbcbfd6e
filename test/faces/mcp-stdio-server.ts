import { AgentRuntime, defineAgent } from "cadenza";
import { serveStdio } from "cadenza/mcp";
import * as z from "zod";

/* Agents on standard input and output, as a client starts them. */

const runtime = new AgentRuntime();
runtime.register(
  defineAgent("refund", { input: z.object({ amount: z.number() }) }).run(async function* ({ amount }, { ask }) {
    yield "Looking. ";
    const { approved } = await ask(`Refund ${amount} €?`, { schema: z.object({ approved: z.boolean() }) });
    yield approved ? "Refunded." : "Refused.";
  }),
);
runtime.register("wait", async (_input, { signal }) => {
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
});
await serveStdio(runtime, process);
await runtime.close();
