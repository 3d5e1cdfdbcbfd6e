/** An agent that runs other agents in parallel. `npx tsx examples/orchestrator.ts` */
import { setTimeout as sleep } from "node:timers/promises";
import type { Run } from "cadenza";
import { AgentError, AgentRuntime, defineAgent, textOf } from "cadenza";

export const critic = defineAgent("critic", async (input, { signal, usage }) => {
  await sleep(100, undefined, { signal }); // a model call
  usage.add({ input_tokens: 100, output_tokens: 5 });
  return `"${textOf(input)}" lacks drama.`;
});

export const fan = defineAgent("fan", async (input, { signal, usage }) => {
  await sleep(100, undefined, { signal });
  usage.add({ input_tokens: 100, output_tokens: 7 });
  return `"${textOf(input)}" moved me to tears.`;
});

export const jury = defineAgent("jury", async function* (input, context) {
  yield "The jury withdraws.\n";
  const runs = await Promise.all(["critic", "fan"].map((name) => context.run(name, [...input])));
  for (const run of runs) yield `${run.agent_name}: ${opinionOf(run)}\n`;
});

/** A failed sub-run does not throw: the parent decides what the failure means. */
function opinionOf({ status, output, error }: Run): string {
  if (status !== "completed") throw new AgentError("server_error", `A juror is missing: ${error?.message ?? status}`);
  return textOf(output);
}

if (process.argv[1] === import.meta.filename) {
  const runtime = new AgentRuntime().register(critic).register(fan).register(jury);
  const start = performance.now();
  const run = await runtime.createRun({ agent_name: "jury", input: "La Mer" });
  console.log(textOf(run.output));
  console.log(`two jurors of 100 ms each took ${Math.round(performance.now() - start)} ms`);
  console.log(`tokens of all three: ${(await runtime.getAgent("jury")).status?.avg_run_tokens}`);
}
