import type { AgentStatus } from "../protocol/agent.ts";
import type { RunState } from "./state.ts";
import { activeMs } from "./state.ts";

/**
 * What is counted for each agent. A store adds up the numbers key by key and need not know their meaning. Times are in
 * milliseconds.
 */
export interface Counters {
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
  /** Active time of the completed and failed runs. Waiting does not count, nor the line for a slot after it. */
  readonly active_ms: number;
  /** Time that ended runs waited for answers, times and messages, and then stood in line for their slots. */
  readonly waiting_ms: number;
  /** Runs that reported usage. */
  readonly reported: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly total_tokens: number;
  readonly cached_input_tokens: number;
  readonly cache_write_tokens: number;
  readonly reasoning_tokens: number;
}

/** The counters before the first run. */
export const noCounters: Counters = {
  completed: 0,
  failed: 0,
  cancelled: 0,
  active_ms: 0,
  waiting_ms: 0,
  reported: 0,
  input_tokens: 0,
  output_tokens: 0,
  total_tokens: 0,
  cached_input_tokens: 0,
  cache_write_tokens: 0,
  reasoning_tokens: 0,
};

/** The names of the counters, in a fixed order. */
export const counterNames = Object.keys(noCounters) as readonly (keyof Counters)[];

/** What one run that has ended contributes. */
export function countRun(state: RunState): Counters {
  const { status, usage, ended } = state;
  return {
    completed: status === "completed" ? 1 : 0,
    failed: status === "failed" ? 1 : 0,
    cancelled: status === "cancelled" ? 1 : 0,
    active_ms: ended === null || status === "cancelled" ? 0 : activeMs(state, ended.at),
    waiting_ms: state.waiting_ms ?? 0,
    reported: usage === null ? 0 : 1,
    input_tokens: usage?.input_tokens ?? 0,
    output_tokens: usage?.output_tokens ?? 0,
    total_tokens: usage?.total_tokens ?? 0,
    cached_input_tokens: usage?.cached_input_tokens ?? 0,
    cache_write_tokens: usage?.cache_write_tokens ?? 0,
    reasoning_tokens: usage?.reasoning_tokens ?? 0,
  };
}

/**
 * The figures that an agent's manifest shows (ACP 1.0): the average tokens of the runs that reported any, the average
 * active seconds of the completed and failed runs, and the share of completed among these, from 0 to 100. A figure is
 * absent while no run counts towards it. Cancelled runs count towards the tokens only.
 */
export function agentStatus(counters: Counters): AgentStatus {
  const judged = counters.completed + counters.failed;
  return {
    ...(counters.reported > 0 && { avg_run_tokens: counters.total_tokens / counters.reported }),
    ...(judged > 0 && {
      avg_run_time_seconds: counters.active_ms / judged / 1000,
      success_rate: (100 * counters.completed) / judged,
    }),
  };
}
