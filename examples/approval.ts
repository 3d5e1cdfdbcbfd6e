/** Human in the loop: a run that waits for a typed answer. `npx tsx examples/approval.ts` */
import { AgentRuntime, CadenzaError, defineAgent, textOf } from "cadenza";
import * as z from "zod";

const decisionSchema = z.object({ approved: z.boolean(), seats: z.number().int().min(1).default(1) });

export const booking = defineAgent("booking", async function* (input, context) {
  yield `Found a train for: ${textOf(input)}.\n`;
  const { approved, seats } = await context.ask("Book it?", { schema: decisionSchema, timeoutMs: 86_400_000 });
  yield approved ? `Booked ${seats} seat(s).\n` : "Not booked.\n";
});

if (process.argv[1] === import.meta.filename) {
  const runtime = new AgentRuntime().register(booking);
  const { run_id, status, await_request } = await runtime.createRun({ agent_name: "booking", input: "Rome, Friday" });
  console.log(`${status}: ${await_request?.message.parts[0]?.content} (until ${await_request?.expires_at})`);
  console.log("what an answer looks like:", await_request?.message.parts[1]?.content);

  try {
    await runtime.resume({ run_id, await_resume: { approved: "perhaps" } });
  } catch (error) {
    if (!CadenzaError.is(error)) throw error;
    console.log(`${error.code}: ${error.message}`);
    console.log(`the run is still ${(await runtime.getRun(run_id)).status}`);
  }

  const run = await runtime.resume({ run_id, await_resume: { approved: true, seats: 2 } });
  console.log(`${run.status}: ${textOf(run)}`);
}
