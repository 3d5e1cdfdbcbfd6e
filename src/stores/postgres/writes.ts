import type {
  Expected,
  RunHead,
  RunKey,
  RunPost,
  RunWrite,
  SessionChange,
  SessionKey,
  StoredSession,
} from "../../core/ports.ts";
import { userOf } from "../../core/user.ts";
import type { Message } from "../../protocol/message.ts";
import { toJson, toLines, toText, toTextOrNull } from "../stored-rows.ts";
import { toFeedText } from "./feed-text.ts";

/*
 * Writes as the function `write` of the schema reads them. What JSON cannot carry fails here, before it shares a
 * statement with other writes.
 */

/** A write as a JSON object. */
export type WriteJson = Readonly<Record<string, unknown>>;

/** A write, and the messages that it brings along if its session exists. */
export interface PreparedWrite {
  readonly json: WriteJson;
  readonly messages?: (() => readonly Message[]) | undefined;
}

export function createOf(key: RunKey, write: RunWrite, idempotencyKey: string | null): PreparedWrite {
  const [created] = write.entries;
  if (created?.type !== "created") throw new TypeError("The first entry of a run is `created`.");
  const labels = Object.entries(created.labels ?? {}).map(([name, value]) => [toText(name), toText(value)]);
  const creator = userOf(created.principal);
  const json = {
    kind: "create",
    ...keyOf(key),
    agent_name: toText(created.agent_name),
    version: markedText(created.version ?? null),
    session_id: toText(created.session_id),
    parent: toTextOrNull(created.parent?.run_id ?? null),
    idempotency_key: toTextOrNull(idempotencyKey),
    slot: markedText(write.slots?.[0]?.key ?? null),
    slot_max: write.slots?.[0] === undefined ? 0 : (write.slots[0].max ?? "Infinity"),
    position: write.entries.length,
    created_at: created.at,
    ...(created.durable !== true && { plain: true }),
    ...((write.priority ?? 0) !== 0 && { priority: write.priority }),
    ...limitsOf(write.slots),
    ...(write.gate !== undefined && { fair: `~${toText(write.gate)}` }),
    ...(creator !== undefined && { creator: toText(creator) }),
    ...(labels.length > 0 && { labels }),
  };
  return withChanges(json, write);
}

export function appendOf(key: RunKey, expected: Expected, write: RunWrite): PreparedWrite {
  const { wakes = 0 } = expected;
  const { takes = [] } = write;
  return withChanges({ kind: "append", ...keyOf(key), ...expectedOf(expected), wakes, takes }, write);
}

export function postOf(key: RunKey, post: RunPost): PreparedWrite {
  const { entries, status, unlessCancelling, unblocks, due, feed } = post;
  const json = {
    kind: "post",
    tells: true,
    ...keyOf(key),
    ...linesOf(entries),
    ...(status !== undefined && { status }),
    ...(unlessCancelling === true && { unless_cancelling: true }),
    ...(unblocks === true && { unblocks }),
    ...(due !== undefined && { due }),
    ...(feed !== undefined && { feed: feed.map(toFeedText) }),
  };
  return { json };
}

export function claimOf(key: RunKey, expected: Expected, head: RunHead): PreparedWrite {
  return { json: { kind: "claim", ...keyOf(key), ...expectedOf(expected), head: headOf(head) } };
}

/** Infinity is text in JSON, which PostgreSQL reads as a number. */
export function renewOf(owner: string, forMs: number): PreparedWrite {
  return { json: { kind: "lease", owner: toText(owner), for_ms: String(forMs) } };
}

export function releaseOf(owner: string): PreparedWrite {
  return { json: { kind: "lease", owner: toText(owner), for_ms: null } };
}

/** Replaces the session as a whole. With `isNew` one that exists stays as it is. */
export function sessionOf(
  key: SessionKey,
  { history, state, generation, creator }: StoredSession,
  at: number,
  isNew: boolean,
): PreparedWrite {
  const session = {
    session_id: toText(key.session_id),
    create: true,
    messages: history.map(toJson),
    state: toJson(state),
    at,
    isWhole: true,
    ...(generation !== undefined && { generation: toText(generation) }),
    ...(creator !== undefined && { creator: toText(creator) }),
    ...(isNew && { isNew }),
  };
  return { json: { kind: "session", tenant: toText(key.tenant), session } };
}

/** The write with the messages for which the database asked. */
export function withMessages({ json, messages }: PreparedWrite): PreparedWrite {
  const { isLazy: _isLazy, ...session } = json["session"] as WriteJson;
  return { json: { ...json, session: { ...session, messages: (messages?.() ?? []).map(toJson) } } };
}

/** A text in a column that is empty for null. */
export function markedText(value: string | null): string {
  return value === null ? "" : `=${toText(value)}`;
}

function withChanges(json: WriteJson, { entries, head, session, counters, wake, feed, asks }: RunWrite): PreparedWrite {
  const whole = {
    ...json,
    head: headOf(head),
    ...linesOf(entries),
    ...(session !== undefined && { session: changeOf(session) }),
    ...(counters !== undefined && { counters }),
    ...(wake !== undefined && { wake: keyOf(wake) }),
    ...(feed !== undefined && { feed: feed.map(toFeedText) }),
    ...(asks === true && { asks }),
  };
  return { json: whole, messages: session?.messages };
}

/** What a run needs, if that is more than a permit of one slot. */
function limitsOf(slots: RunWrite["slots"] = []): WriteJson {
  if (slots.length <= 1 && slots[0]?.rate === undefined) return {};
  const limits = slots.map(({ key, max, rate }) => ({
    key: markedText(key),
    ...(max !== undefined && { max }),
    ...(rate !== undefined && { count: rate.count, per: rate.perMs }),
  }));
  return { limits };
}

/** Messages of a session that may not exist are requested only if it does. */
function changeOf(change: SessionChange): WriteJson {
  const { session_id, create, generation, creator, onlyOf, messages, replaces, state, at } = change;
  const isLazy = !create && messages !== undefined;
  return {
    session_id: toText(session_id),
    create,
    at,
    ...(generation !== undefined && { generation: toText(generation) }),
    ...(creator !== undefined && { creator: toText(creator) }),
    ...(onlyOf !== undefined && { onlyOf: toText(onlyOf) }),
    ...(replaces === true && { isWhole: true }),
    ...(isLazy ? { isLazy } : { messages: (messages?.() ?? []).map(toJson) }),
    ...(state !== undefined && { state: toJson(state.value) }),
  };
}

function linesOf(entries: RunWrite["entries"]): WriteJson {
  return { count: entries.length, lines: toLines(entries) };
}

function expectedOf({ epoch, position, owner }: Expected): WriteJson {
  return { epoch, position, ...(owner !== undefined && { owner: toTextOrNull(owner) }) };
}

function keyOf({ tenant, run_id }: RunKey): WriteJson {
  return { tenant: toText(tenant), run_id: toText(run_id) };
}

function headOf(head: RunHead): WriteJson {
  const { owner, blocked } = head;
  return { ...head, owner: toTextOrNull(owner), blocked: blocked === null ? null : toJson(blocked) };
}
