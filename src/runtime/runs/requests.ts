import type { ForkOrigin, Labels, ReceivedEntry } from "../../core/log.ts";
import type { Mismatch, StoredSession } from "../../core/ports.ts";
import type { Replied } from "../../core/state.ts";
import { isOwnKey } from "../../core/tenants.ts";
import type { OpenQuestionDetails, Usage } from "../../protocol/extensions.ts";
import type { JsonInput, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message, MessageInput } from "../../protocol/message.ts";
import type { AwaitResume, RunMode, RunStatus } from "../../protocol/run.ts";
import { awaitResumeSchema, runModeSchema } from "../../protocol/run.ts";
import type { AskedQuestion } from "../agent/answer.ts";
import {
  badArgument,
  checkAmount,
  checkKey,
  checkKeys,
  checkObject,
  checkText,
  maxLengths,
  read,
  readId,
} from "../agent/check.ts";
import type { RunInput } from "../agent/input.ts";
import { readMessage } from "../agent/input.ts";
import { readLabels } from "../agent/labels.ts";
import { recordedValue } from "../agent/recorded.ts";
import type { BudgetOptions } from "../agent/usage.ts";

/** The name of a registered agent. An editor completes those that are known by their types. */
export type AgentName<Names extends string> = Names | (string & Record<never, never>);

/** The request of a new run. Null means the same as absent. */
export interface CreateRunRequest<Name extends string = string> {
  /** The name of a registered agent. */
  readonly agent_name: Name;
  /**
   * A text, a part, a message, or a list of them. Any other plain object is a value, which an agent with an `input` schema
   * takes as it is: see {@link RunInput}.
   */
  readonly input: RunInput;
  /** A UUID. A session that does not exist is created. Default: the run has a session of its own. */
  readonly session_id?: string | null | undefined;
  /**
   * What the call gives. `sync`: the run when it rests. `async`: the run when it is accepted. `stream`: the events
   * until it rests. Default: `sync`.
   */
  readonly mode?: RunMode | null | undefined;
}

/** The options of `createRun`. */
export interface CreateRunOptions {
  /**
   * A repeated request with the same key gives the same run. Another request with the key throws
   * `idempotency_conflict`. Default: none.
   */
  readonly idempotencyKey?: string | undefined;
  /** Ends the caller's wait: the call rejects with the signal's reason. It does not stop the run. Default: none. */
  readonly signal?: AbortSignal | undefined;
  /** How long this run may be active, in milliseconds. `Infinity` lifts the agent's limit. Default: the agent's `timeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** How many tokens this run and its sub-runs may use. Default: the agent's `budget`. */
  readonly budget?: BudgetOptions | undefined;
  /**
   * When the agent begins: a `Date`, milliseconds since 1970, or a text in ISO 8601. Until then the run is `created`, takes no slot, and does
   * not keep the process open. On a durable store it needs no process until then. Default: at once.
   */
  readonly startAt?: Date | number | string | undefined;
  /**
   * Replaces the history and state of the session before the run joins it, for example with a session from another
   * server. Default: the session stays as it is.
   */
  readonly session?: { readonly history: readonly MessageInput[]; readonly state?: JsonValue | undefined } | undefined;
  /**
   * Any JSON value, which the run keeps. The agent gets it as `context.metadata`. Clients see it only in the details of
   * the run, which are not served over HTTP unless `extensions` is set. Default: null.
   */
  readonly metadata?: JsonInput | undefined;
  /**
   * At most 8 names with values by which the run can be found, each of 1 to 64 characters. They never change. The agent
   * gets them as `context.labels`. Clients see them where they see the metadata. Default: none.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("refund", (_input, { labels }) => `Refunded ${labels["order"]}.`);
   * const run = await runtime.createRun({ agent_name: "refund", input: "40 €" }, { labels: { order: "O-17" } });
   * console.log(run.output[0]?.parts[0]?.content); // → Refunded O-17.
   * ```
   */
  readonly labels?: Labels | undefined;
  /** Where it waits, runs of a higher priority go first: a whole number from -10 to 10. Default: the agent's `priority`. */
  readonly priority?: number | undefined;
  /**
   * Names the session by any text of 1 to 255 characters instead of by a UUID, for example by the id of a conversation
   * elsewhere. The same key of the same tenant is always the same session. Not together with `session_id`. Default:
   * none.
   */
  readonly sessionKey?: string | undefined;
}

