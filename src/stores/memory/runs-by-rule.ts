import { sameJson } from "../../core/json.ts";
import type { RuleRetention, RunsOfRule } from "../../core/ports.ts";
import { labelsOf, ruleOf } from "../../core/retention.ts";
import type { MemoryRun } from "./tenant.ts";

/** The ended runs of each rule of a retention, and those of no rule, in the order in which they ended. */
export class RunsByRule {
  readonly #rules: readonly RunsOfRule[];
  readonly #runs: readonly Set<MemoryRun>[];

  /** `ended`: the runs that have ended, in any order. */
  constructor(rules: readonly RunsOfRule[], ended: readonly MemoryRun[]) {
    this.#rules = rules;
    this.#runs = [...rules, "others"].map(() => new Set());
    for (const run of ended.toSorted(inOrderOfEnds)) this.add(run);
  }

  /** Whether it has the runs of these rules, whatever their figures. */
  isOf(rules: readonly RunsOfRule[]): boolean {
    return sameJson(rules.map(conditionsOf), this.#rules.map(conditionsOf));
  }

  add(run: MemoryRun): void {
    this.#of(run)?.add(run);
  }

  remove(run: MemoryRun): void {
    this.#of(run)?.delete(run);
  }

  /** The runs of a rule beyond its number or its time, those that ended first. They may be removed meanwhile. */
  *beyond(rule: number, { maxRuns, endedBefore }: Pick<RuleRetention, "maxRuns" | "endedBefore">): Iterable<MemoryRun> {
    const runs = this.#runs[rule] ?? new Set();
    let tooMany = runs.size - maxRuns;
    for (const run of runs) {
      if (tooMany <= 0 && endOf(run) >= endedBefore) return;
      tooMany -= 1;
      yield run;
    }
  }

  #of({ key: { tenant }, created: { agent_name, labels } }: MemoryRun): Set<MemoryRun> | undefined {
    return this.#runs[ruleOf(this.#rules, { tenant, agent_name, labels })];
  }
}

function conditionsOf(rule: RunsOfRule): readonly unknown[] {
  return [rule.agent_name ?? null, rule.tenant ?? null, labelsOf(rule)];
}

function inOrderOfEnds(one: MemoryRun, other: MemoryRun): number {
  return endOf(one) - endOf(other) || one.order - other.order;
}

function endOf({ head }: MemoryRun): number {
  return head.finished_at ?? Number.NEGATIVE_INFINITY;
}
