import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import type { Report } from "../commands/report.ts";
import { quoteName } from "../internals.ts";
import type { Listening } from "../outages/wire.ts";
import { Wire } from "../outages/wire.ts";
import { holdFor, holds, triggers, Victims } from "./holds.ts";
import { Load } from "./load.ts";

export interface BesideOptions {
  /** How long something does not move, in milliseconds. */
  readonly heldMs: number;
  /** How long rates are measured before and after it. */
  readonly freeMs: number;
  /** How many runs are under way at a time, in each process. */
  readonly atOnce: number;
  readonly stepMs: number;
  /** A part of the names of what is tried. */
  readonly only: string;
}

/** What both processes did in the same time. */
interface Rates {
  /** Runs a second of the first process and of the other one. */
  readonly perSecond: number;
  readonly other: number;
  /** How long a run of the first one took at most. */
  readonly longestMs: number;
}

/** The share of its rate that the process keeps at least. */
const LEAST = 0.9;
/** How often leases and ends are looked for. */
const LOOK_MS = 100;
/** How long runs have to end after all. */
const END_MS = 60_000;
const SCHEMA = "beside";
const CONNECTING_MS = 4_000;

/**
 * Compares what a process does before, while and after something on a PostgreSQL server does not move, for each of `holds`
 * and for connections without answers. A second process has the same load, and nothing that is held up: the rate of the
 * first one counts in proportion to its rate, so that other work on the machine matters little. It would take over what the
 * first one loses. Both are in this process, and each has a network of its own. Answers how many cases were tried.
 */
export async function beside(server: Listening, options: BesideOptions, report: Report): Promise<number> {
  const { heldMs, freeMs, atOnce, stepMs, only } = options;
  const own = connect(server, server.host, 4);
  const schema = quoteName(SCHEMA);
  const begun = new Map<string, number>();
  const first = await openProcess(server, begun, stepMs);
  const second = await openProcess(server, begun, stepMs);
  const processes = [first, second];
  await own.query(triggers(schema));
  const victims = new Victims(first.runtime, first.load);
  for (const { runtime, load } of processes) {
    victims.register(runtime);
    load.start(atOnce);
  }
  const lease = watchLeases(own, schema);

  const measure = async (work: () => Promise<unknown>): Promise<Rates> => {
    for (const { load } of processes) load.count();
    const since = performance.now();
    await work();
    const seconds = (performance.now() - since) / 1_000;
    const { ended, longestMs } = first.load.count();
    return { perSecond: ended / seconds, other: second.load.count().ended / seconds, longestMs };
  };
  const isTried = (name: string): boolean => name.includes(only);
  await pause(freeMs / 2);
  let before = await measure(() => pause(freeMs));
  let cases = 0;
  const compare = async (name: string, work: () => Promise<unknown>, end: () => Promise<unknown>): Promise<void> => {
    cases += 1;
    lease.leastMs = Number.POSITIVE_INFINITY;
    const during = await measure(work);
    const since = performance.now();
    const isEnded = await Promise.race([end().then(() => true), pause(END_MS, false, { ref: false })]);
    const endedMs = performance.now() - since;
    const after = await measure(() => pause(freeMs));
    const free = (before.perSecond / before.other + after.perSecond / after.other) / 2;
    const share = during.perSecond / during.other / free;
    const rates = [before, during, after].map(({ perSecond, other }) => `${perSecond.toFixed(0)}/${other.toFixed(0)}`);
    report.check(
      share >= LEAST,
      `${name}: ${(100 * share).toFixed(1)} % of the rate is left (runs/s before, meanwhile and after, and of the other process: ${rates.join(", ")}), a run took ${during.longestMs.toFixed(0)} ms at most`,
    );
    report.check(lease.leastMs > 0, `${name}: leases had ${lease.leastMs.toFixed(0)} ms left at least`);
    report.check(isEnded, `${name}: what was held up ended after ${endedMs.toFixed(0)} ms`);
    before = after;
  };

  for (const { name, prepare, sql, victim, isAvoided = false } of holds) {
    if (!isTried(name)) continue;
    const locker = await own.connect();
    victims.isHeld = true;
    await prepare?.(victims);
    let isEnded = false;
    let end: Promise<unknown> = Promise.resolve();
    await compare(
      name,
      () =>
        holdFor(locker, sql(schema), heldMs, () => {
          end = Promise.all([victim?.(victims), victims.ended()]).then(() => {
            isEnded = true;
          });
        }).then(() => {
          if (isEnded !== isAvoided) report.wrong(`${name}: the run has ${isEnded ? "" : "not "}ended meanwhile`);
          victims.isHeld = false;
        }),
      () => end,
    );
    locker.release(true);
  }
  const stalled = "the connections that were there";
  if (isTried(stalled))
    await compare(
      stalled,
      async () => {
        first.wire.stall();
        await pause(heldMs);
        first.wire.resume();
      },
      () => first.load.next(atOnce),
    );
  const dead = "all connections";
  if (isTried(dead)) {
    cases += 1;
    for (const { wire } of processes) wire.fail();
    const { perSecond } = await measure(() => pause(heldMs));
    for (const { wire } of processes) wire.resume();
    const since = performance.now();
    const goesOn = Promise.all(processes.map(({ load }) => load.next(atOnce))).then(() => true);
    const isOver = await Promise.race([goesOn, pause(END_MS, false, { ref: false })]);
    const onMs = performance.now() - since;
    const after = await measure(() => pause(freeMs));
    const rates = [before.perSecond, perSecond, after.perSecond].map((rate) => rate.toFixed(0)).join(", ");
    report.check(
      isOver,
      `${dead}: ${rates} runs/s before, meanwhile and after, ${2 * atOnce} runs ended within ${onMs.toFixed(0)} ms`,
    );
  }
  await lease.stop();
  await Promise.all(processes.map(({ load }) => load.stop()));
  await judgeAll(own, schema, report);
  const twice = [...begun.values()].filter((times) => times > 1).length;
  report.check(twice === 0, `${twice} of ${begun.size} steps began twice`);
  report.say(`${first.load.refused} calls of the process were refused, ${first.failedRenewals()} renewals have failed`);
  for (const { load, close } of processes) {
    for (const what of load.wrong) report.wrong(what);
    await close();
  }
  await own.end();
  return cases;
}

