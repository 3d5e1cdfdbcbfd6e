/** A run every two seconds, by a schedule. `npx tsx examples/schedule.ts` */
import { setTimeout as wait } from "node:timers/promises";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import { schedules } from "cadenza/schedules";
import { durable } from "cadenza/store";

export const report = defineAgent("report", { durable: true }, async (_input, { metadata, step }) => {
  const { time } = metadata as { readonly time: string };
  return step("figures", () => `The figures of ${time}.`);
});

if (process.argv[1] === import.meta.filename) {
  const runtime = new AgentRuntime({ store: durable(new MemoryStore()), agents: [report] });
  let completed = 0;
  runtime.on("run.completed", ({ run }) => {
    console.log(run.output[0]?.parts[0]?.content);
    completed += 1;
  });
  const plans = schedules(runtime);
  await plans.put({ id: "figures", agent_name: "report", input: "", everyMs: 2_000 });
  console.log("next:", await plans.next("figures", 3));
  while (completed < 2) await wait(100);
  await plans.remove("figures");
  await runtime.close();
}
