import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import type { RuntimeOptions } from "cadenza";
import type { Report } from "../commands/report.ts";
import type { Customer } from "./customers.ts";
import { begin, loseNothing, openApplication } from "./customers.ts";
import { GreedyCustomer } from "./greedy-customer.ts";

/* One tenant stays at each of its limits, and three others do what customers do, in turns without and with it. */

const LEAST_SHARE = 0.9;
/** How long a refused client waits, in milliseconds. */
const RETRY_MS = 1_000;
/** How many runs of the greedy tenant wait for a slot: as many as a tenant may have by default, or a little more. */
const QUEUED = 550;
/** How many customers a busy tenant has at a time. */
const AT_ONCE = 2;
/** How many runs with keys, and how many that wait, the quiet tenant has. */
const KEPT = 100;

export interface TurnOptions {
  readonly name: string;
  readonly runtime: RuntimeOptions;
  /** How many ended runs the greedy tenant makes before its turn, which are more than it may keep. */
  readonly ended: number;
  readonly forMs: number;
  readonly turnMs: number;
  /** How many clients the greedy tenant has. */
  readonly clients: number;
}

/** What a turn has seen of the busy tenants. */
interface Turn {
  readonly requests: number;
  readonly seconds: number;
  /** Seconds of CPU time of the process. */
  readonly cpu: number;
  /** How long the slowest request took, in milliseconds. */
  readonly slowest: number;
}

/** Resolves with how many turns there were. Reports what another tenant has lost, and its rate. */
export async function takeTurns(options: TurnOptions, report: Report): Promise<number> {
  const { name, ended, forMs, turnMs, clients } = options;
  const { maxLiveRuns = 10_000 } = options.runtime.limits ?? {};
  const { customer, close } = openApplication({ runtime: options.runtime, maxReaders: maxLiveRuns });
  const busy = ["green", "white", "black"].map((tenant) => customer(tenant));
  const red = customer("red");
  const kept = await keep(red);
  const until = performance.now() + forMs;
  let refusals = 0;
  // A turn to warm up.
  await turn(busy, turnMs, report);
  const without = [await turn(busy, turnMs, report)];
  const shares: number[] = [];
  while (performance.now() < until) {
    const blue = new GreedyCustomer(customer("blue"));
    await blue.fill({ ended, queued: QUEUED, atOnce: 50 });
    const pressed = new AbortController();
    const presses = Array.from({ length: clients }, (_, index) =>
      press(blue, (index * RETRY_MS) / clients, pressed.signal),
    );
    const alone = await turn([], turnMs, report);
    const beside = await turn(busy, turnMs, report);
    pressed.abort();
    await Promise.all(presses);
    await check(red, kept, report);
    await blue.leave();
    for (const count of blue.refusals.values()) refusals += count;
    without.push(await turn(busy, turnMs, report));
    const share = rateOf(beside) / mean(without.slice(-2).map(rateOf));
    shares.push(share);
    report.say(
      `${name}: ${percent(share)} of the rate. With ${told(beside)}; without ${told(without.at(-1))}; ` +
        `the greedy tenant alone ${((100 * alone.cpu) / alone.seconds).toFixed(1)} % of a core`,
    );
  }
  await lost(`${name}: at the end`, async () => loseNothing(red, await begin(red)), report);
  report.say(`${name}: the greedy tenant was refused ${refusals} times in ${shares.length} turns`);
  report.check(median(shares) >= LEAST_SHARE, `${name}: the others had ${percents(shares)} of their rate`);
  await close();
  return shares.length;
}

/** What the quiet tenant has from the beginning on. */
async function keep(red: Customer): Promise<ReadonlyMap<string, unknown>> {
  const kept = new Map<string, unknown>();
  for (let index = 0; index < KEPT; index++) {
    const session_id = crypto.randomUUID();
    kept.set(session_id, (await red.run("echo", { session_id }, { "idempotency-key": session_id }))["run_id"]);
    kept.set(`waits ${index}`, (await red.run("asks"))["run_id"]);
  }
  return kept;
}

