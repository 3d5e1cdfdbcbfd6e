import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { expect, inject, it, onTestFinished } from "vitest";
import { ROOT } from "../../docs/pages.ts";
import { Browser, Command } from "../../harness/inspected/processes.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);

it.skipIf(missing !== undefined)(
  "cadenza inspect shows a schema that a live process writes, and writes nothing",
  async () => {
    const schema = newSchema();
    const pool = newPool(18);
    const runtime = new AgentRuntime({ store: await openPostgresStore({ pool, schema }) });
    runtime.register("waits", { durable: true }, (_input, { ask }) => ask("Go on?"));
    onTestFinished(async () => {
      await runtime.close({ drainMs: 0 });
      await pool.end();
    });
    const first = await runtime.createRun({ agent_name: "waits", input: "" });
    const { host, port } = inject("postgres")[18] as { host: string; port: number };
    const options = encodeURIComponent("-c default_transaction_read_only=on");
    const url = `postgres://postgres:secret@/postgres?host=${host}&port=${port}&options=${options}`;
    const command = new Command(["inspect", url, "--schema", schema], {
      cwd: ROOT,
      program: ["--import", "tsx", "src/cli/main.ts"],
    });
    onTestFinished(() => void command.stop("SIGKILL"));
    const browser = await Browser.open(await command.address());
    const events = browser.feed("api/feed/runs");

    expect(command.output).toMatch(/^\/postgres, read-only: http:\/\/127.0.0.1/);
    expect(await events.next()).toMatchObject({ value: { type: "page", items: [{ run_id: first.run_id }] } });
    const second = await runtime.createRun({ agent_name: "waits", input: "" });
    expect(await events.next()).toMatchObject({ value: { type: "change", added: [{ run_id: second.run_id }] } });
    const { rows } = await pool.query(
      `SELECT count(DISTINCT owner)::integer AS owners FROM ${quoteName(schema)}.leases`,
    );
    expect(rows).toEqual([{ owners: 1 }]);
    expect(await command.stop()).toBe(0);
  },
);
