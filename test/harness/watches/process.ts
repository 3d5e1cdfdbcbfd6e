/*
 * A worker that executes runs which ask and runs which mail, or a watcher that mails each question and notes each event.
 * What is to outlive the process stands in the database: mails, notes and positions. Its one parameter holds its settings.
 */

import { AgentRuntime, CadenzaError } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { quoteName } from "../internals.ts";
import type { Plan, WatchReport, WatchSettings } from "./messages.ts";
import { TEAM } from "./messages.ts";

const { host, port, schema, is } = JSON.parse(process.argv[2] ?? "") as WatchSettings;
const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 6 });
const store = await openPostgresStore({ pool, schema, durability: { leaseMs: 8_000 } });
const runtime = new AgentRuntime({ store, work: is === "worker" });
const tables = quoteName(schema);

if (is === "worker") {
  runtime.register("asker", { durable: true }, async (input, { ask, step }) => {
    const { questions, end } = JSON.parse(input[0]?.parts[0]?.content ?? "") as Plan;
    for (let n = 1; n <= questions; n++) {
      await step("think", () => n);
      await ask(`Question ${n}?`);
    }
    if (end === "failed") throw new Error("It was planned.");
  });
  runtime.register("mail", { durable: true }, async (input, { step }) => {
    const { about, to } = JSON.parse(input[0]?.parts[0]?.content ?? "") as { about: string; to: string };
    // The mail service sends one mail for each key.
    await step("send", async ({ idempotencyKey }) => {
      await pool.query(
        `INSERT INTO ${tables}.mails (key, about, recipient) VALUES ($1, $2, $3)
         ON CONFLICT (key) DO UPDATE SET attempts = mails.attempts + 1`,
        [idempotencyKey, about, to],
      );
    });
  });
} else {
  runtime.declare({ name: "asker", durable: true }).declare({ name: "mail", durable: true });
  await Promise.all([mail(), note()]);
}
process.send?.({ is: "ready" } satisfies WatchReport);

/** How many questions are mailed before the position is kept: those since then are told again. */
const BETWEEN = 8;

/** Mails each question to each address: what is told twice is one run. */
async function mail(): Promise<void> {
  let count = 0;
  const watch = runtime.watch({ types: ["run.awaiting"], from: await positionOf("mail") });
  inLoop(async () => {
    for await (const { run_id, event, position } of watch) {
      const about = `${run_id} ${event.await_id}`;
      for (const to of (await isOpen(run_id, event.await_id)) ? TEAM : [])
        await runtime.createRun(
          { agent_name: "mail", input: JSON.stringify({ about, to }), mode: "async" },
          { idempotencyKey: `${about} ${to}` },
        );
      if (++count % BETWEEN === 0)
        await pool.query(`UPDATE ${tables}.positions SET position = $1 WHERE name = 'mail'`, [position]);
    }
  });
}

async function isOpen(run_id: string, await_id: string): Promise<boolean> {
  try {
    const { await_requests } = await runtime.details(run_id);
    return await_requests.some((question) => question.await_id === await_id);
  } catch (error) {
    if (CadenzaError.is(error) && error.code === "run_not_found") return false;
    throw error;
  }
}

/** Notes each event with its position, in one transaction. */
async function note(): Promise<void> {
  const watch = runtime.watch({ from: await positionOf("note") });
  inLoop(async () => {
    for await (const { run_id, agent_name, event, position } of watch)
      await pool.query(
        `WITH kept AS (UPDATE ${tables}.positions SET position = $1 WHERE name = 'note')
         INSERT INTO ${tables}.notes (position, run_id, agent_name, type) VALUES ($1, $2, $3, $4)`,
        [position, run_id, agent_name, "await_id" in event ? `${event.type} ${event.await_id}` : event.type],
      );
  });
}

async function positionOf(name: string): Promise<string | undefined> {
  const { rows } = await pool.query(`SELECT position FROM ${tables}.positions WHERE name = $1`, [name]);
  return rows[0]?.position ?? undefined;
}

/** A loop that fails ends the process, as no process of a trial may. */
function inLoop(loop: () => Promise<void>): void {
  void loop().then(() => process.exit(3));
}
