/*
 * A worker that ends on SIGTERM as the documentation says: it drains, and then hands its runs on. It reports each body of
 * a step. Its one parameter holds its settings.
 */

import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import type { DrainReport, DrainSettings } from "./messages.ts";
import { STEP_MS, STEPS } from "./messages.ts";

const { host, port, schema, name, drainMs } = JSON.parse(process.argv[2] ?? "") as DrainSettings;
const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 5 });
const store = await openPostgresStore({ pool, schema });
let tokens = 0;
const runtime = new AgentRuntime({
  store,
  ids: { uuid: () => crypto.randomUUID(), token: () => `${name}/${tokens++}` },
});
runtime.register("ticker", { durable: true }, async function* (_input, { step, run_id }) {
  for (let part = 0; part < STEPS; part++)
    yield await step("tick", async ({ key, signal }) => {
      say({ is: "began", run_id, key });
      await new Promise((resolve) => setTimeout(resolve, STEP_MS));
      // A body that is stopped has had no effect.
      if (!signal.aborted) say({ is: "done", run_id, key });
      return `${part}`;
    });
});
process.once("SIGTERM", async () => {
  await runtime.close({ drainMs });
  await pool.end();
  process.disconnect();
});
say({ is: "ready" });

function say(report: DrainReport): void {
  process.send?.(report);
}
