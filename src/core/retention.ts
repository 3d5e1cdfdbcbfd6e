import type { Labels } from "./log.ts";
import type { RunsOfRule } from "./ports.ts";

/** What rules look at: of a run, or of another rule. */
interface Traits {
  readonly agent_name?: string | undefined;
  readonly tenant?: string | undefined;
  readonly labels?: Labels | undefined;
}

/** The number of the rule that counts for a run: the first that matches it. The number of rules if none does. */
export function ruleOf(rules: readonly RunsOfRule[], run: Traits): number {
  const found = rules.findIndex((rule) => matches(rule, run));
  return found === -1 ? rules.length : found;
}

/** Whether the rule matches a run, or all runs that another rule matches. */
export function matches(rule: RunsOfRule, { agent_name, tenant, labels = {} }: Traits): boolean {
  if (rule.agent_name !== undefined && rule.agent_name !== agent_name) return false;
  if (rule.tenant !== undefined && rule.tenant !== tenant) return false;
  return labelsOf(rule).every(([name, value]) => Object.hasOwn(labels, name) && labels[name] === value);
}

/** The labels of a rule, in the order of their names. */
export function labelsOf({ labels = {} }: RunsOfRule): readonly (readonly [name: string, value: string])[] {
  return Object.entries(labels).sort(([one], [other]) => (one < other ? -1 : 1));
}
