import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Run } from "../protocol/run.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { EventStream } from "../runtime/log/event-stream.ts";
import type { CreateRunOptions, CreateRunRequest, ResumeOptions, ResumeRequest } from "../runtime/runs/requests.ts";
import type { About, Caller } from "./caller.ts";
import { checkMayWrite, mayNotAnswer } from "./caller.ts";
import { WireError } from "./errors.ts";
import { markRefused } from "./refusals.ts";

/*
 * What a client says on its way to an agent. Every face creates and answers runs through this file: a message of a client
 * is its user's, and what it says about tools is no more than a claim.
 */

/** The field in which the first part of a message keeps the id that a page gave the message. */
export const MESSAGE_ID = "chat_message_id";

/** The field in which a part keeps the id of the tool call that it belongs to. */
export const CALL_ID = "tool_call_id";

/** Who speaks: the scope of the client, the roles that its messages may have, and the host to ask about its answers. */
export type Speaker = Pick<Caller, "speaksAs" | "isReader" | "tenant" | "principal"> & {
  readonly scope: Scope;
  readonly ask: ((about: About) => Promise<Pick<Caller, "mayAnswer">>) | undefined;
};

/** Creates a run for a client, as {@link Scope.createRun} does. Refuses a message in a role that the client may not have. */
export function createRunFor(
  speaker: Speaker,
  request: CreateRunRequest & { readonly mode: "async" },
  options: CreateRunOptions,
): Promise<Run>;
export function createRunFor(
  speaker: Speaker,
  request: CreateRunRequest,
  options: CreateRunOptions,
): Promise<Run> | EventStream;
export function createRunFor(
  speaker: Speaker,
  request: CreateRunRequest,
  options: CreateRunOptions,
): Promise<Run> | EventStream {
  checkMayWrite(speaker);
  const input = spokenBy(speaker, request.input, "input") as RunInput;
  return speaker.scope.createRun({ ...request, input }, options) as Promise<Run> | EventStream;
}

/**
 * Answers a run for a client, as {@link Scope.resume} does, once the host has allowed an answer to the question. Refuses a
 * message as {@link createRunFor} does.
 */
export function resumeFor(
  speaker: Speaker,
  request: ResumeRequest & { readonly mode: "async" },
  options?: ResumeOptions,
): Promise<Run>;
export function resumeFor(
  speaker: Speaker,
  request: ResumeRequest,
  options?: ResumeOptions,
): Promise<Run> | EventStream;
export function resumeFor(
  speaker: Speaker,
  request: ResumeRequest,
  options?: ResumeOptions,
): Promise<Run> | EventStream {
  const { await_resume } = request;
  const answer = await_resume === undefined ? undefined : answerBy(speaker, await_resume);
  const asking = speaker.ask === undefined ? options : { ...options, admit: admitting(speaker, speaker.ask) };
  return speaker.scope.resume({ ...request, await_resume: answer }, asking) as Promise<Run> | EventStream;
}

function admitting(client: Speaker, ask: NonNullable<Speaker["ask"]>): ResumeOptions["admit"] {
  return async (question) => {
    const { run_id, agent_name, session_id } = question;
    const allowed = await ask({ action: "answer", run_id, agent_name, session_id, question });
    if (!allowed.mayAnswer(question)) throw mayNotAnswer(client);
  };
}

/** An answer that is no message is a value, which the schema of the question validates. */
function answerBy(speaker: Speaker, answer: object): object {
  if (!("message" in answer)) return answer;
  const type = "type" in answer ? answer.type : undefined;
  if (type !== "message" && type !== undefined && type !== null) return answer;
  return { ...answer, message: spokenBy(speaker, answer.message, "await_resume.message") };
}

/** Items of an input, or a message. They have been read, or are JSON that the runtime is going to read. */
function spokenBy(speaker: Speaker, input: unknown, path: string): unknown {
  if (Array.isArray(input)) return changed(input, (item, index) => spokenBy(speaker, item, `${path}.${index}`));
  if (!isJsonObject(input)) return input;
  if (!hasParts(input)) return asUserPart(input);
  const { role = null } = input;
  if (role === null || role === "user") return asUser(input);
  if (typeof role !== "string" || speaker.speaksAs(role)) return input;
  const message = `${path}.role: expected user, received ${role}.`;
  throw markRefused(new WireError(403, "role_not_allowed", message), { client: speaker });
}

function hasParts(value: JsonObject): value is JsonObject & { readonly parts: readonly JsonValue[] } {
  return Array.isArray(value["parts"]);
}

/** A message of a user without what only agents say: the use of tools, and thoughts. */
export function asUser<Said extends { readonly parts: readonly unknown[] }>(message: Said): Said {
  const parts = changed(message.parts, asUserPart);
  return parts === message.parts ? message : { ...message, parts };
}

/** Undefined: nothing is left of the part. */
function asUserPart(part: unknown): unknown {
  if (!isJsonObject(part) || !isJsonObject(part["metadata"]) || part["metadata"]["kind"] !== "trajectory") return part;
  const { metadata: _, ...rest } = part;
  return "content" in rest || "content_url" in rest ? rest : undefined;
}

/** The items, each as it is changed to, without those that are changed to nothing. Most lists stay as they are. */
function changed(items: readonly unknown[], change: (item: unknown, index: number) => unknown): readonly unknown[] {
  const next = items.map(change);
  return next.every((item, index) => item === items[index]) ? items : next.filter((item) => item !== undefined);
}
