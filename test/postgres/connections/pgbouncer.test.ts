import type { Logger } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import type { OpenStores } from "cadenza/testing";
import { storeContract } from "cadenza/testing";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { missingPgBouncer, startPgBouncer } from "../../harness/pgbouncer.ts";
import { missingServer, newSchema, openTwice } from "../../harness/postgres-stores.ts";
import { textsOf } from "../../harness/runtimes.ts";
import { oneOf } from "../../harness/share.ts";

const missing = missingServer(18) ?? missingPgBouncer;
const AGENTS = 20;

describe.skipIf(missing !== undefined)(
  `PostgresStore behind PgBouncer in transaction mode${missing ? `: ${missing}` : ""}`,
  () => {
    let pooler: Awaited<ReturnType<typeof startPgBouncer>>;
    let pool: pg.Pool;
    let open: OpenStores;
    beforeAll(async () => {
      pooler = await startPgBouncer(inject("postgres")[18]);
      pool = new pg.Pool({ ...pooler.options, max: 5 });
      open = openTwice(pool);
    });
    afterAll(async () => {
      await pool.end();
      pooler.stop();
    });

    for (const { name, run } of oneOf(3, storeContract)) it(name, () => run(open));

    it("notices that hints do not arrive, and two processes execute and answer runs by polling", async () => {
      const schema = newSchema();
      const said: string[] = [];
      const note = (message: string): void => void said.push(message);
      const logger: Logger = { debug: note, info: note, warn: note, error: note };
      const [front, back] = await Promise.all([
        openPostgresStore({ pool, schema, logger }),
        openPostgresStore({ pool, schema }),
      ]);
      expect([front.watch, back.watch]).toEqual([undefined, undefined]);
      expect(said).toEqual(["Hints of other processes do not arrive here. The store is polled instead."]);

      const counts = new Map<string, number>();
      const asker = defineAgent("asker", { durable: true }, async (_input, { run_id, step, ask }) => {
        await step("count", () => void counts.set(run_id, (counts.get(run_id) ?? 0) + 1));
        return JSON.stringify(await ask("Well?"));
      });
      const web = new AgentRuntime({ store: front, work: false, agents: [asker] });
      const worker = new AgentRuntime({ store: back, agents: [asker] });
      const asked = await Promise.all(
        Array.from({ length: AGENTS }, () => web.createRun({ agent_name: "asker", input: "" })),
      );
      const ended = await Promise.all(
        asked.map(({ run_id }, index) => web.resume({ run_id, await_resume: { answer: index } })),
      );
      expect(ended.map(textsOf)).toEqual(asked.map((_, index) => [`{"answer":${index}}`]));
      expect([...counts.values()]).toEqual(asked.map(() => 1));
      for (const runtime of [web, worker]) await runtime.close();
    });
  },
);
