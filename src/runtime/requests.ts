import type { StoredSession } from "../core/ports.ts";
import { sessionIdSchema } from "../protocol/identifier.ts";
import type { JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Message, MessageInput } from "../protocol/message.ts";
import type { AwaitResume, RunMode, RunStatus } from "../protocol/run.ts";
import { awaitResumeSchema, runModeSchema } from "../protocol/run.ts";
import { badArgument, checkAmount, checkKeys, checkObject, checkText, read } from "./check.ts";
import type { RunInput } from "./input.ts";
import { readMessage } from "./input.ts";
import { recordedValue } from "./recorded.ts";

/** What a run is made of. Null counts as absent. */
export interface CreateRunRequest {
  readonly agent_name: string;
  readonly input: RunInput;
  /** A UUID. A session that does not exist is made; without one the run has a session of its own. */
  readonly session_id?: string | null | undefined;
  /** `sync`: the run when it rests. `async`: the run as soon as it is accepted. `stream`: its events until it rests. Default: `sync`. */
  readonly mode?: RunMode | null | undefined;
}

/** How a run is created. */
export interface CreateRunOptions {
  /** The same key with the same request gives the same run. */
  readonly idempotencyKey?: string | undefined;
  /** Stops the waiting, not the run. */
  readonly signal?: AbortSignal | undefined;
  /** How long this run may be active, in milliseconds. Default: as its agent is registered. */
  readonly timeoutMs?: number | undefined;
  /** Replaces what the session holds before the run joins it, as when a caller brings a session along from elsewhere. */
  readonly session?: { readonly history: readonly MessageInput[]; readonly state?: JsonValue | undefined } | undefined;
}

/** An answer to what a run asks. Null counts as absent. */
export interface ResumeRequest {
  readonly run_id: string;
  /** A message (`{ type: "message", message }`), or any other object as the answer itself. */
  readonly await_resume: AwaitResume | { readonly type?: "message"; readonly message: RunInput & object };
  /** Which question it answers. Default: the one that is shown. */
  readonly await_id?: string | null | undefined;
  /** As with `createRun`. */
  readonly mode?: RunMode | null | undefined;
}

/** How a run is resumed. */
export interface ResumeOptions {
  /** The same key with the same answer gives the same result. */
  readonly idempotencyKey?: string | undefined;
  /** Stops the waiting, not the run. */
  readonly signal?: AbortSignal | undefined;
}

/** Which runs to list. */
export interface ListRunsQuery {
  readonly agent_name?: string | undefined;
  readonly session_id?: string | undefined;
  readonly status?: RunStatus | undefined;
  /**
   * Whether to leave out runs that another run has started: what they ask, that one asks. Default: true with the status `awaiting`, so
   * that each question is listed once; false otherwise.
   */
  readonly roots?: boolean | undefined;
  /** Default: 100. */
  readonly limit?: number | undefined;
  /** Default: 0. */
  readonly offset?: number | undefined;
}

/** Which events to read. */
export interface EventsOptions {
  /** The number of the last event that is not wanted. Default: 0, all are wanted. */
  readonly after?: number | undefined;
  /** `now`: ends with what has been said so far. `rest`: ends when the run rests and all has been said. `end`: ends when the run has ended. Default: `rest`. */
  readonly until?: "now" | "rest" | "end" | undefined;
}

/** What is known of a run beside its record, which holds what the protocol has words for. */
export interface RunDetails {
  readonly run_id: string;
  /** The run that has started this one; null for a root. */
  readonly parent_run_id: string | null;
  /** The run at the top of its tree: itself, for a root. */
  readonly root_run_id: string;
}

/** A session (ACP 1.0), its messages in it. */
export interface Session {
  readonly id: string;
  readonly history: readonly Message[];
  /** Null until it is set. */
  readonly state: JsonValue;
}

/** What a call is made with that is given no options. */
export const noOptions: CreateRunOptions = {};

const canonicalId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Reads the id of a run or a session. */
export function readId(name: string, value: unknown): string {
  if (typeof value !== "string") throw badArgument(name, "a UUID", value);
  return canonicalId.test(value) ? value : read(name, sessionIdSchema, value);
}

/** Reads a session that a caller brings along. */
export function readSession(session: CreateRunOptions["session"]): StoredSession | undefined {
  if (session === undefined) return undefined;
  checkObject("options.session", session);
  const { history, state } = session;
  if (!Array.isArray(history)) throw badArgument("options.session.history", "a list of messages", history);
  const messages = history.map((message, index) => readMessage(`options.session.history.${index}`, message));
  return { history: messages, state: recordedValue("options.session.state", state) ?? null };
}

/** Reads the mode of a request. */
export function readMode(request: { readonly mode?: unknown }): RunMode {
  const mode = request?.mode;
  if (mode === undefined || mode === null) return "sync";
  return mode === "sync" || mode === "async" || mode === "stream" ? mode : read("mode", runModeSchema, mode);
}

/** Reads which question is meant; null: the one that is shown. */
export function readAwaitId(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  checkText("await_id", value);
  return value;
}

/** Reads an answer. A message whose parts are plain is recognised without the schema. */
export function readAnswer(value: unknown): AwaitResume {
  if (!isJsonObject(value)) throw badArgument("await_resume", "a message or an object", value);
  const { type, message } = value;
  if (type === "message" && isJsonObject(message))
    return { type, message: readMessage("await_resume.message", message) };
  return read("await_resume", awaitResumeSchema, recordedValue("await_resume", value));
}

/** Throws for options of a call that cannot be. */
export function checkOptions(
  options: { readonly idempotencyKey?: unknown; readonly signal?: unknown; readonly timeoutMs?: unknown },
  names: readonly string[],
): void {
  checkObject("options", options);
  checkKeys("options", options, names);
  const { idempotencyKey, signal, timeoutMs } = options;
  if (idempotencyKey !== undefined) checkText("options.idempotencyKey", idempotencyKey);
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw badArgument("options.signal", "an AbortSignal", signal);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
}
