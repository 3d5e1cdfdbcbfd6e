/** `npm run demo -- [path of a package-lock.json] [--yes | --no]` */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { RunStatus } from "cadenza";
import { AgentRuntime } from "cadenza";
import { licenceAudit } from "./agent.ts";
import { readArguments, USAGE } from "./arguments.ts";
import { audit } from "./follow.ts";
import { renderReport, renderStatistics, reportIn } from "./report.ts";
import { fixedAnswers, TypedAnswers } from "./terminal.ts";

const OWN_LOCKFILE = fileURLToPath(new URL("../../package-lock.json", import.meta.url));

const print = (text: string): void => void process.stdout.write(text);
process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  return 1;
});

async function main(args: readonly string[]): Promise<number> {
  const { path, help, answer } = readArguments(args);
  if (help) {
    console.log(USAGE);
    return 0;
  }
  // npm runs scripts in the project's folder; INIT_CWD is where the user is.
  const file = path === undefined ? OWN_LOCKFILE : resolve(process.env["INIT_CWD"] ?? process.cwd(), path);

  const runtime = new AgentRuntime({ exposeErrors: true }).register(licenceAudit);
  const interrupt = new AbortController();
  const onInterrupt = (): void => interrupt.abort();
  process.once("SIGINT", onInterrupt);
  const answers =
    answer === undefined ? new TypedAnswers(process.stdin, print, onInterrupt) : fixedAnswers(answer, print);
  try {
    const { run, statuses } = await audit(runtime, file, { answers, print, signal: interrupt.signal });
    print(`\nThe run went ${way(statuses)}.\n`);
    if (run.status === "cancelled") return 130;
    if (run.error !== null) throw new Error(`${run.error.code}: ${run.error.message}`);
    const report = reportIn(run);
    if (report !== undefined) print(`\n${renderReport(report)}\n`);
    print(`\n${renderStatistics(await runtime.getAgent(licenceAudit.name))}\n`);
    return 0;
  } finally {
    answers.close();
    process.off("SIGINT", onInterrupt);
    await runtime.close();
  }
}

/** The statuses in the order in which they came first, with how often. */
function way(statuses: readonly RunStatus[]): string {
  const counts = new Map<RunStatus, number>();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, count]) => (count === 1 ? status : `${status} (${count} times)`)).join(" → ");
}
