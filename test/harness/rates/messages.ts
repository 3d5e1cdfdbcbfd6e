import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import pg from "pg";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import { endOf } from "../processes.ts";
import { openDatabase } from "../sqlite-files.ts";
import type { Order, Said } from "./sender.ts";

/* How a run handles messages that several processes send it at a rate, and what that costs the other runs of its owner. */

/** For how long the rate of steps without messages is measured, in milliseconds. */
const ALONE_MS = 10_000;
/** How many runs do steps beside the messages. */
const STEPPERS = 8;
/** For how long the messages may be handled behind the last of them. */
const GIVE_UP_MS = 120_000;

export interface MessageOptions {
  readonly place: Place;
  readonly senders: number;
  /** All senders together. */
  readonly perSecond: number;
  readonly seconds: number;
}

export interface MessageFigures {
  readonly sent: number;
  /** How many of them the agent has taken. */
  readonly handled: number;
  /** How many came twice, or before an earlier one of their sender. */
  readonly outOfOrder: number;
  /** How often the agent was executed again. */
  readonly replays: number;
  /** How long after the last was acknowledged the last was taken. */
  readonly behindMs: number;
  /** How many messages a second were acknowledged. */
  readonly perSecond: number;
  /** Steps a second of other runs while messages come, as a share of those without messages. */
  readonly steps: number;
}

/** Sends messages to one run, whose owner is this process. */
export async function handleMessages({ place, senders, perSecond, seconds }: MessageOptions): Promise<MessageFigures> {
  const store = await openPlace(place);
  const runtime = new AgentRuntime({ store });
  const heard = listen(runtime);
  let steps = 0;
  let isOver = false;
  runtime.register("stepper", { durable: true }, async (_input, { step }) => {
    while (!isOver) {
      await step("work", () => undefined);
      steps += 1;
    }
  });
  const { run_id } = await runtime.createRun({ agent_name: "listener", input: "", mode: "async" });
  for (let n = 0; n < STEPPERS; n++) await runtime.createRun({ agent_name: "stepper", input: "", mode: "async" });
  const children = Array.from({ length: senders }, (_, sender) => startSender(place, [run_id], sender));
  await Promise.all(children.map((child) => once(child, "message")));

  const alone = await rateOf(() => steps, ALONE_MS);
  const begun = performance.now();
  const count = Math.round((perSecond * seconds) / senders);
  const order: Order = { perSecond: perSecond / senders, count, atOnce: 1 };
  for (const child of children) child.send(order);
  const beside = await rateOf(() => steps, 1_000 * seconds);
  isOver = true;
  await Promise.all(children.map(endOf));
  const acknowledgedAt = performance.now();
  const sent = order.count * senders;
  while (heard.taken < sent && performance.now() - acknowledgedAt < GIVE_UP_MS) await pause(5);
  await runtime.cancel(run_id);
  await runtime.close({ drainMs: 1_000 });
  return {
    ...{ sent, handled: heard.taken, outOfOrder: heard.outOfOrder, replays: heard.executions - 1 },
    behindMs: Math.max(0, heard.takenAt - acknowledgedAt),
    perSecond: sent / ((acknowledgedAt - begun) / 1_000),
    steps: beside / alone,
  };
}

/** What the runs of an agent have taken. */
interface Heard {
  taken: number;
  /** When the last one was, by the monotonic clock. */
  takenAt: number;
  /** How many came twice, or before an earlier one of their sender. */
  outOfOrder: number;
  /** How often the agent was called. */
  executions: number;
}

/** Registers an agent that takes messages: so many in each run. */
function listen(runtime: AgentRuntime, most = Number.POSITIVE_INFINITY): Heard {
  const heard: Heard = { taken: 0, takenAt: 0, outOfOrder: 0, executions: 0 };
  const taken = new Map<string, number>();
  runtime.register("listener", { durable: true }, async (_input, { receive, run_id }) => {
    heard.executions += 1;
    const last = new Map<number, number>();
    for (let count = 1; count <= most; count++) {
      const { sender, n } = (await receive("said")) as unknown as Said;
      if (n !== (last.get(sender) ?? 0) + 1) heard.outOfOrder += 1;
      last.set(sender, n);
      // A replayed agent gets the first messages again.
      if (count <= (taken.get(run_id) ?? 0)) continue;
      taken.set(run_id, count);
      heard.taken += 1;
      heard.takenAt = performance.now();
    }
  });
  return heard;
}

/** How many messages each sender to many runs has under way at a time. */
const AT_ONCE = 32;

export interface ManyOptions {
  readonly place: Place;
  readonly senders: number;
  readonly runs: number;
  /** How many messages each sender sends to each run. */
  readonly each: number;
}

