import { setTimeout as after } from "node:timers/promises";
import { AgentRuntime, defineAgent } from "cadenza";
import { openSqliteStore } from "cadenza/sqlite";
import type { Said } from "./killed-run.ts";

/* One of the processes of the picture: begins the run, or goes on with it, and says what its steps do. */

const [, , file = "", given] = process.argv;
const say = (what: Said["what"], name: string): void => void process.send?.({ what, name, at: Date.now() });

const trip = defineAgent("trip", { durable: true, version: "1" }, async (_input, { step, ask }) => {
  const work = (name: string, ms: number): Promise<string> =>
    step(name, async () => {
      say("begins", name);
      await after(ms);
      say("ends", name);
      return name;
    });
  await work("find a train", 700);
  // It is killed in the middle of it.
  await work("hold a seat", given === undefined ? 600_000 : 900);
  say("asks", "Book it?");
  await ask("Book it?");
  say("answered", "yes");
  await work("pay", 600);
});

const store = openSqliteStore(file, { durability: { leaseMs: 600, heartbeatMs: 150, scanMs: 100 } });
const runtime = new AgentRuntime({ agents: [trip], store });
process.on("message", (run_id: string) => void runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" }));
const run_id =
  given ?? (await runtime.createRun({ agent_name: "trip", input: "Berlin to Paris", mode: "async" })).run_id;
say("runs", run_id);
for await (const { type } of runtime.events(run_id, { until: "end" }))
  if (type === "run.completed") say("ends", "the run");
await runtime.close();
process.exit(0);
