import pg from "pg";
import type { Fault } from "./agents.ts";
import { open, RUNS } from "./agents.ts";

/* A worker, or a process that creates runs and nothing else. */
const HOUR_MS = 3_600_000;

const [role, fault] = process.argv.slice(2) as ["worker" | "web", Fault];
const realNow = Date.now;
if (fault === "clock") Date.now = () => realNow() + HOUR_MS;
const runtime = await open(new pg.Pool({ max: 5 }), role === "worker", fault);
process.once("SIGTERM", async () => {
  await runtime.close({ drainMs: 500 });
  process.exit(0);
});
if (role === "web")
  for (let run = 0; run < RUNS; run++) {
    const { run_id } = await runtime.createRun({ agent_name: "ticker", input: "40", mode: "async" });
    process.send?.(run_id);
  }
// Keeps the process open.
setInterval(() => undefined, HOUR_MS);
process.send?.("ready");
