import type { Labels } from "../../core/log.ts";
import type { RunsOfRule } from "../../core/ports.ts";
import { matches } from "../../core/retention.ts";
import { badArgument, checkFigure, checkKey, checkKeys, checkObject, checkText, maxLengths } from "../agent/check.ts";
import { readLabels } from "../agent/labels.ts";

/**
 * When the store deletes ended runs and unused sessions. A persistent store keeps all by default. An idempotency key is
 * kept as long as its run.
 */
export interface RetentionOptions {
  /**
   * How many ended runs of all tenants are kept. Beyond that the runs that ended first are deleted; in memory the runs of the
   * tenants that have the most. Default: 10,000, or `Infinity` in a persistent store.
   */
  readonly maxRuns?: number | undefined;
  /**
   * How long an ended run is kept, in milliseconds, unless a rule with an age counts for it. Default: one hour, or `Infinity`
   * in a persistent store.
   */
  readonly maxAgeMs?: number | undefined;
  /**
   * How long a session that no run uses is kept, in milliseconds. Default: one day, or `Infinity` in a persistent
   * store.
   */
  readonly maxIdleSessionMs?: number | undefined;
  /**
   * How many generations of a run that [continues as new](https://github.com/cadenza-agents/cadenza/blob/main/docs/guides/long-runs.md)
   * are kept, with the one that is at work: from 1 to 100, or `Infinity`. The entries of older ones are deleted in the background
   * when a generation begins. Sub-runs keep theirs. Default: `Infinity`.
   */
  readonly keepGenerations?: number | undefined;
  /** How long runs of some agents, tenants or labels are kept, at most 100 rules. See {@link RetentionRule}. Default: none. */
  readonly rules?: readonly RetentionRule[] | undefined;
}

/**
 * How long some ended runs are kept: those that have all that is given of `agent_name`, `tenant` and `labels`. The first rule
 * that matches a run counts for it, and no other. `maxRuns` and `maxAgeMs` apply independently; one of them is needed.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 *
 * const day = 86_400_000;
 * const runtime = new AgentRuntime({
 *   retention: {
 *     maxAgeMs: 30 * day, // all others
 *     rules: [
 *       { labels: { hold: "legal" }, maxAgeMs: Number.POSITIVE_INFINITY },
 *       { agent_name: "heartbeat", maxRuns: 100, maxAgeMs: day },
 *       { tenant: "trial", maxAgeMs: 7 * day },
 *     ],
 *   },
 * });
 * await runtime.close();
 * ```
 */
export interface RetentionRule {
  /** The name of the agent. Default: any. */
  readonly agent_name?: string | undefined;
  /** The tenant; `""` for runs without one. Default: any. */
  readonly tenant?: string | undefined;
  /** Labels that a run has, each with this value. Default: any, or none. */
  readonly labels?: Labels | undefined;
  /** How long such a run is kept after its end, in milliseconds. `Infinity`: as long as it is not too many. Default: `maxAgeMs` of the retention. */
  readonly maxAgeMs?: number | undefined;
  /**
   * How many such runs are kept: one is deleted after so many others have ended for which the rule counts. Default: `Infinity`.
   */
  readonly maxRuns?: number | undefined;
}

/** A rule with its defaults. */
export interface ReadRule extends RunsOfRule {
  readonly maxAgeMs: number;
  readonly maxRuns: number;
}

/** The process that begins a generation looks for the first one that is kept. */
const MOST_GENERATIONS = 100;

/** Throws `invalid_argument` for a number of generations that cannot be kept. */
export function checkGenerations(kept: number): void {
  if (kept !== Number.POSITIVE_INFINITY && !(Number.isInteger(kept) && kept >= 1 && kept <= MOST_GENERATIONS))
    throw badArgument(
      "options.retention.keepGenerations",
      `a whole number from 1 to ${MOST_GENERATIONS}, or Infinity`,
      kept,
    );
}

/** More rules would make each pass over ended runs slow. */
const MAX_RULES = 100;

/** Reads the rules of a retention. Throws `invalid_argument`, also for a rule that never counts. */
export function readRules(given: unknown, maxAgeMs: number): readonly ReadRule[] {
  const name = "options.retention.rules";
  if (given === undefined) return [];
  if (!Array.isArray(given)) throw badArgument(name, "an array of rules", given);
  if (given.length > MAX_RULES) throw badArgument(name, `at most ${MAX_RULES} rules`, given.length);
  // `map` would keep the gaps of a list.
  const rules = Array.from(given, (rule: unknown, index) => readRule(`${name}.${index}`, rule, maxAgeMs));
  for (const [index, rule] of rules.entries()) {
    const first = rules.slice(0, index).findIndex((other) => matches(other, rule));
    if (first !== -1)
      throw badArgument(
        `${name}.${index}`,
        `a rule for runs that rule ${first} does not match, since the first rule that matches a run counts: put the narrower rule first`,
        given[index],
      );
  }
  return rules;
}

function readRule(name: string, rule: unknown, maxAgeMs: number): ReadRule {
  checkObject(name, rule);
  checkKeys(name, rule, ["agent_name", "tenant", "labels", "maxAgeMs", "maxRuns"]);
  const { agent_name, tenant, labels, ...figures } = rule as RetentionRule;
  if (agent_name !== undefined) checkText(`${name}.agent_name`, agent_name);
  if (tenant !== undefined && tenant !== "") checkKey(`${name}.tenant`, tenant, maxLengths.tenant);
  if (figures.maxAgeMs === undefined && figures.maxRuns === undefined)
    throw badArgument(name, "a rule with maxAgeMs, maxRuns or both", rule);
  for (const [key, value] of Object.entries(figures)) if (value !== undefined) checkFigure(`${name}.${key}`, value);
  return {
    agent_name,
    tenant,
    labels: readLabels(`${name}.labels`, labels),
    maxAgeMs: figures.maxAgeMs ?? maxAgeMs,
    maxRuns: figures.maxRuns ?? Number.POSITIVE_INFINITY,
  };
}