/** An answer to a run's question. Null means the same as absent. */
export interface ResumeRequest {
  readonly run_id: string;
  /** A message (`{ type: "message", message }`), or any other object as the answer itself. */
  readonly await_resume?:
    | AwaitResume
    | { readonly type?: "message"; readonly message: RunInput & object }
    | object
    | undefined;
  /**
   * Declines to answer, in place of `await_resume`: `ask` rejects with `answer_declined`, also if it has a default. A
   * run that does not catch it fails with that reason.
   */
  readonly decline?: { readonly reason?: string | null | undefined } | null | undefined;
  /**
   * The id of the question. Default: the first open question. A repeated answer without an id and without an idempotency
   * key may meet the next question.
   */
  readonly await_id?: string | null | undefined;
  /** As in {@link CreateRunRequest}. Default: `sync`. */
  readonly mode?: RunMode | null | undefined;
}

/** The options of `resume`. */
export interface ResumeOptions {
  /**
   * A repeated answer with the same key gives the same result. Another answer with the key throws
   * `idempotency_conflict`. Default: none.
   */
  readonly idempotencyKey?: string | undefined;
  /** Ends the caller's wait: the call rejects with the signal's reason. It does not stop the run. Default: none. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called with the open question before it gets the answer, for rules about who may answer what. The call rejects with
   * what it throws, and the question stays open. It may be called again for one call, and is not called for a repeated
   * answer. Default: every answer is given.
   */
  readonly admit?: ((question: AskedQuestion) => void | Promise<void>) | undefined;
}

