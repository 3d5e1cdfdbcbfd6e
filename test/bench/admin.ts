import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { openPostgresStore } from "cadenza/postgres";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import Database from "libsql";
import pg from "pg";
import { command } from "../harness/commands/commands.ts";
import type { Report } from "../harness/commands/report.ts";
import { startServer } from "../harness/postgres-server.ts";
import { fill, LIVE, STORED } from "./many-runs.ts";

const CALLS = 200;

export const bench = command({
  about:
    "Measures how long the calls of cadenza/admin take with 100,000 stored runs, 1,000 of them live, on SQLite and PostgreSQL.",
  options: {},
  async run(_, report) {
    const folder = mkdtempSync(join(tmpdir(), "cadenza-bench-admin-"));
    try {
      const database = new Database(join(folder, "runs.db"));
      await measure("SQLite", new SqliteStore(database, { synchronous: "NORMAL", closeDatabase: true }), report);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    const server = await startServer(18);
    if ("missing" in server.address) report.say(`PostgreSQL: not measured. ${server.address.missing}`);
    else {
      const { host, port } = server.address;
      const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 5 });
      const store = await openPostgresStore({ pool, hints: false });
      await measure("PostgreSQL", store, report, () => pool.query("VACUUM ANALYZE"));
      await pool.end();
    }
    await server.stop();
    return `${CALLS} times each call`;
  },
});

async function measure(
  name: string,
  store: Store,
  report: Report,
  settle: () => Promise<unknown> = () => Promise.resolve(),
): Promise<void> {
  await fill(store);
  await settle();
  const runtime = new AgentRuntime({ store });
  const admin = createAdmin(runtime);
  const [some] = (await admin.runs({ status: "awaiting" })).items;
  if (some === undefined) throw new Error("There is no run that waits.");
  const shown = (await admin.runs({ limit: 500 })).items;
  const deep = (await admin.runs({ status: "failed", limit: 500 })).next ?? undefined;
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    runs: () => admin.runs(),
    "runs, failed, a later page": () => admin.runs({ status: "failed", cursor: deep }),
    "runs, of a tenant": () => admin.runs({ tenant: "tenant 3" }),
    "runs, of a rare agent": () => admin.runs({ agent_name: "rare" }),
    "runs, by id": () => admin.runs({ id: some.run_id }),
    "runs, by label": () => admin.runs({ tenant: "tenant 1", labels: { order: "1001" } }),
    questions: () => admin.questions(),
    failures: () => admin.failures(),
    steps: () => admin.steps(some),
    timeline: () => admin.timeline(some),
    log: () => admin.log(some),
    tree: () => admin.tree(some),
    versions: () => admin.versions(),
    blocked: () => admin.blocked(),
    unregistered: () => admin.unregistered(),
    backlog: () => admin.backlog(),
    lines: () => admin.lines(),
    workers: () => admin.workers(),
    "changes, of 500 runs": () => admin.changes(shown),
  };
  report.say(`${name}: ${STORED} runs, ${LIVE} of them live; milliseconds over ${CALLS} calls`);
  for (const [what, call] of Object.entries(calls)) {
    const times: number[] = [];
    for (let count = 0; count < CALLS; count++) {
      const begin = performance.now();
      await call();
      times.push(performance.now() - begin);
    }
    times.sort((one, other) => one - other);
    const at = (share: number): string => (times[Math.floor(share * (CALLS - 1))] ?? 0).toFixed(2).padStart(8);
    report.say(`${what.padEnd(28)} p50 ${at(0.5)}   p99 ${at(0.99)}`);
  }
  await runtime.close();
}
