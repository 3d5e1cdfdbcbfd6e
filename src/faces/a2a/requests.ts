import { unfitAt } from "../../http/errors.ts";
import { flag, wholeNumber } from "../../http/service.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import { checkMetadata, checkParts, messageIdIn, withId } from "../chat/parts.ts";
import type { Reply } from "../chat/questions.ts";
import { declined, wordsOf } from "../chat/questions.ts";
import { DECLINING } from "./card.ts";
import { statuses } from "./objects.ts";
import type { A2aSettings } from "./options.ts";
import { readPart, textAt } from "./parts.ts";
import type { TaskView } from "./task-fold.ts";

/** What a client sends. */
export interface SendRequest extends TaskView {
  readonly messageId: string;
  /** The message, whose first part has its id. Its role is `agent` for a client that speaks for one. */
  readonly said: Message & { readonly role: "user" | "agent" };
  /** What the message replies to a question: an object that is the answer by itself, the message, or that it is declined. */
  readonly reply: Reply;
  /** Empty if the client names none. */
  readonly contextId: string;
  /** Empty if the client begins a task. */
  readonly taskId: string;
  readonly returnImmediately: boolean;
  readonly wantsPush: boolean;
  /** What the agent is handed, and nothing here reads. */
  readonly handed: JsonObject;
}

/** Reads what a client sends. Refuses anything else, with what was wrong and where. */
export function readSend(params: JsonObject, limits: A2aSettings["limits"]): SendRequest {
  const { message, configuration, metadata } = params;
  if (!isJsonObject(message)) throw unfitAt(["message"], "expected an object");
  const { messageId, role, parts } = message;
  if (role !== "ROLE_USER" && role !== "ROLE_AGENT") throw unfitAt(["message", "role"], "expected ROLE_USER");
  if (!Array.isArray(parts) || parts.length === 0) throw unfitAt(["message", "parts"], "expected parts");
  checkParts([{ parts }], limits.maxParts);
  const read = parts.map((part: unknown, index) => readPart(part, ["message", "parts", index]));
  const data = parts.find((part: unknown) => isJsonObject(part) && isJsonObject(part["data"])) as
    | JsonObject
    | undefined;
  const config = configuration ?? {};
  if (!isJsonObject(config)) throw unfitAt(["configuration"], "expected an object");
  const { metadata: messageMetadata, extensions, referenceTaskIds } = message;
  const { acceptedOutputModes } = config;
  const handed = given({ metadata, messageMetadata, extensions, referenceTaskIds, acceptedOutputModes });
  checkMetadata(["metadata", "message", "configuration"], handed, limits);
  const id = messageIdIn(messageId || undefined, ["message", "messageId"]);
  const said = {
    ...withId(read as [MessagePart, ...MessagePart[]], id),
    role: role === "ROLE_USER" ? "user" : "agent",
  } as const;
  const isDeclined = isJsonObject(messageMetadata) && messageMetadata[DECLINING] === true;
  const answer = (data?.["data"] as JsonObject | undefined) ?? { type: "message", message: said };
  return {
    ...{ messageId: id, said, handed },
    reply: isDeclined ? declined(wordsOf(said)) : { await_resume: answer },
    contextId: text(message, "contextId", "message"),
    taskId: text(message, "taskId", "message"),
    historyLength: historyLengthIn(config, "configuration"),
    returnImmediately: flag(config["returnImmediately"], ["configuration", "returnImmediately"]) ?? false,
    wantsPush: (config["taskPushNotificationConfig"] ?? null) !== null,
  };
}

/** The fields that have a value. */
function given(fields: Readonly<Record<string, JsonValue | undefined>>): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => (value ?? null) !== null)) as JsonObject;
}

/** Which tasks a client lists. */
export interface ListRequest extends TaskView {
  /** Empty: of all. */
  readonly contextId: string;
  /** Undefined: in any state. */
  readonly state: keyof typeof statuses | undefined;
  /** Only tasks that changed then or later, in milliseconds since 1970. */
  readonly since: number;
  readonly pageSize: number;
  /** Where the page begins. Undefined: at the task that has changed last. */
  readonly after: Place | undefined;
}

/** A place in a list: a task, and when it had changed. */
export interface Place {
  readonly changed: number;
  readonly run_id: string;
}

/** Reads which tasks a client lists. */
export function readList(params: JsonObject): ListRequest {
  const state = text(params, "status");
  if (state !== "" && !Object.hasOwn(statuses, state)) throw unfitAt(["status"], "expected a state");
  const since = text(params, "statusTimestampAfter");
  const from = since === "" ? 0 : Date.parse(since);
  if (Number.isNaN(from)) throw unfitAt(["statusTimestampAfter"], "expected a time");
  return {
    contextId: text(params, "contextId"),
    state: state === "" ? undefined : (state as ListRequest["state"]),
    since: from,
    pageSize: wholeNumber(params["pageSize"], ["pageSize"], 1, 100) ?? 50,
    after: placeIn(text(params, "pageToken")),
    historyLength: historyLengthIn(params),
    withoutArtifacts: !flag(params["includeArtifacts"], ["includeArtifacts"]),
  };
}

function placeIn(token: string): Place | undefined {
  if (token === "") return undefined;
  const [, changed, run_id] = /^(\d{1,15}|Infinity)\.([0-9a-f-]{36})$/.exec(token) ?? [];
  if (run_id === undefined) throw unfitAt(["pageToken"], "expected a token");
  return { changed: Number(changed), run_id };
}

/** A place as a token. */
export function tokenOf({ changed, run_id }: Place): string {
  return `${changed}.${run_id}`;
}

/** When a task has changed last. A task at work may change at any time, and counts as changed last. */
export function changeOf({ status, created_at, finished_at, await_request }: Omit<Run, "output">): number {
  if (status === "in-progress" || status === "cancelling") return Number.POSITIVE_INFINITY;
  return Date.parse(finished_at ?? await_request?.message.created_at ?? created_at);
}

/** A text of a body or a query; empty if the client gives none. */
function text(from: JsonObject, name: string, ...path: string[]): string {
  return textAt(from[name], [...path, name]);
}

/** How many of the last messages a client wants. Undefined: all. */
export function historyLengthIn({ historyLength }: JsonObject, ...path: string[]): number | undefined {
  return wholeNumber(historyLength, [...path, "historyLength"], 0, Number.MAX_SAFE_INTEGER);
}
