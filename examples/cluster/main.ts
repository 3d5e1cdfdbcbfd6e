/**
 * Two web processes and three workers on one PostgreSQL. Customers order and answer over HTTP, and one worker is killed
 * in the middle: `npm run demo -- cluster`. It starts a PostgreSQL of its own, unless PGHOST names one.
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import type { Message } from "cadenza";
import type { Client } from "cadenza/client";
import { createClient } from "cadenza/client";
import type { Agents, StepReport } from "./agents.ts";

const ORDERS = 30;
/** An order has two steps, and its invoice has one. */
const STEPS = 3 * ORDERS;

interface Member {
  readonly name: string;
  readonly child: ChildProcess;
  /** Where it listens for HTTP. */
  readonly port: number;
}

/** The steps that have begun, each with the workers that have begun it, in order. */
const begun = new Map<string, { readonly run_id: string; readonly workers: string[] }>();
const ended = new Set<string>();
let victim: Victim | undefined;

/** The worker that was killed. */
interface Victim {
  readonly name: string;
  readonly killedAt: number;
  /** The runs in whose steps it was killed, and the workers that have gone on with them. */
  readonly runs: Map<string, string | undefined>;
}

if (process.env["PGHOST"] === undefined) console.log("Starting PostgreSQL. That takes some seconds.");
const stopDatabase = process.env["PGHOST"] === undefined ? await startDatabase() : undefined;
const [webs, workers] = await Promise.all([startAll("web", 2), startAll("worker", 3)]);
console.log(`${webs.length} web processes and ${workers.length} workers have started.`);

const faults: string[] = [];
try {
  console.log(`${ORDERS} customers order through one web process, and answer through the other one.`);
  check(await Promise.all(Array.from({ length: ORDERS }, (_, number) => shop(number))));
} finally {
  await stopAll();
  await stopDatabase?.();
}
for (const fault of faults) console.log(`Wrong: ${fault}`);
console.log(faults.length === 0 ? "All orders were shipped, and each step was done once." : "The check has failed.");
process.exitCode = faults.length === 0 ? 0 : 1;

// The customers.

async function shop(number: number): Promise<readonly Message[]> {
  const ordered = await clientOf(number).run("order", `Order ${number + 1}`);
  for await (const { type } of ordered.events()) if (type === "run.awaiting") break;
  const paid = clientOf(number + 1).attach("order", ordered.run_id);
  await paid.answer("paid", { isPaid: true });
  return paid.result();
}

/** A client of one web process. It sends a request again that gets no answer. */
function clientOf(turn: number): Client<Agents> {
  return createClient<Agents>({ url: `http://127.0.0.1:${webs[turn % webs.length]?.port}` });
}

// What the workers do.

function onStep({ name, child }: Member, { run_id, step, isDone }: StepReport): void {
  if (isDone) {
    ended.add(step);
    // The victim's last reports may arrive after its end.
    if (victim?.runs.get(run_id) === undefined && victim?.runs.delete(run_id) === true) tellOfTakers(victim);
    return;
  }
  const { workers } = begun.get(step) ?? { workers: [] };
  begun.set(step, { run_id, workers: [...workers, name] });
  if (victim === undefined && ended.size >= STEPS / 2) victim = kill(name, child);
  else if (victim !== undefined && name !== victim.name) onOther(name, run_id, victim);
}

/** Kills a worker in the middle of its steps. */
function kill(name: string, child: ChildProcess): Victim {
  child.kill("SIGKILL");
  const open = [...begun].filter(([step, { workers }]) => !ended.has(step) && workers.at(-1) === name);
  console.log(`kill -9 of ${name}, in the middle of ${open.length} steps`);
  return { name, killedAt: Date.now(), runs: new Map(open.map(([, { run_id }]) => [run_id, undefined])) };
}

/** Another worker has begun a step. */
function onOther(name: string, run_id: string, by: Victim): void {
  if (!by.runs.has(run_id) || by.runs.get(run_id) !== undefined) return;
  by.runs.set(run_id, name);
  tellOfTakers(by);
}

/** Prints which workers have taken the victim's runs over, as soon as each of these runs has begun another step. */
function tellOfTakers({ name: dead, killedAt, runs }: Victim): void {
  const takers = [...runs.values()];
  if (takers.includes(undefined)) return;
  const shares = workers.flatMap((worker) => {
    const count = takers.filter((taker) => taker === worker.name).length;
    return count === 0 ? [] : [`${count} at ${worker.name}`];
  });
  console.log(
    `${((Date.now() - killedAt) / 1_000).toFixed(1)} s later all runs of ${dead} go on: ${shares.join(", ")}`,
  );
}

/** A step is begun again only if its worker was killed in it. */
function check(outputs: readonly (readonly Message[])[]): void {
  const shipped = outputs.filter(([message]) => message?.parts[0]?.content?.endsWith("shipped, invoice completed"));
  if (shipped.length !== ORDERS) faults.push(`${ORDERS - shipped.length} orders were not shipped`);
  if (ended.size !== STEPS) faults.push(`${ended.size} steps were done instead of ${STEPS}`);
  if (victim === undefined) faults.push("no worker was killed");
  const repeated = [...begun.values()].filter(({ workers }) => workers.length > 1);
  console.log(`${repeated.length} of ${begun.size} steps were begun a second time.`);
  for (const { workers } of repeated)
    if (workers.length > 2 || workers[0] !== victim?.name) faults.push(`a step was begun by ${workers.join(", ")}`);
}

// Processes.

function startAll(role: "web" | "worker", count: number): Promise<readonly Member[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => start(role, `${role} ${index + 1}`)));
}

async function start(role: "web" | "worker", name: string): Promise<Member> {
  const child = fork(new URL("./process.ts", import.meta.url), [role]);
  const [{ port }] = (await once(child, "message")) as [{ port: number }];
  const member = { name, child, port };
  child.on("message", (report: StepReport) => onStep(member, report));
  return member;
}

/** Stops all processes by SIGTERM. Those that live must end with 0. */
async function stopAll(): Promise<void> {
  for (const { name, child } of [...webs, ...workers]) {
    if (name === victim?.name) continue;
    const end = once(child, "exit");
    child.kill("SIGTERM");
    const [code] = (await end) as [number | null];
    if (code !== 0) faults.push(`${name} has ended with ${code}`);
  }
}

/** Starts the server of the tests. The processes find it by their environment. */
async function startDatabase(): Promise<() => Promise<void>> {
  const { startServer } = await import("../../test/harness/postgres-server.ts");
  const { address, stop } = await startServer(18);
  if ("missing" in address) throw new Error(`${address.missing}. Set PGHOST to the address of a server.`);
  Object.assign(process.env, {
    PGHOST: address.host,
    PGPORT: address.port,
    PGUSER: "postgres",
    PGDATABASE: "postgres",
  });
  return stop;
}
