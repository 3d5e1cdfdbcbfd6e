import { textOf } from "../program-player.ts";
import type { Acknowledged, RunRecord } from "./acknowledged.ts";
import type { ProcessHistory, RunEvidence, Seen } from "./evidence.ts";
import { Evidence } from "./evidence.ts";
import { judgeAnswers, judgeShown } from "./judge-answers.ts";
import type { Complain } from "./judge-bodies.ts";
import { judgeBodies } from "./judge-bodies.ts";
import { judgeMessages } from "./judge-messages.ts";
import { judgeRecord, judgeRun } from "./judge-runs.ts";
import { judgeFinally, judgeGoingOn, judgeTaking, judgeTimes } from "./judge-waits.ts";
import type { Plan } from "./plans.ts";

/* The judge: compares what the client was told with the logs and with the lines of the agents. */

/** A broken rule, with its evidence. */
export interface Anomaly {
  /** lost, doubled, changed, early, stuck, orphaned, refused, invalid, left out or unexplained. */
  readonly kind: string;
  readonly what: string;
  readonly run_id: string;
  readonly plan: string;
  readonly log: readonly object[];
  readonly lines: readonly Seen[];
  /** The position of the line that proves it. */
  readonly place: number | undefined;
  /** Its parent and its sub-runs. */
  readonly relatives: readonly { readonly run_id: string; readonly log: readonly object[] }[];
  /** What the client knows of the run, or of its parent. */
  readonly told: string;
}

export interface Judged {
  readonly file: string;
  readonly witness: string;
  readonly acknowledged: Acknowledged;
  readonly leaseMs: number;
  /** The processes that have had the new version of the agent that is being deployed. */
  readonly newProcesses: ReadonlySet<string>;
}

export async function judge(judged: Judged): Promise<Anomaly[]> {
  const evidence = new Evidence(judged.file, judged.witness);
  try {
    return await new Judge(judged, evidence).judge();
  } finally {
    evidence.close();
  }
}

class Judge {
  readonly #judged: Judged;
  readonly #evidence: Evidence;
  readonly #anomalies: Anomaly[] = [];
  readonly #plans = new Map<string, Plan>();

  constructor(judged: Judged, evidence: Evidence) {
    this.#judged = judged;
    this.#evidence = evidence;
  }

  async judge(): Promise<Anomaly[]> {
    const { acknowledged, leaseMs } = this.#judged;
    const evidence = this.#evidence;
    for (const { run_id } of acknowledged.runs) if (run_id !== undefined) evidence.read(run_id);
    await evidence.readAll();
    for (const { run, what } of acknowledged.wrong) this.#complainOf(run.run_id ?? "")("changed", what);
    for (const run of evidence.runs.values()) {
      const complain = this.#complainOf(run.run_id);
      const record = this.#recordOf(run);
      const isCancelled = (record?.cancels.length ?? 0) > 0;
      const { fails } = this.#planOf(run);
      judgeRun(run, evidence, { fails, isCancelled, isAnswered: record !== undefined }, complain);
      judgeBodies(run, evidence, leaseMs, complain);
      judgeGoingOn(run, complain);
      judgeTaking(run, complain);
      judgeTimes(run, complain);
      judgeShown(run, evidence, complain);
      if (this.#mustRunFinally(run)) judgeFinally(run, complain);
    }
    for (const record of acknowledged.runs) {
      const complain = this.#complainOf(record.run_id ?? "");
      await judgeRecord(record, evidence, complain);
      judgeAnswers(record, evidence, complain);
      judgeMessages(record, evidence, complain);
    }
    await this.#judgeSessions();
    return this.#anomalies;
  }

  /** A cancel ends a run without its `finally` blocks if no process with the code has claimed it within a lease. */
  #mustRunFinally(run: RunEvidence): boolean {
    const [created] = run.log;
    const ended = run.log.at(-1);
    if (created?.type !== "created" || ended?.type !== "ended") return false;
    const process = (name: string): ProcessHistory => this.#evidence.process(name);
    if (!run.durable) {
      const called = run.lines.find(({ is }) => is === "called");
      return called !== undefined && !process(called.by).hadTrouble(ended.at, 0);
    }
    if (created.agent_name !== "rolling" || created.version !== "2") return true;
    const from = run.log.find(({ type }) => type === "cancel-requested")?.at ?? ended.at;
    return [...this.#judged.newProcesses].some((name) => {
      const startedAt = process(name).events[0]?.at ?? Number.POSITIVE_INFINITY;
      return startedAt < from && process(name).isSound(from, from + 2 * this.#judged.leaseMs, this.#judged.leaseMs / 4);
    });
  }