function connect({ port }: Listening, host: string, max: number): pg.Pool {
  const place = { host, port, user: "postgres", database: "postgres" };
  return new pg.Pool({ ...place, max, connectionTimeoutMillis: CONNECTING_MS });
}

/** A runtime with connections over a network of its own. */
async function openProcess(server: Listening, begun: Map<string, number>, stepMs: number) {
  const wire = new Wire(server);
  await wire.open();
  const pool = connect(server, wire.host, 5);
  const store = await openPostgresStore({ pool, schema: SCHEMA });
  const errors: string[] = [];
  const none = (): void => {};
  const error = (message: string): void => void errors.push(message);
  const runtime = new AgentRuntime({ store, logger: { error, warn: none, info: none, debug: none } });
  const load = new Load(runtime, begun, stepMs);
  const failedRenewals = (): number => errors.filter((message) => message.includes("renew the lease")).length;
  const close = async (): Promise<void> => {
    await runtime.close();
    await pool.end();
    await wire.close();
  };
  return { wire, runtime, load, failedRenewals, close };
}

/** Notes how much time the leases have left at least. */
function watchLeases(pool: pg.Pool, schema: string) {
  let isOver = false;
  const look = async (): Promise<void> => {
    while (!isOver) {
      const { rows } = await pool.query<{ left: number }>(
        `SELECT min(l.until - extract(epoch FROM clock_timestamp()) * 1000)::float8 AS left FROM ${schema}.leases l`,
      );
      seen.leastMs = Math.min(seen.leastMs, rows[0]?.left ?? Number.NEGATIVE_INFINITY);
      await pause(LOOK_MS);
    }
  };
  const stop = async (): Promise<void> => {
    isOver = true;
    await looking;
  };
  const seen = { leastMs: Number.POSITIVE_INFINITY, stop };
  const looking = look();
  return seen;
}

/** Every run has to end as completed, in the process that has created it. */
async function judgeAll(pool: pg.Pool, schema: string, report: Report): Promise<void> {
  const until = performance.now() + END_MS;
  for (;;) {
    const { rows } = await pool.query<Readonly<Record<"all" | "open" | "wrong" | "taken", number>>>(
      `SELECT count(*)::float8 AS all, count(*) FILTER (WHERE finished_at IS NULL)::float8 AS open,
         count(*) FILTER (WHERE finished_at IS NOT NULL AND status <> 'completed')::float8 AS wrong,
         (SELECT count(*) FROM ${schema}.takeovers)::float8 AS taken FROM ${schema}.runs`,
    );
    const [found] = rows;
    if (found === undefined || (found.open > 0 && performance.now() < until)) {
      await pause(LOOK_MS);
      continue;
    }
    report.check(
      found.open + found.wrong === 0,
      `${found.all} runs: ${found.open} are open, ${found.wrong} have failed`,
    );
    report.check(found.taken === 0, `${found.taken} runs were taken over`);
    return;
  }
}
