import { openPostgresStore } from "cadenza/postgres";
import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import type { Retention, Store } from "cadenza/store";
import pg from "pg";
import { createEnded, keep, runKey } from "../../src/stores/contract/samples.ts";
import { command } from "../harness/commands/commands.ts";
import type { GrownDatabase } from "../harness/growth/grown-stores.ts";
import { growOnPostgres, growOnSqlite } from "../harness/growth/grown-stores.ts";
import type { LongestTurn } from "../harness/longest-turn.ts";
import { longestTurnOf } from "../harness/longest-turn.ts";
import { openDatabase } from "../harness/sqlite-files.ts";

const ROUNDS = 10;
/** After so many rounds as much is deleted as is added. */
const STEADY = 6;
const MAX_GROWTH = 1.1;
/** The runs end long ago, so that the places of the walks are written. */
const FIRST_END = Date.now() - 30 * 86_400_000;

/** What a prune of one round has taken. */
interface Round extends LongestTurn {
  readonly deleted: number;
  /** The longest transaction, in milliseconds: of SQLite without and with the wait for the disk that ends it. */
  readonly transactionMs: number;
  readonly withDiskMs: number;
}

export const trial = command({
  about:
    "Stores many ended runs, and deletes some by three rules for labels, agents and tenants; then ten times a tenth as many are added, and runs are deleted again. It is wrong if a turn takes more processor time than allowed, a transaction takes too long, or the database still grows in the last rounds.",
  options: {
    runs: { about: "How many ended runs are stored at first.", default: 100_000 },
    turn: { about: "The processor time of a turn that is allowed, in milliseconds.", default: 20 },
    transaction: { about: "How long a transaction may take, in milliseconds.", default: 50 },
    store: { about: "Where they are stored.", oneOf: ["postgres", "sqlite", "both"], default: "both" },
  },
  async run({ runs, turn, transaction, store }, report) {
    for (const name of ["sqlite", "postgres"] as const) {
      if (store !== "both" && store !== name) continue;
      const grown = await (name === "postgres" ? growOnPostgres() : growOnSqlite());
      const patterns = await makePatterns(await grown.open());
      await grown.query(`UPDATE ${grown.prefix}runs SET finished_at = ${FIRST_END}`);
      const opened = await openTimed(grown);
      const sizes: number[] = [];
      const perRound = Math.ceil(runs / ROUNDS / patterns);
      for (let round = 0; round <= ROUNDS; round++) {
        await grown.multiply(round === 0 ? perRound * ROUNDS * patterns : perRound * patterns);
        const now = FIRST_END + (ROUNDS + round) * perRound;
        const done = await prune(opened, retentionAt(now, perRound));
        sizes.push(await sizeOf(grown));
        const said = `${name}, round ${round}: ${done.deleted} deleted in ${Math.round(done.ms)} ms, longest turn ${done.turnMs.toFixed(1)} ms of processor time, longest transaction ${done.transactionMs.toFixed(1)} ms (${done.withDiskMs.toFixed(1)} with the disk), then ${((sizes.at(-1) ?? 0) / 1e6).toFixed(1)} MB`;
        report.check(done.turnMs <= turn && done.transactionMs <= transaction, said);
      }
      const [steady = 0, last = 0] = [sizes[STEADY], sizes[ROUNDS]];
      report.check(
        last <= MAX_GROWTH * steady,
        `${name}: the database grew by ${(last / steady).toFixed(2)} in the last rounds`,
      );
      await opened.store.close();
      await grown.close();
    }
    return `${runs} runs, and ${ROUNDS} times a tenth`;
  },
});