/** The options of `cancel`. */
export interface CancelOptions {
  /** Whether to resolve when the run has ended, and not when the store has the cancel. Default: false. */
  readonly wait?: boolean | undefined;
  /** Ends the caller's wait: the call rejects with the signal's reason. The run is cancelled all the same. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** A message to a run. */
export interface SendRequest {
  /** The run's id, or the labels of the one run that has not ended. */
  readonly to:
    | string
    | {
        readonly labels: Labels;
        /** Only a run of this agent. Default: of any. */
        readonly agent_name?: string | undefined;
      };
  /** The name under which the agent receives it. */
  readonly name: string;
  /** The message: any JSON value. */
  readonly data: unknown;
}

/** The options of `send`. */
export interface SendOptions {
  /** A repeated message with the same key arrives once. Default: none. */
  readonly idempotencyKey?: string | undefined;
}

/** Which runs to list. */
export interface ListRunsQuery {
  /** Only runs of this agent. Default: of all. */
  readonly agent_name?: string | undefined;
  /** Only runs of this session. Default: of all. */
  readonly session_id?: string | undefined;
  /** Only runs with this status, or with one of these. An empty list: no runs. Default: with any. */
  readonly status?: RunStatus | readonly RunStatus[] | undefined;
  /** Only runs that have all of these labels, each with this value. Default: with any, and without. */
  readonly labels?: Labels | undefined;
  /** Only the direct sub-runs of the run with this id. Default: of any, and without a parent. */
  readonly parent?: string | undefined;
  /**
   * Whether to leave out sub-runs. A parent passes on the questions of its sub-runs. Default: true with the status
   * `awaiting` alone and without `parent`, so that each question is listed once; otherwise false.
   */
  readonly roots?: boolean | undefined;
  /**
   * The id of the last run of the page before: only runs after it are listed, which were created earlier. Default: from
   * the newest one on.
   */
  readonly after?: string | undefined;
  /**
   * Only runs that were created at this time or later: a `Date`, milliseconds since 1970, or a text in ISO 8601, as
   * records have it in `created_at`. Default: from any time on.
   */
  readonly createdAfter?: Date | number | string | undefined;
  /** Only runs that were created before this time. Default: up to now. */
  readonly createdBefore?: Date | number | string | undefined;
  /** Whether to give whole records, with their output. Default: false. */
  readonly output?: boolean | undefined;
  /** How many runs to list at most. Default: 100. */
  readonly limit?: number | undefined;
  /** How many runs to skip. Default: 0. */
  readonly offset?: number | undefined;
}

/** Which events to read. */
export interface EventsOptions {
  /** The id of the last event to skip. Default: 0, which skips none. */
  readonly after?: number | undefined;
  /**
   * When the events end. `now`: after the events that are committed. `rest`: after the last event of a run that rests.
   * `end`: when the run has ended. Default: `rest`.
   */
  readonly until?: "now" | "rest" | "end" | undefined;
  /**
   * Whether also to give what the protocol has no events for: steps, sleeps, messages, sub-runs, all questions, and
   * usage. See {@link DetailEvent}. Default: false.
   */
  readonly detail?: boolean | undefined;
}

/** The facts about a run that the protocol's record has no field for. */
export interface RunDetails {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session_id: string;
  /** The version with which the agent was registered when the run was created; null for none. */
  readonly version: string | null;
  /** Whether the run's agent is durable. */
  readonly durable: boolean;
  readonly status: RunStatus;
  /** When it was accepted, as a time in ISO 8601, like the other times here. */
  readonly created_at: string;
  /** The `startAt` that the run's creator gave it; null for none. */
  readonly start_at: string | null;
  /** When its agent began; null before. */
  readonly started_at: string | null;
  /** When it ended; null before. */
  readonly finished_at: string | null;
  /** The `metadata` that the run's creator gave it; null for none. */
  readonly metadata: JsonValue;
  /** The `labels` that the run's creator gave it; empty for none. */
  readonly labels: Labels;
  /** The run that has started this one; null for a root. */
  readonly parent_run_id: string | null;
  /** The run at the top of its tree: itself, for a root. */
  readonly root_run_id: string;
  /**
   * The run that this one is a fork of, how many entries of that run's log it begins with, and the principal who has made
   * the fork, which is null if the application named none; null for no fork.
   */
  readonly origin: Required<ForkOrigin> | null;
  /** The principal who has asked to cancel it; null if the application named none, and for a run that was not cancelled. */
  readonly cancelled_by: JsonValue;
  /** The number of its generation: 1, until its agent continues as new. */
  readonly generation: number;
  /** The ids of the runs that this one has started, in the order in which they were created. */
  readonly children: readonly string[];
  /** What its agent has reported so far, with what its sub-runs have used; null for nothing. */
  readonly usage: Usage | null;
  /**
   * How many tokens its generation may use with the runs below it, and how many of these are left, where a sub-run counts when it has
   * ended; null without a budget. A sub-run has at most what was left above it when it was created.
   */
  readonly budget: { readonly total_tokens: number; readonly remaining_tokens: number } | null;
  /**
   * The id of its last event. These details show the moment after that event:
   * `events(run_id, { after: last_event_id })` gives all that follows, and nothing else.
   */
  readonly last_event_id: number;
  /** All open questions, in the order in which they were asked. The first one is the run's await request. */
  readonly await_requests: readonly OpenQuestionDetails[];
  /** The keys of what the run waits for: its open questions, sleeps and receives. */
  readonly waits_for: readonly string[];
  /** Where the registered code and the log of a durable run disagree; null for a run that is not blocked. */
  readonly blocked: Mismatch | null;
}

/** A session (ACP 1.0) with its messages. */
export interface Session {
  readonly id: string;
  readonly history: readonly Message[];
  /** Null until it is set. */
  readonly state: JsonValue;
}

/** The options of a call without options. */
export const noOptions: CreateRunOptions = {};

/** Reads the session that a caller provides. */
export function readSession(session: CreateRunOptions["session"]): StoredSession | undefined {
  if (session === undefined) return undefined;
  checkObject("options.session", session);
  const { history, state } = session;
  if (!Array.isArray(history)) throw badArgument("options.session.history", "a list of messages", history);
  const messages = history.map((message, index) => readMessage(`options.session.history.${index}`, message));
  return { history: messages, state: recordedValue("options.session.state", state) ?? null };
}

/** Reads a message that is sent. */
export function readMessageToSend(request: SendRequest, options: SendOptions, principal: JsonValue): OutgoingMessage {
  checkObject("request", request);
  checkKeys("request", request, ["to", "name", "data"]);
  checkOptions(options, ["idempotencyKey"]);
  const { to, name, data } = request;
  checkText("name", name);
  const copy = recordedValue("data", data);
  if (copy === undefined) throw badArgument("data", "a JSON value", data);
  const idempotency_key = options.idempotencyKey;
  const by = principal === null ? undefined : { by: principal };
  if (typeof to === "string") return { to: readId("to", to), name, data: copy, idempotency_key, ...by };
  checkObject("to", to);
  checkKeys("to", to, ["labels", "agent_name"]);
  const labels = readLabels("to.labels", to.labels);
  if (labels === undefined) throw badArgument("to.labels", 'at least one label, such as { order: "O-17" }', to.labels);
  if (to.agent_name !== undefined) checkText("to.agent_name", to.agent_name);
  return { to: { labels, agent_name: to.agent_name }, name, data: copy, idempotency_key, ...by };
}

/** Reads the mode of a request. */
export function readMode(request: { readonly mode?: unknown }): RunMode {
  const mode = request?.mode;
  if (mode === undefined || mode === null) return "sync";
  return mode === "sync" || mode === "async" || mode === "stream" ? mode : read("mode", runModeSchema, mode);
}

/** Reads the id of a question. Null: the question that the run shows. */
export function readAwaitId(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  checkText("await_id", value);
  return value;
}

/** Reads a reply. A message with plain parts is read without the schema, which is slower. */
export function readReply({ await_resume, decline }: ResumeRequest): Replied {
  if (decline === undefined || decline === null) return { answer: readAnswer(await_resume) };
  if (await_resume !== undefined) throw badArgument("await_resume", "no answer together with decline", await_resume);
  checkObject("decline", decline);
  checkKeys("decline", decline, ["reason"]);
  const { reason } = decline;
  if (reason === undefined || reason === null) return { decline: {} };
  checkText("decline.reason", reason);
  return { decline: { reason } };
}

function readAnswer(value: unknown): AwaitResume {
  if (!isJsonObject(value)) throw badArgument("await_resume", "a message or an object", value);
  const { type, message } = value;
  if (type === "message" && isJsonObject(message))
    return { type, message: readMessage("await_resume.message", message) };
  return read("await_resume", awaitResumeSchema, recordedValue("await_resume", value));
}

/** Throws `invalid_argument` for unknown or invalid options of a call. */
export function checkOptions(
  options: { readonly idempotencyKey?: unknown; readonly signal?: unknown; readonly timeoutMs?: unknown },
  names: readonly string[],
): void {
  checkObject("options", options);
  checkKeys("options", options, names);
  const { idempotencyKey, signal, timeoutMs } = options;
  if (idempotencyKey !== undefined) checkKey("options.idempotencyKey", idempotencyKey, maxLengths.idempotencyKey);
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw badArgument("options.signal", "an AbortSignal", signal);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
}

/** Throws `invalid_argument` for an idempotency key that is reserved for what the runtime itself creates. */
export function checkCallersKey(key: string | undefined): void {
  if (key !== undefined && isOwnKey(key))
    throw badArgument("options.idempotencyKey", "a key that does not begin with cadenza:, which is reserved", key);
}

/** A message, and whom it is for. */
export interface OutgoingMessage extends Omit<ReceivedEntry, "type" | "at" | "idempotency_key" | "bytes"> {
  readonly to: SendRequest["to"];
  readonly idempotency_key: string | undefined;
}
