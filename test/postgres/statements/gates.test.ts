import { setTimeout as pause } from "node:timers/promises";
import type { PostgresPool, PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { Entry, RunHead, RunKey, Store } from "cadenza/store";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  create,
  ended,
  head,
  over,
  part,
  parts,
  runKey,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { ignore, quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
const key = runKey(1);
const echo = { agent_name: "echo", version: null };
/** More ids than an owner takes before it makes another gate. */
const MANY = 70;
/** What races: senders with so many posts each, to runs that are changed by so many owners. */
const SENDERS = 4;
const POSTS = 150;
const OWNERS = 5;
const RUNS = 2;

describe.skipIf(missing !== undefined)(`the gates of an inbox on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let schema: string;
  let store: PostgresStore;
  let closing: (() => Promise<void>)[];

  beforeAll(() => {
    pool = newPool(18, { max: 24 });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    closing = [];
    schema = newSchema();
    store = await open(pool);
    return () => Promise.all(closing.map((close) => close()));
  });

  const open = async (its: PostgresPool): Promise<PostgresStore> => {
    const opened = await openPostgresStore({ pool: its, schema, hints: false, ...PATIENT });
    closing.push(() => opened.close());
    return opened;
  };
  const post = (text: string, its: Store = store) => its.post(key, { entries: parts(text) });
  const inbox = async () => (await store.find(key, "with inbox"))?.inbox ?? [];
  const texts = (entries: readonly Entry[] = []) =>
    entries.map((entry) => (entry.type === "emitted" && "part" in entry ? entry.part.content : entry.type));
  const inInbox = async () => texts((await inbox()).flatMap(({ entries }) => entries));
  const inLog = async () => texts(await store.read(key, 1, 1_000));

  /** A store whose statements go through a function that sends them. Its writes are transactions of their own. */
  const openWith = (send: (client: pg.PoolClient, text: string, values: unknown[]) => Promise<pg.QueryResult>) =>
    open({
      async query(text, values) {
        if (!/try_write|take_v2/.test(text)) return pool.query(text, values);
        const client = await pool.connect();
        try {
          return await send(client, text, values);
        } catch (error) {
          await client.query("ROLLBACK");
          throw error;
        } finally {
          client.release();
        }
      },
    });

  /** Begins a post, which is committed once the returned function is called. */
  const beginPost = async (text: string): Promise<() => Promise<void>> => {
    let commit: () => void = ignore;
    let onSent: () => void = ignore;
    const sent = new Promise<void>((resolve) => {
      onSent = resolve;
    });
    const committing = new Promise<void>((resolve) => {
      commit = resolve;
    });
    const held = await openWith(async (client, sql, values) => {
      await client.query("BEGIN");
      const result = await client.query(sql, values);
      onSent();
      await committing;
      await client.query("COMMIT");
      return result;
    });
    const posted = post(text, held);
    await sent;
    return async () => {
      commit();
      expect(await posted).toBeUndefined();
    };
  };

  it("lets posts and writes of the owner pass each other", async () => {
    await create(store, 1);
    await post("first");
    const commit = await beginPost("slow");
    await post("second", await open(pool));
    const takes = (await inbox()).map(({ id }) => id);
    await append(store, key, 1, write(parts("first", "second"), { takes }));
    expect(await inInbox()).toEqual([]);
    await commit();
    const writing = await pool.connect();
    await writing.query("BEGIN");
    await writing.query(`SELECT 1 FROM ${quoteName(schema)}.runs FOR NO KEY UPDATE`);
    await post("third");
    await writing.query("COMMIT");
    writing.release();
    expect(await inInbox()).toEqual(["slow", "third"]);
  });

  it("answers an owner that knows no inbox as before there was one", async () => {
    const answers: string[] = [];
    const older = await openWith(async (client, sql, values) => {
      const sent = String(values[0]).replaceAll(/"takes":\[\],?/g, "");
      const result = await client.query(sql, [sent, ...values.slice(1)]);
      answers.push(String(result.rows[0].answers));
      return result;
    });
    await create(store, 1);
    await post("first");
    for (const position of [1, 2])
      await older.append(key, { epoch: 1, position }, write(parts(`${position}`))).catch(ignore);
    expect(answers.map((answer) => JSON.parse(answer))).toEqual([
      [expect.objectContaining({ conflict: "changed", position: 2 })],
      [null],
    ]);
  });

  it("lets no owner leave, and no run end, beside a post, and holds up no other run for that", async () => {
    const answers: string[] = [];
    const owning = await openWith(async (client, sql, values) => {
      const result = await client.query(sql, values);
      answers.push(String(result.rows[0].answers));
      return result;
    });
    await create(store, 1);
    await post("first");
    const takes = (await inbox()).map(({ id }) => id);
    const leave = write(parts("first"), { head: waiting(null, { epoch: 2 }), takes });
    for (const how of ["leave", "end"]) {
      const commit = await beginPost(how);
      const change = how === "leave" ? leave : write([ended()], { head: over(), takes });
      let answer: unknown = "none";
      const changed = owning.append(key, { epoch: 1, position: 1 }, change).then((its) => {
        answer = its;
      });
      await create(owning, how === "leave" ? 2 : 3);
      expect(answers.splice(0).join(" ")).toMatch(/"busy"/);
      expect(answer).toBe("none");
      await commit();
      await changed;
      expect(answer).toEqual(how === "leave" ? { conflict: "arrived" } : undefined);
    }
    expect(await inInbox()).toEqual(["leave", "end"]);
  });

  it("finds what is left or committed after many later posts were taken, and lets no owner leave it", async () => {
    await create(store, 1);
    await post("first");
    let position = 1;
    const takeMany = async (but: string[]) => {
      await Promise.all(Array.from({ length: MANY }, (_, n) => post(`${n}`)));
      const arrived = (await inbox()).filter(
        ({ entries }) => !texts(entries).some((text) => but.includes(String(text))),
      );
      const entries = arrived.flatMap((one) => one.entries);
      await append(store, key, position, write(entries, { takes: arrived.map(({ id }) => id) }));
      position += entries.length;
    };
    const commit = await beginPost("slow");
    for (let round = 0; round < 4; round++) await takeMany([]);
    const leave = write([], { head: waiting(null, { epoch: 2 }) });
    const left = store.append(key, { epoch: 1, position }, leave);
    // It shares the statement of the one that leaves, which waits from then on.
    await create(store, 2);
    await commit();
    expect(await left).toEqual({ conflict: "arrived" });
    for (let round = 0; round < 4; round++) await takeMany(["slow"]);
    expect(await inInbox()).toEqual(["slow"]);
    await takeMany([]);
    await takeMany([]);
    await takeMany([]);
    const { rows } = await pool.query(
      `SELECT taken_to, gate, (SELECT last_value FROM ${quoteName(schema)}.inbox_id_seq) AS last
       FROM ${quoteName(schema)}.runs WHERE run_id = $1`,
      [key.run_id],
    );
    expect([rows[0].gate, rows[0].taken_to].map((id) => Number(rows[0].last) - Number(id))).toEqual([0, MANY]);
  });

  it("leaves a post to the next owner that was under way when the former one was replaced", async () => {
    await create(store, 1);
    await post("first");
    const commit = await beginPost("slow");
    const [run] = await store.take({ owner: "owner-2", agents: [echo], limit: 1 });
    expect(run?.head).toMatchObject({ owner: "owner-2", epoch: 2 });
    await commit();
    expect([await inLog(), await inInbox()]).toEqual([["first"], ["slow"]]);
    await append(store, key, 2, write([], { head: waiting(null, { epoch: 3 }), takes: "all" }), 2);
    expect([await inLog(), await inInbox()]).toEqual([["first", "slow"], []]);
  });

  it("puts the run of a dead owner in line only when no post is under way", async () => {
    const slot = { key: "slot", max: 1 };
    await create(store, 1, { slot });
    await create(store, 2, { slot, head: waiting(1_000_000_000_000_000, { holds_slot: true }) });
    await post("first");
    const commit = await beginPost("slow");
    const look = () => store.take({ owner: "owner-2", agents: [echo], limit: 1 });
    expect(await look()).toEqual([]);
    expect((await store.find(key))?.head.owner).toBe(head().owner);
    await commit();
    expect(await look()).toEqual([]);
    expect((await store.find(key))?.head.owner).toBeNull();
    expect([await inLog(), await inInbox()]).toEqual([["first", "slow"], []]);
  });

  it.each(["READ COMMITTED", "SERIALIZABLE"])("loses and repeats nothing in any race: %s", async (level) => {
    const its = quoteName(schema);
    // Each write that takes something makes another gate if it can.
    await pool.query(`ALTER SEQUENCE ${its}.inbox_id_seq INCREMENT BY ${MANY}`);
    // What happens between the look at a row and the lock of its gate is seen.
    await pool.query(
      `CREATE OR REPLACE FUNCTION ${its}.gate_lock_v1(run bigint, gate bigint) RETURNS bigint LANGUAGE plpgsql AS $$
       BEGIN
         PERFORM pg_sleep(0.008 * greatest(random() - 0.5, 0));
         RETURN hashtextextended('gate ' || run || ' ' || gate, 1);
       END $$`,
    );
    const numbers = new Map<string, RunKey>();
    let runs = 0;
    const createNext = async (place: number) => {
      runs += 1;
      const next = runKey(runs);
      await create(store, runs);
      places[place] = next;
      numbers.set(next.run_id, next);
    };
    const places: RunKey[] = [];
    for (let place = 0; place < RUNS; place++) await createNext(place);

    let seed = 1;
    const random = (below: number) => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    const openRacing = (change = (values: unknown[]) => values) =>
      openWith(async (client, sql, values) => {
        await client.query(`BEGIN ISOLATION LEVEL ${level}`);
        const result = await client.query(sql, change(values));
        if (random(2) === 0) await pause(random(6));
        await client.query("COMMIT");
        return result;
      });
    const acknowledged = new Map<string, string[]>();
    let sending = SENDERS;
    const send = async (sender: number) => {
      const racing = await openRacing();
      for (let n = 0; n < POSTS; n++) {
        const to = places[random(RUNS)] ?? key;
        const text = `${sender}:${n}`;
        const isCancel = random(50) === 0;
        const entries = [part(text)];
        const change = isCancel ? { entries, status: "cancelling" as const } : { entries };
        // What goes in one statement with other writes takes another way.
        const other = random(3) === 0 ? racing.release(`${sender}`).catch(ignore) : undefined;
        const answer = await racing.post(to, { ...change, due: "work" }).catch(() => "failed");
        await other;
        if (answer === undefined) acknowledged.set(to.run_id, [...(acknowledged.get(to.run_id) ?? []), text]);
      }
      sending -= 1;
    };
    const own = async (name: string, isOld: boolean) => {
      const racing = await openRacing((values) =>
        isOld
          ? [String(values[0]).replaceAll(/"(takes|tells)":(\[[\d,]*\]|"all"|true),?/g, ""), ...values.slice(1)]
          : values,
      );
      while (sending > 0) {
        const place = random(RUNS);
        const its = places[place] ?? key;
        const found = await racing.find(its, "with inbox");
        if (found === undefined || found.head.finished_at !== null) continue;
        const { epoch, owner } = found.head;
        const expected = { epoch, position: found.position };
        const arrived = isOld ? [] : (found.inbox ?? []);
        const takes = arrived.map(({ id }) => id);
        const entries = arrived.flatMap((one) => one.entries);
        const free: RunHead = { ...found.head, epoch: epoch + 1, owner: null, due_at: 0 };
        const how = random(12);
        if (how === 0) await racing.take({ owner: name, agents: [echo], limit: 2 }).catch(ignore);
        else if (owner === null || how === 1)
          await racing.claim(its, expected, head({ epoch: epoch + 1, owner: name })).catch(ignore);
        else if (how === 2) await racing.append(its, expected, { entries: [], head: free, takes: "all" }).catch(ignore);
        else if (how < 5) await racing.append(its, expected, { entries, head: free, takes }).catch(ignore);
        else if (how === 5) {
          const end = { entries: [...entries, ended()], head: over(0, { epoch: epoch + 1 }), takes };
          if ((await racing.append(its, expected, end).catch(() => "failed")) === undefined) await createNext(place);
        } else {
          const some = arrived.slice(0, 1 + random(40));
          const change = { entries: some.flatMap((one) => one.entries), takes: some.map(({ id }) => id) };
          await racing.append(its, expected, { head: found.head, ...change }).catch(ignore);
        }
      }
    };
    const complaints: unknown[] = [];
    const watch = async () => {
      while (sending > 0) {
        const { rows } = await pool.query(
          `SELECT r.run_id, r.owner, r.finished_at, r.arrived, r.taken_to, r.gate, i.id FROM ${its}.runs r
           LEFT JOIN ${its}.inbox i ON i.run = r.id
           WHERE r.owner IS NULL AND r.finished_at IS NULL AND (r.arrived > 0 OR i.id IS NOT NULL)
             OR r.finished_at IS NULL AND (i.id <= r.taken_to OR i.id IS NOT NULL AND r.arrived = 0)
             OR r.finished_at IS NOT NULL AND i.is_cancel`,
        );
        complaints.push(...rows);
        await pause(5);
      }
    };
    await Promise.all([
      watch(),
      ...Array.from({ length: SENDERS }, (_, sender) => send(sender)),
      ...Array.from({ length: OWNERS }, (_, n) => own(`owner-${n}`, n === 0)),
    ]);
    expect(complaints).toEqual([]);
    let ends = 0;
    for (const [run_id, one] of numbers) {
      const found = await store.find(one, "with inbox");
      if (found?.head.finished_at !== null) ends += 1;
      const log = (await store.read(one, 1, 100_000)) ?? [];
      const all = texts([...log, ...(found?.inbox ?? []).flatMap(({ entries }) => entries)]).map(String);
      const posted = all.filter((text) => text.includes(":"));
      expect(posted.length, "posts that are there twice").toBe(new Set(posted).size);
      const lost = (acknowledged.get(run_id) ?? []).filter((text) => !posted.includes(text));
      expect(lost, "posts that were lost").toEqual([]);
      for (let sender = 0; sender < SENDERS; sender++) {
        const order = posted.filter((text) => text.startsWith(`${sender}:`)).map((text) => Number(text.split(":")[1]));
        expect(order, "the order of a sender").toEqual(order.toSorted((a, b) => a - b));
      }
    }
    const count = [...acknowledged.values()].flat().length;
    expect(ends).toBeGreaterThan(0);
    expect(count).toBeGreaterThan(0.5 * SENDERS * POSTS);
  });
});