export interface ManyFigures {
  readonly sent: number;
  readonly taken: number;
  readonly outOfOrder: number;
  /** How many messages a second were sent and taken, until the last was taken. */
  readonly perSecond: number;
}

/** Sends messages to many runs, whose owner is this process, as fast as they are accepted. */
export async function handleMessagesOfMany({ place, senders, runs, each }: ManyOptions): Promise<ManyFigures> {
  const runtime = new AgentRuntime({ store: await openPlace(place) });
  const heard = listen(runtime, senders * each);
  const created = Array.from({ length: runs }, () =>
    runtime.createRun({ agent_name: "listener", input: "", mode: "async" }),
  );
  const ids = (await Promise.all(created)).map(({ run_id }) => run_id);
  const children = Array.from({ length: senders }, (_, sender) => startSender(place, ids, sender));
  await Promise.all(children.map((child) => once(child, "message")));
  const begun = performance.now();
  const order = { perSecond: 1e9, count: runs * each, atOnce: Math.min(AT_ONCE, runs - 1) } satisfies Order;
  for (const child of children) child.send(order);
  await Promise.all(children.map(endOf));
  const sent = senders * runs * each;
  while (heard.taken < sent && performance.now() - begun < GIVE_UP_MS) await pause(5);
  const perSecond = (heard.taken * 1_000) / (performance.now() - begun);
  await runtime.close({ drainMs: 1_000 });
  return { sent, taken: heard.taken, outOfOrder: heard.outOfOrder, perSecond };
}

/**
 * How many messages a second could be sent and taken if each cost a row of one batched insert and one of a batched update,
 * each batch with as many rows as a sender has under way.
 */
export async function floorOfMessages(place: Place, runs: number, batches: number): Promise<number> {
  const ids = (batch: number) => Array.from({ length: AT_ONCE }, (_, n) => (batch * AT_ONCE + n) % runs);
  const lines = JSON.stringify({ type: "received", name: "said", data: { sender: 1, n: 1 } });
  if ("file" in place) {
    const db = openDatabase(place.file);
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
    db.exec("CREATE TABLE floor_inbox (id INTEGER PRIMARY KEY, run INTEGER, lines TEXT)");
    db.exec("CREATE TABLE floor_runs (id INTEGER PRIMARY KEY, position INTEGER)");
    const insert = db.prepare("INSERT INTO floor_inbox (run, lines) VALUES (?, ?)");
    const update = db.prepare("UPDATE floor_runs SET position = position + 1 WHERE id = ?");
    const fill = db.prepare("INSERT INTO floor_runs VALUES (?, 0)");
    for (let run = 0; run < runs; run++) fill.run(run);
    const transaction = (work: () => void) => {
      db.exec("BEGIN IMMEDIATE");
      work();
      db.exec("COMMIT");
    };
    const since = performance.now();
    for (let batch = 0; batch < batches; batch++) {
      transaction(() => ids(batch).map((run) => insert.run(run, lines)));
      transaction(() => ids(batch).map((run) => update.run(run)));
    }
    const perSecond = (batches * AT_ONCE * 1_000) / (performance.now() - since);
    db.close();
    return perSecond;
  }
  const pool = new pg.Pool({ host: place.host, port: place.port, user: "postgres", database: "postgres", max: 4 });
  await pool.query("CREATE TABLE floor_inbox (id bigint GENERATED ALWAYS AS IDENTITY, run bigint, lines text)");
  await pool.query("CREATE TABLE floor_runs (id bigint PRIMARY KEY, position integer) WITH (fillfactor = 50)");
  await pool.query("INSERT INTO floor_runs SELECT n, 0 FROM generate_series(0, $1::bigint) n", [runs]);
  const since = performance.now();
  let next = 0;
  const work = async () => {
    while (next < batches) {
      const its = ids(next++).sort((a, b) => a - b);
      await pool.query("INSERT INTO floor_inbox (run, lines) SELECT r, $2 FROM unnest($1::bigint[]) r", [its, lines]);
      await pool.query("UPDATE floor_runs SET position = position + 1 WHERE id = ANY ($1::bigint[])", [its]);
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  const perSecond = (batches * AT_ONCE * 1_000) / (performance.now() - since);
  await pool.end();
  return perSecond;
}

function startSender(place: Place, runs: readonly string[], sender: number): ChildProcess {
  const file = fileURLToPath(new URL("./sender.ts", import.meta.url));
  return fork(file, [JSON.stringify(place), JSON.stringify(runs), `${sender}`]);
}

/** By how much a count grows a second. */
async function rateOf(count: () => number, ms: number): Promise<number> {
  const [before, since] = [count(), performance.now()];
  await pause(ms);
  return (count() - before) / ((performance.now() - since) / 1_000);
}
