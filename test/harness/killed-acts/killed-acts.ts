import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AgentError, AgentRuntime } from "cadenza";
import type { AdminAct } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import { durable } from "cadenza/store";
import type { Report } from "../commands/report.ts";
import type { GrownDatabase } from "../growth/grown-stores.ts";

export const LEASE_MS = 2_000;
const LOOK_MS = 50;

/** What an acting process tells: the processor time of a turn that took more than all before. */
export interface Told {
  readonly longestMs: number;
}

/** Acts on many runs while the acting process is killed. Answers the processor time of its longest turn, in milliseconds. */
export async function actAndKill(
  grown: GrownDatabase,
  act: AdminAct["act"],
  { runs, kills }: { readonly runs: number; readonly kills: number },
  report: Report,
): Promise<number> {
  const store = await grown.open();
  const operator = new AgentRuntime({ store: durable(store, { leaseMs: LEASE_MS }), work: false });
  operator.declare({ name: "asks", durable: true }, { name: "fails", durable: true });
  const admin = createAdmin(operator);
  const query = { agent_name: act === "cancel" ? "asks" : "fails" };
  const begin = () => (act === "cancel" ? admin.cancelMany(query) : admin.retryMany(query));
  let longestMs = 0;
  const startWorker = (): ChildProcess => {
    const child = fork(fileURLToPath(new URL("./worker.ts", import.meta.url)));
    child.on("message", (told: Told) => {
      longestMs = Math.max(longestMs, told.longestMs);
    });
    child.send(grown.place);
    return child;
  };
  let worker = startWorker();
  const finish = async (killsLeft: number): Promise<AdminAct> => {
    const begun = await begin();
    for (let left = killsLeft; ; ) {
      const seen = await admin.act(begun);
      if (seen.finished_at !== null) return seen;
      if (left > 0 && seen.done > (runs * (kills - left + 1)) / (kills + 1)) {
        left -= 1;
        worker.kill("SIGKILL");
        worker = startWorker();
        report.progress(`${act}: killed after ${seen.done} of ${seen.matched} runs`);
      }
      await wait(LOOK_MS);
    }
  };
  const first = await finish(kills);
  report.check(isExact(first, runs) && first.done === runs, `${act}: ${figures(first)}`);
  report.check((await changedOnce(grown, act)) === runs, `${act}: each run was changed once`);
  const again = await finish(0);
  report.check(isExact(again, act === "cancel" ? 0 : runs) && again.done === 0, `${act} again: ${figures(again)}`);
  report.check((await changedOnce(grown, act)) === runs, `${act} again: no run was changed`);
  worker.kill("SIGKILL");
  await operator.close();
  await store.close?.();
  return longestMs;
}

/** Makes runs that wait for an answer, and runs that have failed. */
export async function makeRuns(grown: GrownDatabase, runs: number): Promise<void> {
  const store = await grown.open();
  const runtime = new AgentRuntime({ store: durable(store) });
  runtime.register("asks", { durable: true }, (_input, { ask }) => ask("Well?"));
  runtime.register("fails", { durable: true }, () => Promise.reject(new AgentError("refused", "The bank refused.")));
  for (const agent_name of ["asks", "fails"]) await runtime.createRun({ agent_name, input: "" });
  await runtime.close();
  await store.close?.();
  await grown.multiply(2 * (runs - 1));
  // An act leaves out what was created after it, and copies are created later and later.
  await grown.query(`UPDATE ${grown.prefix}runs SET created_at = 1`);
}

/** How many runs have what one cancel adds to their log, or one fork. Without the code a cancelled run ends after a lease. */
async function changedOnce({ query, prefix }: GrownDatabase, act: AdminAct["act"]): Promise<number> {
  const [row] =
    act === "cancel"
      ? await query(`SELECT count(*) AS runs, min(length) AS first, max(length) AS last FROM (
          SELECT position - CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END AS length FROM ${prefix}runs
          WHERE agent_name = 'asks' AND status IN ('cancelling', 'cancelled')) l`)
      : await query(`SELECT count(*) AS runs, 0 AS first, 0 AS last FROM ${prefix}runs
          WHERE agent_name = 'fails' AND idempotency_key LIKE 'cadenza:retry:%'`);
  return Number(row?.["first"]) === Number(row?.["last"]) ? Number(row?.["runs"]) : -1;
}

function isExact({ status, matched, done, left, refused }: AdminAct, runs: number): boolean {
  return status === "completed" && matched === runs && done + left + refused === matched;
}

function figures({ status, matched, done, left, refused }: AdminAct): string {
  return `${status}, ${matched} matched, ${done} done, ${left} left, ${refused} refused`;
}
