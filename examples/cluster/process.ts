/** A process of the cluster: `web` accepts runs over HTTP and executes none, `worker` executes them. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import { openPostgresStore } from "cadenza/postgres";
import { Pool } from "pg";
import { agents } from "./agents.ts";

const isWeb = process.argv[2] === "web";

// The address of the server is in the environment, as `pg` expects it: PGHOST, PGPORT, …
const pool = new Pool({ max: 5 });
const store = await openPostgresStore({
  pool,
  schema: "cadenza_demo",
  // Other processes take the runs of a dead one over after two seconds, instead of ten.
  durability: { leaseMs: 2_000, heartbeatMs: 500 },
});
const runtime = new AgentRuntime({ store, work: isWeb ? false : { max: 20 }, agents });

const server = createServer(createAcpNodeListener(runtime, { extensions: true })).listen(0, "127.0.0.1", () => {
  process.send?.({ port: (server.address() as AddressInfo).port });
});

// No new connections and runs. What is at work may end, and the rest goes on in another process.
process.once("SIGTERM", async () => {
  server.close();
  await runtime.close({ drainMs: 5_000 });
  server.closeAllConnections();
  await pool.end();
  process.disconnect();
});
