import type { BatchObservableResult, Meter, Observable } from "@opentelemetry/api";
import { createNoopMeter, metrics } from "@opentelemetry/api";
import type { Counters } from "../core/statistics.ts";
import { noCounters } from "../core/statistics.ts";
import type { AgentRuntime, RuntimeStats } from "../runtime/api/agent-runtime.ts";
import type { EventOf, EventOrigin } from "../runtime/runs/announcer.ts";
import { AttributeName } from "./attribute-names.ts";
import { SCOPE, SCOPE_VERSION } from "./scope.ts";

/** The options of {@link measureRuntime}. */
export interface MeasureOptions {
  /** Makes the instruments. Default: the meter `cadenza` of the SDK that is registered. */
  readonly meter?: Meter | undefined;
}

const MS_PER_SECOND = 1_000;
const ends = ["run.completed", "run.failed", "run.cancelled"] as const;
type EndEvent = EventOf<(typeof ends)[number]>;
const tokenTypes = {
  input: "input_tokens",
  output: "output_tokens",
  cached_input: "cached_input_tokens",
  cache_write: "cache_write_tokens",
  reasoning: "reasoning_tokens",
} as const satisfies Record<string, keyof Counters>;

/**
 * Measures a runtime with the metrics of OpenTelemetry: the runs that end in this process, their times and tokens, and at
 * each collection what `runtime.stats()` says of this process and of the store. Gives a function that ends it.
 *
 * Register the SDK before: without one nothing is measured.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { measureRuntime } from "cadenza/otel";
 *
 * const runtime = new AgentRuntime();
 * const stop = measureRuntime(runtime);
 * stop();
 * ```
 */
export function measureRuntime(
  runtime: AgentRuntime<string>,
  { meter = metrics.getMeter(SCOPE, SCOPE_VERSION) }: MeasureOptions = {},
): () => void {
  // The meter of no SDK.
  if (meter.constructor === createNoopMeter().constructor) return () => undefined;
  const stops = [countEnds(runtime, meter), observeStats(runtime, meter)];
  return () => {
    for (const stop of stops) stop();
  };
}

/** Counts the runs that end in this process. */
function countEnds(runtime: AgentRuntime<string>, meter: Meter): () => void {
  const runs = meter.createCounter("cadenza.runs", { unit: "{run}", description: "Runs that have ended." });
  const tokens = meter.createCounter("cadenza.run.tokens", { unit: "{token}", description: "Tokens of ended runs." });
  const active = meter.createHistogram("cadenza.run.active_time", {
    unit: "s",
    description: "How long a completed or failed run was at work.",
  });
  const waiting = meter.createHistogram("cadenza.run.waiting_time", {
    unit: "s",
    description: "How long an ended run waited for answers, messages and times.",
  });
  const onEnd = ({ run }: EndEvent, { agent_name, counters = noCounters }: EventOrigin): void => {
    const agent = { [AttributeName.agentName]: agent_name };
    const { status, error } = run;
    const ending = { ...agent, [AttributeName.status]: status };
    runs.add(1, error === null ? ending : { ...ending, [AttributeName.errorType]: errorType(error) });
    for (const [type, counter] of Object.entries(tokenTypes))
      if (counters[counter] > 0) tokens.add(counters[counter], { ...agent, [AttributeName.tokenType]: type });
    if (status !== "cancelled") active.record(counters.active_ms / MS_PER_SECOND, ending);
    if (counters.waiting_ms > 0) waiting.record(counters.waiting_ms / MS_PER_SECOND, ending);
  };
  for (const end of ends) runtime.on(end, onEnd);
  return () => {
    for (const end of ends) runtime.off(end, onEnd);
  };
}

/** The reason that clients are told, or the code. */
function errorType({ code, data }: NonNullable<EndEvent["run"]["error"]>): string {
  const reason = data?.["reason"];
  return typeof reason === "string" ? reason : code;
}

/** Reads the figures of the runtime when metrics are collected. */
function observeStats(runtime: AgentRuntime<string>, meter: Meter): () => void {
  const gauge = (name: string, unit: string, description: string) =>
    meter.createObservableGauge(name, { unit, description });
  const live = gauge("cadenza.runs.live", "{run}", "Runs of this process that have not ended, by status.");
  const waiting = gauge(
    "cadenza.slots.waiting",
    "{run}",
    "Runs of the store that wait for a slot, by agent: of the first 100 slots that runs wait for.",
  );
  const longest = gauge("cadenza.slots.waiting_time", "s", "How long the run has been due that has waited longest.");
  const gauges: readonly (readonly [Observable, (stats: RuntimeStats) => number | null])[] = [
    [gauge("cadenza.runs.queued", "{run}", "Runs that wait for a slot of this process."), ({ queued }) => queued],
    [
      gauge("cadenza.runs.blocked", "{run}", "Runs of the store whose code does not match their log, up to 1,000."),
      ({ blocked }) => blocked.length,
    ],
    [
      gauge("cadenza.runs.unregistered", "{run}", "Runs of the store whose agent or version is not registered here."),
      ({ unregistered }) => unregistered,
    ],
    [
      gauge("cadenza.pauses", "{pause}", "Agents, versions and tenants that operators have paused."),
      ({ pauses }) => pauses.length,
    ],
    [gauge("cadenza.runs.damaged", "{run}", "Runs that this process could not read."), ({ damaged }) => damaged.length],
    [
      gauge("cadenza.heartbeat.age", "s", "The time since this process told the store that it lives."),
      ({ heartbeatAgeMs }) => (heartbeatAgeMs === null ? null : heartbeatAgeMs / MS_PER_SECOND),
    ],
  ];
  const counter = (name: string, unit: string, description: string) =>
    meter.createObservableCounter(name, { unit, description });
  const counters: readonly (readonly [Observable, (stats: RuntimeStats) => number])[] = [
    [
      counter(
        "cadenza.replay.differences",
        "{value}",
        "Values that agents emitted again and that differ from the log.",
      ),
      ({ differences }) => differences,
    ],
    [
      counter("cadenza.dropped", "{value}", "Values that agents emitted after their run had ended."),
      ({ dropped }) => dropped,
    ],
    [counter("cadenza.hung", "{run}", "Agents that did not stop in time."), ({ hung }) => hung],
  ];
  const all = [live, waiting, longest, ...gauges.map(([each]) => each), ...counters.map(([each]) => each)];
  const observe = async (result: BatchObservableResult): Promise<void> => {
    const stats = await runtime.stats();
    for (const [status, count] of Object.entries(stats.live))
      result.observe(live, count, { [AttributeName.status]: status });
    for (const [agent, { runs, since }] of waitingByAgent(stats)) {
      const attributes = { [AttributeName.agentName]: agent };
      result.observe(waiting, runs, attributes);
      result.observe(longest, Math.max(0, runtime.clock.now() - since) / MS_PER_SECOND, attributes);
    }
    for (const [each, read] of [...gauges, ...counters]) {
      const value = read(stats);
      if (value !== null) result.observe(each, value);
    }
  };
  meter.addBatchObservableCallback(observe, all);
  return () => meter.removeBatchObservableCallback(observe, all);
}

/** How many runs of each agent wait for its slots, and since when the first of them is due. */
function waitingByAgent({ lines }: RuntimeStats) {
  const found = new Map<string, { readonly runs: number; readonly since: number }>();
  for (const { agent_name, waiting, since } of lines) {
    const { runs, since: first } = found.get(agent_name) ?? { runs: 0, since: Number.POSITIVE_INFINITY };
    found.set(agent_name, { runs: runs + waiting, since: Math.min(first, Date.parse(since)) });
  }
  return found;
}
