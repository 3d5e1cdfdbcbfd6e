import type { Attributes, Context, Link, Span, SpanContext, Tracer } from "@opentelemetry/api";
import {
  context,
  createContextKey,
  isSpanContextValid,
  ProxyTracer,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import type { RunKey } from "../core/ports.ts";
import { isSameRun, RunMap } from "../core/run-map.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AskInfo, CreateInfo, Interceptor, RunInfo, StepInfo } from "../runtime/agent/interceptors.ts";
import { AttributeName } from "./attribute-names.ts";
import { SCOPE, SCOPE_VERSION } from "./scope.ts";

/** The options of {@link traceRuns}. */
export interface TraceOptions {
  /** Makes the spans. Default: the tracer `cadenza` of the SDK that is registered. */
  readonly tracer?: Tracer | undefined;
  /** Whether spans hold the input of runs, the questions and the results of steps. Default: false. */
  readonly content?: boolean | undefined;
}

/** Marks the async contexts of a call of an agent function, by the key of its run. */
const RUN = createContextKey("cadenza run");

/**
 * An interceptor that makes a span for each new run, each call of an agent function, each attempt of a step, and each
 * question. Spans that are made inside them are their children. The spans of a run are one trace, also over restarts and
 * in several processes. Names and attributes are those of the GenAI conventions.
 *
 * Register the SDK before: without one the interceptor is empty, and costs nothing. The spans hold no content of
 * messages, unless `content` is true.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { traceRuns } from "cadenza/otel";
 *
 * const runtime = new AgentRuntime({ interceptors: [traceRuns()] });
 * ```
 */
export function traceRuns({
  tracer = trace.getTracer(SCOPE, SCOPE_VERSION),
  content = false,
}: TraceOptions = {}): Interceptor {
  // The tracer of no SDK.
  if (tracer instanceof ProxyTracer) return {};
  const { create, run, step, ask } = new RunTracer(tracer, content);
  return { create, run, step, ask };
}

class RunTracer {
  readonly #tracer: Tracer;
  readonly #content: boolean;
  /** The contexts of the calls of agent functions that are at work here, by run. */
  readonly #calls = new RunMap<Context>();

  constructor(tracer: Tracer, content: boolean) {
    this.#tracer = tracer;
    this.#content = content;
  }

  /** The span of a new run is over at once, so that no crash takes it. All other spans of the run are below it. */
  readonly create = (info: CreateInfo): { readonly traceparent: string } | undefined => {
    const above =
      info.parent_run_id === null
        ? context.active()
        : this.#contextOf({ tenant: info.tenant, run_id: info.parent_run_id });
    const options = { kind: SpanKind.PRODUCER, attributes: attributesOf(info) };
    const span = this.#tracer.startSpan(`create_run ${info.agent_name}`, options, above);
    span.end();
    const made = span.spanContext();
    return isSpanContextValid(made) ? { traceparent: traceParentOf(made) } : undefined;
  };

  readonly run: NonNullable<Interceptor["run"]> = async (info, next) => {
    const first = spanContextIn(info.carrier["traceparent"]);
    const above = first === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, first);
    const links: Link[] = first === undefined || info.isFirst ? [] : [{ context: first }];
    const options = { kind: SpanKind.INTERNAL, attributes: this.#attributesOfCall(info), links };
    const span = this.#tracer.startSpan(`invoke_agent ${info.agent_name}`, options, above);
    const inside = trace.setSpan(above, span).setValue(RUN, keyOf(info));
    this.#calls.set(info, inside);
    try {
      const outcome = await context.with(inside, next);
      span.setAttribute(AttributeName.outcome, outcome);
    } catch (error) {
      fail(span, error, info.signal);
      throw error;
    } finally {
      if (this.#calls.get(info) === inside) this.#calls.delete(info);
      span.end();
    }
  };

  readonly step: NonNullable<Interceptor["step"]> = async (info, next) => {
    const above = this.#contextOf(info);
    const span = this.#tracer.startSpan(`step ${firstWord(info.name)}`, { attributes: attributesOfStep(info) }, above);
    try {
      const result = await context.with(trace.setSpan(above, span), next);
      if (this.#content && result !== undefined) span.setAttribute(AttributeName.stepResult, textOf(result));
      return result;
    } catch (error) {
      fail(span, error, info.signal);
      throw error;
    } finally {
      span.end();
    }
  };

  readonly ask: NonNullable<Interceptor["ask"]> = async (info, next) => {
    const attributes = this.#attributesOfQuestion(info);
    const name = info.name === null ? "ask" : `ask ${info.name}`;
    const span = this.#tracer.startSpan(name, { attributes }, this.#contextOf(info));
    try {
      span.setAttribute(AttributeName.outcome, await next());
    } finally {
      span.end();
    }
  };

  /** The active context, if the code of the run has set it; else that of the call of its agent function. */
  #contextOf(key: RunKey): Context {
    const active = context.active();
    const run = active.getValue(RUN) as RunKey | undefined;
    return run !== undefined && isSameRun(run, key) ? active : (this.#calls.get(key) ?? active);
  }

  #attributesOfCall(info: RunInfo): Attributes {
    return {
      ...attributesOf(info),
      [AttributeName.operation]: "invoke_agent",
      [AttributeName.isFirst]: info.isFirst,
      ...(this.#content && { [AttributeName.input]: JSON.stringify(info.input.map(inputMessage)) }),
    };
  }

  #attributesOfQuestion({ run_id, agent_name, await_id, name, kind, parts }: AskInfo): Attributes {
    return {
      [AttributeName.agentName]: agent_name,
      [AttributeName.runId]: run_id,
      [AttributeName.questionId]: await_id,
      ...(name !== null && { [AttributeName.questionName]: name }),
      [AttributeName.questionKind]: kind,
      ...(this.#content && { [AttributeName.question]: parts.map(({ content = "" }) => content).join("") }),
    };
  }
}

/** The key alone: a context may live longer than what is told of the run. */
function keyOf({ tenant, run_id }: RunKey): RunKey {
  return { tenant, run_id };
}

function attributesOf({ tenant, run_id, agent_name, version, session_id, parent_run_id }: CreateInfo): Attributes {
  return {
    [AttributeName.agentName]: agent_name,
    ...(version !== null && { [AttributeName.agentVersion]: version }),
    [AttributeName.conversationId]: session_id,
    [AttributeName.runId]: run_id,
    ...(parent_run_id !== null && { [AttributeName.parentRunId]: parent_run_id }),
    ...(tenant !== "" && { [AttributeName.tenant]: tenant }),
  };
}

function attributesOfStep({ run_id, agent_name, key, attempt }: StepInfo): Attributes {
  return {
    [AttributeName.agentName]: agent_name,
    [AttributeName.runId]: run_id,
    [AttributeName.stepKey]: key,
    [AttributeName.stepAttempt]: attempt,
  };
}

/** With what the runtime stops what has failed: it has used up its time or its budget. */
const usedUp: ReadonlySet<string> = new Set(["run_timeout", "await_timeout", "step_timeout", "budget_exceeded"]);

/** What is stopped because it is cancelled, or because its process leaves it, is no error of the span. */
function fail(span: Span, error: unknown, signal: AbortSignal): void {
  span.setAttribute(AttributeName.errorType, typeOf(error));
  if (signal.aborted && !usedUp.has(typeOf(signal.reason))) return;
  const message = error instanceof Error ? error.message : String(error);
  span.recordException(error instanceof Error ? error : message);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const { code } = error as { readonly code?: unknown };
  return typeof code === "string" ? code : error.name;
}

/** Names of steps hold ids, and the names of spans are few. */
function firstWord(name: string): string {
  return name.split(" ", 1)[0] ?? name;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** A message as the GenAI conventions write it. */
function inputMessage({ role, parts }: Message): object {
  return { role: role === "user" ? "user" : "assistant", parts: parts.map(inputPart) };
}

function inputPart({ content_type, content, content_url }: MessagePart): object {
  if (content_url !== undefined) return { type: "uri", mime_type: content_type, uri: content_url };
  if (content_type.startsWith("text/")) return { type: "text", content };
  return { type: "blob", mime_type: content_type, content };
}

/** A span as the header of the W3C names it. */
function traceParentOf({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}

function spanContextIn(traceparent = ""): SpanContext | undefined {
  const [version, traceId = "", spanId = "", flags = ""] = traceparent.split("-");
  const found = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
  return version === "00" && isSpanContextValid(found) ? found : undefined;
}
