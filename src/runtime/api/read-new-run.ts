import type { Growing } from "../../core/log.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { badArgument, checkObject, checkText, readId, readTime } from "../agent/check.ts";
import { readInput } from "../agent/input.ts";
import { readLabels } from "../agent/labels.ts";
import type { NewRun } from "../agent/new-run.ts";
import { checkPriority } from "../agent/queueing.ts";
import { recordedValue } from "../agent/recorded.ts";
import { readBudget } from "../agent/usage.ts";
import { namedUuid } from "../agent/uuid.ts";
import type { CreateRunOptions, CreateRunRequest } from "../runs/requests.ts";
import { checkCallersKey, checkOptions, noOptions, readSession } from "../runs/requests.ts";

const known: readonly (keyof CreateRunOptions)[] = [
  "idempotencyKey",
  "signal",
  "timeoutMs",
  "budget",
  "startAt",
  "session",
  "metadata",
  "labels",
  "priority",
  "sessionKey",
];

/** Reads the request of a new run. Throws `invalid_argument`. */
export function readNewRun(
  request: CreateRunRequest,
  options: CreateRunOptions,
  tenant: string,
  principal: JsonValue,
  onlyOf: string | undefined,
): NewRun {
  checkObject("request", request);
  checkText("agent_name", request.agent_name);
  if (options !== noOptions) checkOptions(options, known);
  checkCallersKey(options.idempotencyKey);
  const { agent_name, session_id } = request;
  const { sessionKey } = options;
  const created: Growing<NewRun> = {
    tenant,
    principal,
    agent_name,
    input: readInput(request.input),
    session_id: session_id === undefined || session_id === null ? undefined : readId("session_id", session_id),
    idempotencyKey: options.idempotencyKey,
    timeoutMs: options.timeoutMs,
    totalTokens: readBudget("options.budget", options.budget),
    startAt: options.startAt === undefined ? undefined : readTime("options.startAt", options.startAt),
    session: readSession(options.session),
    metadata: options.metadata === undefined ? null : (recordedValue("options.metadata", options.metadata) ?? null),
    labels: readLabels("options.labels", options.labels),
  };
  if (onlyOf !== undefined) created.onlyOf = onlyOf;
  if (options.priority !== undefined) {
    checkPriority("options.priority", options.priority);
    created.priority = options.priority;
  }
  if (sessionKey === undefined) return created;
  if (created.session_id !== undefined)
    throw badArgument("options.sessionKey", "none, since the request has a session_id", sessionKey);
  return { ...created, session_id: readSessionKey(tenant, "options.sessionKey", sessionKey) };
}

/** The namespace of the UUIDs of sessions that are named by a key. It must never change. */
const SESSIONS = "ad7f57ac-80dc-41ab-9f02-a71c1b41f325";

/** The longest key of a session, in UTF-16 units. */
const MAX_KEY_LENGTH = 255;

/** A constant: the build turns the literal into a call of `RegExp`. */
const loneSurrogate = /\p{Surrogate}/u;

/**
 * The id of the session that a key names. The tenant's length keeps tenant "a" with key "bc" apart from tenant "ab" with
 * key "c". Throws `invalid_argument` for an invalid key.
 */
export function readSessionKey(tenant: string, name: string, key: unknown): string {
  if (typeof key !== "string" || key === "" || key.length > MAX_KEY_LENGTH)
    throw badArgument(name, `a string of 1 to ${MAX_KEY_LENGTH} characters`, key);
  // UTF-8, of which the UUID is made, has no lone surrogates: two keys would be the same session.
  if (loneSurrogate.test(key)) throw badArgument(name, "a string without lone surrogates", key);
  return namedUuid(SESSIONS, `${tenant.length}:${tenant}${key}`);
}
