import type { ReplyCommand } from "../../core/commands.ts";
import type { Growing, QuestionKind } from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { Replied, RunState } from "../../core/state.ts";
import { createdEntry, openQuestion } from "../../core/state.ts";
import { userOf } from "../../core/user.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { jsonPart } from "../../protocol/message.ts";
import type { AwaitResume } from "../../protocol/run.ts";
import { isMessageResume } from "../../protocol/run.ts";
import { textPart, userMessage, validateMessages } from "./input.ts";
import type { SchemaHost, StandardSchema, Validate, Validated } from "./standard-schema.ts";

/** A reply to a question as a caller gives it. */
export interface Answer {
  /** Which question it is for; null for the first open one. */
  readonly await_id: string | null;
  readonly reply: Replied;
  readonly idempotency_key: string | null;
  /** The principal who replies; undefined if the application named none. */
  readonly by: JsonValue | undefined;
  /** In mode `async` the caller gets the run as it was when the answer was accepted. */
  readonly mode: "sync" | "async" | "stream";
  /** Throws unless the question may get the answer. Undefined: it may. */
  readonly admit?: ((question: AskedQuestion) => MaybePromise<void>) | undefined;
}

/** An open question of a run that is about to be answered. */
export interface AskedQuestion {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session_id: string;
  /** The id of the user who has created the run: its principal, or the `id` of that. Null: it names none. */
  readonly creator: string | null;
  readonly await_id: string;
  /** The name that the agent gave it; null for none. */
  readonly name: string | null;
  /** What is asked for. */
  readonly kind: QuestionKind;
}

/** The command with which a run decides on a reply. `offerId`: the offer through which it came, if it did. */
export function replyCommand(
  { await_id, reply, idempotency_key, by }: Omit<Answer, "mode" | "admit">,
  at: number,
  offerId?: string,
): ReplyCommand {
  const command: Growing<ReplyCommand> = { type: "reply", at, await_id, reply, idempotency_key };
  if (by !== undefined) command.by = by;
  if (offerId !== undefined) command.offer_id = offerId;
  return command;
}

/** Asks whether the open question may get an answer. Undefined: it may. */
export function admitAnswer(state: RunState, awaitId: string | null, { admit }: Answer): undefined | Promise<void> {
  const question = openQuestion(state, awaitId);
  if (admit === undefined || question === undefined) return undefined;
  const { agent_name, session_id, principal } = createdEntry(state);
  const { await_id, name = null, kind = "input" } = question.asked;
  const creator = userOf(principal) ?? null;
  const asked = { run_id: state.run_id, agent_name, session_id, creator, await_id, name, kind };
  try {
    const admitted = admit(asked);
    return isPromise(admitted) ? admitted.catch(notAdmitted) : undefined;
  } catch (error) {
    return notAdmitted(error);
  }
}

const refusals = new WeakSet<object>();

function notAdmitted(error: unknown): never {
  if (typeof error === "object" && error !== null) refusals.add(error);
  throw error;
}

/** Whether `admit` has thrown this error: nothing was decided about the answer. */
export function isNotAdmitted(error: unknown): boolean {
  return typeof error === "object" && error !== null && refusals.has(error);
}

/** Validates an answer by a schema. Without a schema any answer is valid. */
export function readAnswer(
  answer: AwaitResume,
  schema: StandardSchema | undefined,
  host: SchemaHost,
  validate: Validate,
): MaybePromise<Validated> {
  if (schema === undefined) return { value: isMessageResume(answer) ? answer.message : answer };
  return isMessageResume(answer)
    ? validateMessages(schema, [answer.message], host, validate)
    : validate(schema, [answer], host);
}

/** A JSON value as an answer. Only an object is one by itself; a text is a message of text. */
export function resumeOf(value: JsonValue): AwaitResume {
  if (isJsonObject(value)) return value;
  return { type: "message", message: userMessage([typeof value === "string" ? textPart(value) : jsonPart(value)]) };
}