/** Ten runs, of which seven are meant by rules. Answers how many. */
async function makePatterns(store: Store): Promise<number> {
  const patterns = [
    { created: { labels: { kind: "kept" } } },
    ...Array.from({ length: 3 }, () => ({ created: { agent_name: "heartbeat", labels: { kind: "other" } } })),
    ...Array.from({ length: 3 }, () => ({ created: { agent_name: "order" } })),
    ...Array.from({ length: 3 }, () => ({ tenant: "" })),
  ];
  for (const [n, changes] of patterns.entries()) await createEnded(store, n + 1, n + 1, changes);
  if ((await store.find(runKey(1))) === undefined) throw new Error("There are no patterns.");
  await store.close();
  return patterns.length;
}

/** What is kept: runs of a label for five rounds, of an agent up to those of one, of a tenant for two, and others for three. */
function retentionAt(now: number, perRound: number): Retention {
  const rule = { endedBefore: Number.NEGATIVE_INFINITY, maxRuns: Number.POSITIVE_INFINITY };
  return {
    ...keep,
    endedBefore: now - 3 * perRound,
    rules: [
      { ...rule, labels: { kind: "kept" }, endedBefore: now - 5 * perRound },
      { ...rule, agent_name: "heartbeat", maxRuns: 3 * perRound },
      { ...rule, tenant: "acme", endedBefore: now - 2 * perRound },
    ],
  };
}

/** Tells how long a transaction took, without and with its end. */
type Tell = (ms: number, withEndMs: number) => void;

/** A store that tells how long each of its transactions takes. */
interface Timed {
  readonly store: Store;
  onTransaction: Tell;
}

async function openTimed(grown: GrownDatabase): Promise<Timed> {
  const timed: { onTransaction: Tell } = { onTransaction: () => undefined };
  const tell: Tell = (...times) => timed.onTransaction(...times);
  const { place } = grown;
  const store =
    "file" in place
      ? new SqliteStore(timedDatabase(place.file, tell), { closeDatabase: true })
      : await timedPool(place, tell);
  return Object.assign(timed, { store });
}

function timedDatabase(file: string, tell: Tell): SqliteDatabase {
  const db = openDatabase(file);
  let began = 0;
  return {
    prepare: (sql) => db.prepare(sql),
    close: () => db.close(),
    exec(sql) {
      if (sql.startsWith("BEGIN")) began = performance.now();
      const workMs = performance.now() - began;
      const result = db.exec(sql);
      if (sql === "COMMIT") tell(workMs, performance.now() - began);
      return result;
    },
  };
}

function timedPool(
  { host, port, schema }: { readonly host: string; readonly port: number; readonly schema: string },
  tell: Tell,
): Promise<Store> {
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });
  const watched = {
    async query(text: string, values: unknown[]) {
      const began = performance.now();
      const result = await pool.query(text, values);
      const ms = performance.now() - began;
      tell(ms, ms);
      return result;
    },
  };
  return openPostgresStore({ pool: watched, schema, hints: false }).then((store) => {
    const close = store.close.bind(store);
    return Object.assign(store, { close: () => close().then(() => pool.end()) });
  });
}

async function prune(timed: Timed, retention: Retention): Promise<Round> {
  let transactionMs = 0;
  let withDiskMs = 0;
  timed.onTransaction = (ms, withEndMs) => {
    transactionMs = Math.max(transactionMs, ms);
    withDiskMs = Math.max(withDiskMs, withEndMs);
  };
  let deleted = 0;
  const longest = await longestTurnOf(async () => {
    deleted = await timed.store.prune(retention);
  });
  return { ...longest, deleted, transactionMs, withDiskMs };
}

/** The size of the database, where what is free is used again. */
async function sizeOf({ place, query }: GrownDatabase): Promise<number> {
  if ("file" in place) {
    const [row] = await query("SELECT page_count * page_size AS size FROM pragma_page_count, pragma_page_size");
    return Number(row?.["size"]);
  }
  // As autovacuum does, which the server of the trial does not.
  for (const table of ["runs", "entries", "labels"]) await query(`VACUUM ${place.schema}.${table}`);
  const [row] = await query("SELECT pg_database_size(current_database()) AS size");
  return Number(row?.["size"]);
}
