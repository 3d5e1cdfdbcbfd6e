/** What the runtime counts. `npx tsx examples/statistics.ts` */
import { setTimeout as sleep } from "node:timers/promises";
import { AgentError, AgentRuntime, defineAgent } from "cadenza";

export const dice = defineAgent("dice", async function* (input, { ask, usage }) {
  const bet = Number(input[0]?.parts[0]?.content);
  await sleep(20);
  usage.add({ input_tokens: 40, output_tokens: 2 });
  if (bet > 6) throw new AgentError("invalid_input", "A die has six sides.", { bet });
  await ask("Roll?");
  yield bet > 3 ? "Won." : "Lost.";
});

if (process.argv[1] === import.meta.filename) {
  const runtime = new AgentRuntime().register(dice);
  runtime.on("run.failed", ({ run }) => console.log(`failed: ${run.error?.message}`));
  console.log("before:", (await runtime.getAgent("dice")).status);

  for (const input of ["1", "5", "6", "7"]) {
    const { run_id, status } = await runtime.createRun({ agent_name: "dice", input });
    if (status !== "awaiting") continue;
    await sleep(100); // waiting time, which is not active time
    await runtime.resume({ run_id, await_resume: { roll: true } });
  }
  const { run_id } = await runtime.createRun({ agent_name: "dice", input: "2" });
  const cancelled = new Promise((resolve) => runtime.once("run.cancelled", resolve));
  await runtime.cancel(run_id); // does not count in success_rate
  await cancelled; // the agent has cleaned up

  console.log("after: ", (await runtime.getAgent("dice")).status);
  console.log("in full:", await runtime.stats());
  await runtime.close();
}
