import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import type { StoredRun } from "cadenza/store";
import pg from "pg";
import type { Report } from "../commands/report.ts";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import { quoteName } from "../internals.ts";
import { openDatabase } from "../sqlite-files.ts";
import type { WorkerTask, WorkerTold } from "./long-log-worker.ts";
import { registerAgents } from "./long-log-worker.ts";

export interface LongLogOptions {
  /** How many megabytes the longest log has. */
  readonly megabytes: number;
  /** How many megabytes of heap a worker has. */
  readonly heap: number;
}

const WORKER = fileURLToPath(new URL("./long-log-worker.ts", import.meta.url));
const WORKERS = 2;
const MEGABYTE = 1_000_000;
/** Above what a process reads of a log, with the limits by default. */
const TOO_LONG = 300;
/** How long workers have to end all. */
const END_MS = 180_000;
const LOOK_MS = 50;
/** How many entries are inserted in one transaction of a file, in megabytes. */
const AT_ONCE = 64;

/** A log that no process may read as a whole: how many megabytes it has, and each of its entries. */
interface LongLog {
  readonly name: string;
  readonly megabytes: number;
  readonly entry: number;
  readonly letter: string;
}

/**
 * Runs whose logs are too long are given to workers with a small heap, all at once and beside other runs. Each worker has to
 * live on, each of these runs to fail, and each other one to complete. Answers how many logs were tried.
 */
export async function longLogs(place: Place, options: LongLogOptions, report: Report): Promise<number> {
  const logs: readonly LongLog[] = [
    { name: "entries of 1 MB", megabytes: options.megabytes, entry: 1, letter: "x" },
    ...[1, 2, 3].map((n) => ({ name: `entries of 1 MB, ${n}`, megabytes: TOO_LONG, entry: 1, letter: "x" })),
    { name: "entries of 9 MB", megabytes: TOO_LONG, entry: 9, letter: "x" },
    { name: "entries of 1 MB of Cyrillic text", megabytes: 2 * TOO_LONG, entry: 1, letter: "ж" },
  ];
  const store = await openPlace(place);
  const maker = new AgentRuntime({ store });
  registerAgents(maker);
  const made: { readonly log: LongLog; readonly run: StoredRun }[] = [];
  for (const log of logs) {
    const text = textOf(log);
    const { run_id } = await maker.createRun({ agent_name: "long", input: text, mode: "async" });
    const key = { tenant: "", run_id };
    let run: StoredRun | undefined;
    while (run?.head.owner !== null) {
      await pause(LOOK_MS);
      run = await store.find(key);
    }
    made.push({ log, run });
  }
  await maker.close();
  const since = performance.now();
  for (const { log, run } of made) await lengthen(place, run, Math.ceil(log.megabytes / log.entry));
  report.say(`${kindOf(place)}: the logs were made in ${seconds(since)} s`);

  const children = Array.from({ length: WORKERS }, () =>
    fork(WORKER, { execArgv: [...process.execArgv, `--max-old-space-size=${options.heap}`] }),
  );
  const told: WorkerTold[] = [];
  const ends = children.map(async (child) => {
    child.on("message", (message: WorkerTold) => told.push(message));
    const [code, signal] = await once(child, "exit");
    return code ?? signal;
  });
  const died = Promise.race(ends);
  const task: WorkerTask = { place, do: "work" };
  for (const child of children) child.send(task);

  const client = new AgentRuntime({ store: await openPlace(place), work: false });
  registerAgents(client);
  let small = 0;
  let longestMs = 0;
  let isOver = false;
  const create = async (): Promise<void> => {
    while (!isOver) {
      const begun = performance.now();
      const { status, error } = await client.createRun({ agent_name: "small", input: "" });
      if (status !== "completed") report.wrong(`another run is ${status}: ${error?.message}`);
      small += 1;
      longestMs = Math.max(longestMs, performance.now() - begun);
    }
  };
  const began = performance.now();
  const creating = [create(), create(), create(), create()];
  for (const { log, run } of made) {
    const { run_id } = run.key;
    const failed = async () => {
      for (;;) {
        const { status, error } = await client
          .getRun(run_id)
          .catch(() => ({ status: "too long", error: null }) as const);
        if (status === "failed") return error;
        await pause(LOOK_MS);
      }
    };
    const error = await Promise.race([
      failed(),
      died.then((how) => ({ message: `a worker has died: ${how}` })),
      pause(END_MS, { message: "it does not end" }, { ref: false }),
    ]);
    report.check(
      error?.message?.includes("limits.maxLogBytes") === true,
      `${kindOf(place)}, ${log.name}, ${log.megabytes} MB: after ${seconds(began)} s: ${error?.message}`,
    );
  }
  const before = small;
  await Promise.race([died, pause(2_000)]);
  isOver = true;
  await Promise.race([died, Promise.all(creating)]);
  report.check(
    before > 0 && small > before,
    `${kindOf(place)}: ${before} other runs completed meanwhile and ${small - before} after that, none took more than ${longestMs.toFixed(0)} ms`,
  );
  for (const child of children) if (child.connected) child.send({ place, do: "close" } satisfies WorkerTask);
  const codes = await Promise.all(ends);
  report.check(
    codes.every((code) => code === 0),
    `${kindOf(place)}: the workers ended with ${codes.join(" and ")}; ${told.map(({ maxRssMb, blockedMs }) => `${maxRssMb} MB at most, the event loop blocked for ${blockedMs} ms at most`).join("; ")}`,
  );
  await client.close();
  return logs.length;
}

