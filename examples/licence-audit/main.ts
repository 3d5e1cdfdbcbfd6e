/** `npm run demo -- licences [path of a package-lock.json] [--yes | --no] [--store file]` */
import { mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Run } from "cadenza";
import { AgentRuntime } from "cadenza";
import { durable } from "cadenza/store";
import { openStore } from "../durable-approval/store.ts";
import { licenceAudit } from "./agent.ts";
import { readArguments, USAGE } from "./arguments.ts";
import { audit, auditOn } from "./follow.ts";
import { renderReport, renderStatistics, reportIn } from "./report.ts";
import { fixedAnswers, TypedAnswers } from "./terminal.ts";

const OWN_LOCKFILE = fileURLToPath(new URL("../../package-lock.json", import.meta.url));
/** Where runs are kept, for `npm run demo -- inspect`. */
const OWN_STORE = resolve(".cadenza/demo.db");
const KEPT_RUNS = 20;

const DRAIN_MS = 10_000;

const print = (text: string): void => void process.stdout.write(text);
process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  return 1;
});

async function main(args: readonly string[]): Promise<number> {
  const { path, help, answer, store } = readArguments(args);
  if (help) {
    console.log(USAGE);
    return 0;
  }
  const file = path === undefined ? OWN_LOCKFILE : fromUser(path);
  const runtime = await openRuntime(store === undefined ? OWN_STORE : fromUser(store));
  runtime.register(licenceAudit);
  const interrupt = new AbortController();
  const onInterrupt = (): void => interrupt.abort();
  process.once("SIGINT", onInterrupt);
  const answers =
    answer === undefined ? new TypedAnswers(process.stdin, print, onInterrupt) : fixedAnswers(answer, print);
  try {
    const viewer = { answers, print, signal: interrupt.signal };
    const { run, statuses } = await (store === undefined ? audit : auditOn)(runtime, file, viewer);
    if (run.finished_at === null) {
      print("\nThe run is kept: the same command goes on with it.\n");
      return 130;
    }
    print(`\nThe run went ${way(statuses)}.\n`);
    if (run.status === "cancelled") return 130;
    if (run.error !== null) throw new Error(`${run.error.code}: ${run.error.message}`);
    const report = reportIn(run);
    if (report !== undefined) print(`\n${renderReport(report)}\n`);
    print(`\n${renderStatistics(await runtime.getAgent(licenceAudit.name))}\n`);
    if (store === undefined) print(`\nTo see what run ${run.run_id} did: npm run demo -- inspect\n`);
    return 0;
  } finally {
    answers.close();
    process.off("SIGINT", onInterrupt);
    await runtime.close({ drainMs: interrupt.signal.aborted ? 0 : DRAIN_MS });
  }
}

/** A runtime whose runs outlive the process. A new process takes over a run after a second, instead of ten. */
async function openRuntime(path: string): Promise<AgentRuntime> {
  mkdirSync(dirname(path), { recursive: true });
  const store = durable(await openStore(path), { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 });
  return new AgentRuntime({ exposeErrors: true, store, retention: { maxRuns: KEPT_RUNS } });
}

/** npm runs scripts in the project's folder. INIT_CWD is the user's folder. */
function fromUser(path: string): string {
  return resolve(process.env["INIT_CWD"] ?? process.cwd(), path);
}

/** The statuses in the order of their first occurrence, with their counts. */
function way(statuses: readonly Run["status"][]): string {
  const counts = new Map<Run["status"], number>();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, count]) => (count === 1 ? status : `${status} (${count} times)`)).join(" → ");
}