/** The quiet tenant still has its runs, keys and sessions. */
async function check(red: Customer, kept: ReadonlyMap<string, unknown>, report: Report): Promise<void> {
  for (const [name, run_id] of kept) {
    const find = async (): Promise<void> => {
      assert.equal((await red.send("acp", `/runs/${run_id}`)).status, 200, "a run");
      if (name.startsWith("waits")) return;
      const again = await red.run("echo", { session_id: name }, { "idempotency-key": name });
      assert.equal(again["run_id"], run_id, "the run with a key");
      assert.equal((await red.send("acp", `/sessions/${name}`)).status, 200, "a session");
    };
    await lost(name, find, report);
  }
}

/** One client of the greedy tenant, which comes after a while, and waits after each refusal. */
async function press(blue: GreedyCustomer, afterMs: number, signal: AbortSignal): Promise<void> {
  await pause(afterMs);
  while (!signal.aborted) {
    await blue.press(1);
    await pause(RETRY_MS, undefined, { signal }).catch(() => undefined);
  }
}

/** Customers of the busy tenants do what they do, as fast as they can. */
async function turn(busy: readonly Customer[], turnMs: number, report: Report): Promise<Turn> {
  let requests = 0;
  let slowest = 0;
  const before = process.cpuUsage();
  const begun = performance.now();
  const until = begun + turnMs;
  const timed = async <Value>(call: () => Promise<Value>): Promise<Value> => {
    const from = performance.now();
    const value = await call();
    slowest = Math.max(slowest, performance.now() - from);
    requests += 1;
    return value;
  };
  const visit = async (one: Customer, session_id: string): Promise<void> => {
    const key = { "idempotency-key": crypto.randomUUID() };
    const { run_id } = await timed(() => one.run("echo", { session_id }, key));
    assert.equal((await timed(() => one.run("echo", { session_id }, key)))["run_id"], run_id, "the run with a key");
    const stream = await timed(async () => (await one.create("echo", { mode: "stream" })).text());
    assert.match(stream, /run\.completed/, "a stream");
    const asks = await timed(() => one.run("asks"));
    assert.equal((await timed(() => one.answer(asks["run_id"])))["status"], "completed", "an answer");
    const chat = await timed(async () => (await one.chat("chat", crypto.randomUUID())).text());
    assert.match(chat, /"finish"/, "a chat");
  };
  if (busy.length === 0) await pause(turnMs);
  await Promise.all(
    busy.flatMap((one) =>
      Array.from({ length: AT_ONCE }, async () => {
        while (performance.now() < until) {
          const session_id = crypto.randomUUID();
          await lost("a visit", () => visit(one, session_id), report);
          // The event loop has other work, too.
          await new Promise((resolve) => setImmediate(resolve));
        }
      }),
    ),
  );
  const seconds = (performance.now() - begun) / 1_000;
  const { user, system } = process.cpuUsage(before);
  return { requests, seconds, cpu: (user + system) / 1e6, slowest };
}

/** Reports what another tenant has lost. */
async function lost(what: string, call: () => Promise<void>, report: Report): Promise<void> {
  try {
    await call();
  } catch (error) {
    report.wrong(`${what}: ${(error as Error).message}`);
  }
}

function rateOf({ requests, seconds }: Turn): number {
  return requests / seconds;
}

function told(turn: Turn | undefined): string {
  if (turn === undefined) return "nothing";
  const cpuMs = (1_000 * turn.cpu) / turn.requests;
  return `${rateOf(turn).toFixed(0)} requests/s of ${cpuMs.toFixed(3)} ms CPU, at most ${turn.slowest.toFixed(0)} ms`;
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}

function percents(shares: readonly number[]): string {
  const sorted = shares.toSorted((one, other) => one - other);
  return `${percent(median(sorted))} (${percent(sorted.at(0) ?? 0)} to ${percent(sorted.at(-1) ?? 0)})`;
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((one, other) => one - other);
  const middle = sorted.length / 2;
  return ((sorted[Math.floor(middle)] ?? 0) + (sorted[Math.ceil(middle) - 1] ?? 0)) / 2;
}
