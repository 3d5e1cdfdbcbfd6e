import type { PostgresPool, PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { RunWrite } from "cadenza/store";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { append, create, parts, runKey, waiting, write } from "../../../src/stores/contract/samples.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
/** How many posts are taken by one write, and how often that happens while the statements are compared. */
const AT_ONCE = 50;
const TIMES = 60;
const key = runKey(1);

type Statement = readonly [text: string, values: unknown[]];

describe.skipIf(missing !== undefined)(`the inbox on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let schema: string;
  let store: PostgresStore;
  /** The length of the log. */
  let position: number;
  /** The last statement of the store that contains a text. */
  let sent: (text: string) => Statement;

  beforeAll(() => {
    pool = newPool(18, { max: 8 });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    schema = newSchema();
    const statements: Statement[] = [];
    const watched: PostgresPool = {
      query(text, values) {
        statements.push([text, values]);
        return pool.query(text, values);
      },
    };
    sent = (text) => statements.findLast(([sql]) => sql.includes(text)) ?? ["", []];
    store = await openPostgresStore({ pool: watched, schema, hints: false, ...PATIENT });
    await create(store, 1);
    position = 1;
    return () => store.close();
  });

  const post = (count: number) =>
    Promise.all(Array.from({ length: count }, () => store.post(key, { entries: parts("told") })));
  const arrived = async () => (await store.find(key, "with inbox"))?.inbox?.map(({ id }) => id) ?? [];
  const takeAll = async () => {
    const takes = await arrived();
    await append(store, key, position, write(parts(...takes.map(() => "told")), { takes }));
    position += takes.length;
  };

  /** A write of the owner as a statement, which is not made. */
  const statementOf = async (change: RunWrite): Promise<Statement> => {
    const refused = await store.append(key, { epoch: 1, position: position + 1_000_000 }, change);
    expect(refused).toMatchObject({ conflict: "changed" });
    const [text, [json, ...values]] = sent("try_write");
    const [one] = JSON.parse(String(json)) as [object];
    return [text, [JSON.stringify([{ ...one, position }]), ...values]];
  };

  /** How many pages the statements of a run read that is posted to, at the least of several times. They are not made. */
  const pagesRead = async () => {
    await post(AT_ONCE);
    const posting = sent("try_write");
    const takes = await arrived();
    const finding = sent("AS inbox");
    await store.moved([{ key, epoch: 1, position }]);
    const following = sent("AS inbox");
    const taking = await statementOf(write(parts("told"), { takes }));
    const leaving = await statementOf(write(parts("told"), { head: waiting(null, { epoch: 2 }), takes: "all" }));
    const client = await pool.connect();
    const counts: Record<string, number> = {};
    // A connection reads some 2,000 pages of the catalogue at first, and once more when other connections change much of it.
    for (let n = 0; n < 4; n++)
      for (const [what, [text, values]] of Object.entries({ posting, finding, following, taking, leaving })) {
        await client.query("BEGIN");
        const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`, values);
        await client.query("ROLLBACK");
        const [{ Plan: plan }] = rows[0]["QUERY PLAN"];
        const pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
        counts[what] = Math.min(counts[what] ?? pages, pages);
      }
    client.release();
    await takeAll();
    return counts;
  };

  it("costs about the same whatever was taken while a transaction stays open", async () => {
    const old = await pool.connect();
    await old.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await old.query("SELECT 1");
    const work = async (times: number) => {
      for (let n = 0; n < times; n++) {
        await post(AT_ONCE);
        await takeAll();
      }
    };
    await work(5);
    const before = await pagesRead();
    await work(TIMES);
    const after = await pagesRead();
    await old.query("ROLLBACK");
    old.release();
    for (const [what, count] of Object.entries(after)) expect(count, what).toBeLessThan(3 * (before[what] ?? 0));
  });

  it("holds what arrives under ids that a write has named before", async () => {
    await post(1);
    const [id = 0] = await arrived();
    await append(store, key, position, write([], { takes: [id, id + 1, id + 2] }));
    await post(2);
    expect(await arrived()).toEqual([id + 1, id + 2]);
  });

  it("is not left by an owner whose transaction cannot see the last post", async () => {
    const serializable = newPool(18, { options: "-c default_transaction_isolation=serializable" });
    const other = await openPostgresStore({ pool: serializable, schema, hints: false, ...PATIENT });
    const told = { entries: parts("told") };
    await other.post(key, told);
    const leave = write(parts("told"), { head: waiting(null, { epoch: 2 }), takes: await arrived() });
    const [text, values] = await statementOf(leave);
    const client = await serializable.connect();
    await client.query("BEGIN");
    await client.query(`SELECT 1 FROM ${quoteName(schema)}.runs`);
    await other.post(key, told);
    const left = client.query(text, values).then(() => client.query("COMMIT"));
    await expect(left).rejects.toMatchObject({ code: "40001" });
    client.release(true);
    await other.close();
    await serializable.end();
    expect(await store.append(key, { epoch: 1, position }, leave)).toEqual({ conflict: "arrived" });
  });
});
