import type { PostgresPool } from "cadenza/postgres";
import type { OpenStores } from "cadenza/testing";
import { storeContract } from "cadenza/testing";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { missingServer, newPool, openTwice } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
/** How often a check is tried: some faults show only if two calls meet. */
const TRIES = 12;

/** A change of one function of the schema, and the check that has to find it. */
type Fault = readonly [what: string, name: string, from: string, to: string, check: string];

const faults: readonly Fault[] = [
  [
    "take gives a run to two processes",
    "take_v2",
    "suspects_left > 0)\n            FOR NO KEY UPDATE SKIP LOCKED",
    "suspects_left > 0)",
    "take: concurrent callers get different runs",
  ],
  [
    "take gives more runs than their slot allows",
    "join_v1",
    "its.held < run.slot_max",
    "true",
    "take: concurrent takes get no more permits than there are",
  ],
  [
    "take gives runs of another version",
    "take_v2",
    "AND r.agent_name = w.agent_name AND r.version = w.version AND coalesce",
    "AND r.agent_name = w.agent_name AND coalesce",
    "take: only runs of these agents, and of these versions of them",
  ],
  [
    "take gives runs of agents that were not asked for",
    "take_v2",
    "AND EXISTS (SELECT 1 FROM wanted w WHERE w.agent_name = r.agent_name AND w.version = r.version)",
    "",
    "take: only runs of these agents, and of these versions of them",
  ],
  [
    "creates get more permits than there are",
    "hold_v1",
    ">= run.slot_max",
    "> run.slot_max",
    "slots: concurrent creates get no more permits than there are",
  ],
  [
    "a permit that is given back is not free",
    "grant_v1",
    "was.held - freed",
    "was.held",
    "slots: a permit is free again once its run releases it, or ends",
  ],
  [
    "counters are replaced instead of added up",
    "write_v2",
    "completed = c.completed + excluded.completed",
    "completed = excluded.completed",
    "counters: added up, key by key, for each agent and over all tenants",
  ],
  [
    "makeSession replaces a session",
    "session_v1",
    "change ? 'isNew' AND NOT is_made",
    "false",
    "sessions: makeSession makes the session, unless it exists, and answers whether it did",
  ],
  [
    "a lease is measured by the clock of the caller",
    "write_v2",
    "coalesce(given_time, floor(",
    "coalesce(NULL, floor(",
    "claim: a run whose owner's lease has expired or never existed is given",
  ],
  [
    "an append compares no positions",
    "change_v1",
    " OR run.position <> (w ->> 'position')::integer",
    "",
    "append: on another position it is refused as `changed`, and nothing changes",
  ],
  [
    "an append compares no owners",
    "change_v1",
    "OR w ? 'owner' AND run.owner IS DISTINCT FROM w ->> 'owner'",
    "",
    "append: under another owner than the expected one it is refused as `changed`",
  ],
];

describe.skipIf(missing !== undefined)(`the contract finds a fault in the SQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(18);
  });
  afterAll(() => pool.end());

  it.each(faults)("%s", async (_what, name, from, to, check) => {
    const open = openTwice(pool, {}, async (schema) => {
      const { rows } = await pool.query(
        "SELECT pg_get_functiondef(oid) AS text FROM pg_proc WHERE pronamespace = $1::regnamespace AND proname = $2",
        [schema, name],
      );
      const text = String(rows[0]?.text);
      expect(text).toContain(from);
      await pool.query(text.replace(from, to));
    });
    await expectFound(open, check);
  });

  it("one of several rows of counters is read", async () => {
    const hooked = new HookedPool(pool);
    const forgetful: PostgresPool = {
      query: (text, values) => hooked.query(text.replaceAll("sum(c.", "max(c."), values),
    };
    await expectFound(openTwice(forgetful), "counters: runs that end concurrently are all counted");
  });

  async function expectFound(open: OpenStores, name: string): Promise<void> {
    const check = storeContract.find((one) => one.name === name);
    let found: unknown;
    for (let tries = 0; found === undefined && tries < TRIES; tries++)
      await check?.run(open).catch((error: unknown) => {
        found = error;
      });
    expect(String(found)).toMatch(/expected/);
  }
});