function seconds(since: number): string {
  return ((performance.now() - since) / 1_000).toFixed(1);
}

function kindOf(place: Place): string {
  return "file" in place ? "SQLite" : "PostgreSQL";
}

function textOf({ entry, letter }: LongLog): string {
  // Numbers, so that the server does not compress it to nothing.
  let text = letter === "x" ? "" : letter.repeat(500);
  while (text.length < 500) text += Math.floor(Math.random() * 1e9);
  return text.repeat((entry * MEGABYTE) / Buffer.byteLength(text));
}

/** Adds so many copies of the last entry that the agent has emitted to the log, as if it had emitted them. */
async function lengthen(place: Place, run: StoredRun, count: number): Promise<void> {
  const { run_id } = run.key;
  if ("file" in place) {
    const db = openDatabase(place.file);
    const { id, position, lines } = db
      .prepare(
        `SELECT r.id, r.position, e.lines FROM cadenza_runs r JOIN cadenza_entries e ON e.id >> 26 = r.id
         WHERE r.run_id = ? AND e.lines LIKE '{"type":"emitted"%' ORDER BY e.id DESC LIMIT 1`,
      )
      .get(run_id) as { readonly id: number; readonly position: number; readonly lines: string };
    const [line] = lines.split("\n");
    const insert = db.prepare("INSERT INTO cadenza_entries (id, lines) VALUES ((? << 26) | ?, ?)");
    for (let n = 0; n < count; ) {
      db.exec("BEGIN");
      for (const end = Math.min(count, n + Math.ceil((AT_ONCE * MEGABYTE) / lines.length)); n < end; n++)
        insert.run(id, position + n, `${line}\n`);
      db.exec("COMMIT");
    }
    db.prepare("UPDATE cadenza_runs SET position = position + ? WHERE id = ?").run(count, id);
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    db.close();
  } else {
    const pool = new pg.Pool({ ...place, user: "postgres", database: "postgres", max: 1 });
    const schema = quoteName(place.schema);
    await pool.query(
      `INSERT INTO ${schema}.entries (run, position, lines)
       SELECT r.id, r.position + n, l.line FROM ${schema}.runs r, generate_series(0, ${count - 1}) n, LATERAL (
         SELECT split_part(e.lines, E'\\n', 1) || E'\\n' AS line FROM ${schema}.entries e
         WHERE e.run = r.id AND e.lines LIKE '{"type":"emitted"%' ORDER BY e.position DESC LIMIT 1) l
       WHERE r.run_id = $1`,
      [run_id],
    );
    await pool.query(`UPDATE ${schema}.runs SET position = position + $2 WHERE run_id = $1`, [run_id, count]);
    await pool.end();
  }
  // A process has died with it.
  const store = await openPlace(place);
  const head = { ...run.head, owner: "dead", epoch: run.head.epoch + 1, due_at: null };
  const expected = { epoch: run.head.epoch, position: run.position + count };
  const conflict = await store.append(run.key, expected, { entries: [], head });
  await store.close();
  if (conflict !== undefined) throw new Error(`The run could not be given away: ${JSON.stringify(conflict)}`);
}