  /** Each completed run has added its messages to its session, once. */
  async #judgeSessions(): Promise<void> {
    const { acknowledged } = this.#judged;
    const sessions = new Map<string, RunRecord[]>();
    for (const run of acknowledged.runs) {
      if (run.session_id === null) continue;
      const members = sessions.get(run.session_id) ?? [];
      const first = members.length === 0 ? acknowledged.find(run.session_id) : undefined;
      sessions.set(run.session_id, first === undefined ? [...members, run] : [first, run]);
    }
    for (const [session_id, members] of sessions) {
      const history = await this.#evidence.history(session_id);
      for (const { run_id, plan } of members) {
        const run = this.#evidence.runs.get(run_id ?? "");
        const ended = run?.log.at(-1);
        if (run === undefined || ended?.type !== "ended") continue;
        const times = (history ?? []).filter((text) => text.startsWith(`{"id":"${plan.id}",`)).length;
        if (times !== (ended.outcome === "completed" ? 1 : 0))
          this.#complainOf(run.run_id)("lost", `has ${ended.outcome} and is ${times} times in session ${session_id}`);
      }
    }
  }

  #planOf({ run_id, log }: RunEvidence): Plan {
    const known = this.#plans.get(run_id);
    if (known !== undefined) return known;
    const [created] = log;
    const plan = JSON.parse(created?.type === "created" ? textOf(created.input) : "{}") as Plan;
    this.#plans.set(run_id, plan);
    return plan;
  }

  /** What the client knows of a run that it has created. */
  #recordOf({ run_id }: RunEvidence): RunRecord | undefined {
    return this.#judged.acknowledged.find(run_id);
  }

  #relativesOf(run: RunEvidence): RunEvidence[] {
    return [...this.#evidence.runs.values()].filter(
      ({ run_id, parent }) => run_id === run.parent || this.#isWithin(parent, run.run_id),
    );
  }

  /** Whether a run is `ancestor` itself or descends from it. */
  #isWithin(run_id: string | undefined, ancestor: string): boolean {
    if (run_id === undefined || run_id === ancestor) return run_id === ancestor;
    return this.#isWithin(this.#evidence.runs.get(run_id)?.parent, ancestor);
  }

  #complainOf(run_id: string): Complain {
    return (kind, what, place) => {
      const run = this.#evidence.runs.get(run_id);
      let root = run;
      while (root?.parent !== undefined) root = this.#evidence.runs.get(root.parent);
      const record = this.#judged.acknowledged.find(root?.run_id ?? run_id);
      this.#anomalies.push({
        kind,
        what,
        run_id,
        plan: run === undefined ? "" : JSON.stringify(this.#planOf(run)),
        log: run?.log ?? [],
        lines: run?.lines ?? [],
        place,
        relatives: run === undefined ? [] : this.#relativesOf(run),
        told: record === undefined ? "nothing: its creation was not acknowledged" : toldOf(record),
      });
    };
  }
}

function toldOf(record: RunRecord): string {
  const { plan, agent, key, mode, session_id, run_id, answers, mails, cancels, refusals, seen } = record;
  const answered = answers.map(({ nonce, is, question, outcomes }) => {
    const { key: asked, run } = question.text;
    return `${is} ${nonce} to ${asked} of ${run}: ${outcomes.join(", ")}`;
  });
  const sent = mails.map(
    ({ nonce, name, run_id: to, outcomes }) => `${name} ${nonce} to ${to}: ${outcomes.join(", ")}`,
  );
  return JSON.stringify({
    root: run_id,
    plan: plan.id,
    agent,
    mode,
    isRepeatable: key !== null,
    session_id,
    answered,
    sent,
    cancels,
    refusals,
    seenUntil: seen.length,
  });
}
