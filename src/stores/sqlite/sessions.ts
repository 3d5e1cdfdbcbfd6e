import type { SessionChange, SessionKey, StoredSession } from "../../core/ports.ts";
import type { Counters } from "../../core/statistics.ts";
import { counterNames } from "../../core/statistics.ts";
import type { Message } from "../../protocol/message.ts";
import { toJson, toText, toTextOrNull } from "../stored-rows.ts";
import type { Connection } from "./database.ts";

/* What is written to sessions and counters inside a transaction. */

const insertSession =
  "INSERT INTO cadenza_sessions (tenant, session_id, length, state, changed_at, generation, creator) VALUES (?, ?, 0, 'null', ?, ?, ?)";
const insertMessage = "INSERT INTO cadenza_messages (session, position, message) VALUES (?, ?, ?)";
const addCounters = `
  INSERT INTO cadenza_counters (agent_name, ${counterNames.join(", ")}) VALUES (?, ${counterNames.map(() => "?").join(", ")})
  ON CONFLICT DO UPDATE SET ${counterNames.map((name) => `${name} = ${name} + excluded.${name}`).join(", ")}`;

/** Makes the session, unless it exists, and returns whether it was made. */
export function addSession(connection: Connection, key: SessionKey, session: StoredSession, at: number): boolean {
  if (findSession(connection, key) !== undefined) return false;
  replaceSession(connection, key, session, at);
  return true;
}

export function replaceSession(
  connection: Connection,
  { tenant, session_id }: SessionKey,
  { history, state, ...marks }: StoredSession,
  at: number,
): void {
  const messages = () => history;
  const change = {
    session_id,
    create: true,
    replaces: true,
    ...marks,
    messages,
    state: { value: state },
    at,
  } as const;
  changeSession(connection, tenant, change);
}

export function changeSession(connection: Connection, tenant: string, change: SessionChange): void {
  const key: SessionKey = { tenant, session_id: change.session_id };
  let session = findSession(connection, key);
  if (session === undefined) {
    if (!change.create) return;
    session = makeSession(connection, key, change);
  }
  const messages = change.messages?.() ?? [];
  if (change.replaces === true) emptySession(connection, session.id, change.generation);
  const length = change.replaces === true ? 0 : session.length;
  addMessages(connection, session.id, length, messages);
  updateSession(connection, session.id, length + messages.length, change.state?.value, change.at);
}

export function addToCounters(connection: Connection, agentName: string, counters: Counters): void {
  connection.run(addCounters, toText(agentName), ...counterNames.map((name) => counters[name]));
}

/** Whether the session of a new run was created by another user, or by none that is known. */
export function isForeign(connection: Connection, tenant: string, change: SessionChange | undefined): boolean {
  if (change?.onlyOf === undefined) return false;
  const select = "SELECT creator FROM cadenza_sessions WHERE tenant = ? AND session_id = ?";
  const session = connection.get(select, toText(tenant), toText(change.session_id));
  return session !== undefined && session["creator"] !== toText(change.onlyOf);
}

interface SessionRow {
  readonly id: number;
  readonly length: number;
}

function findSession(connection: Connection, { tenant, session_id }: SessionKey): SessionRow | undefined {
  const select = "SELECT id, length FROM cadenza_sessions WHERE tenant = ? AND session_id = ?";
  const row = connection.get(select, toText(tenant), toText(session_id));
  return row && { id: Number(row["id"]), length: Number(row["length"]) };
}

function makeSession(
  connection: Connection,
  { tenant, session_id }: SessionKey,
  { at, generation, creator }: SessionChange,
): SessionRow {
  const marks = [toTextOrNull(generation ?? null), toTextOrNull(creator ?? null)];
  const values = [toText(tenant), toText(session_id), at, ...marks];
  const { lastInsertRowid } = connection.run(insertSession, ...values);
  return { id: Number(lastInsertRowid), length: 0 };
}

function emptySession(connection: Connection, id: number, generation: string | undefined): void {
  connection.run("DELETE FROM cadenza_messages WHERE session = ?", id);
  connection.run("UPDATE cadenza_sessions SET generation = ? WHERE id = ?", toTextOrNull(generation ?? null), id);
}

function addMessages(connection: Connection, session: number, from: number, messages: readonly Message[]): void {
  for (const [index, message] of messages.entries())
    connection.run(insertMessage, session, from + index, toJson(message));
}

/** An undefined state leaves the state as it is. */
function updateSession(connection: Connection, id: number, length: number, state: unknown, at: number): void {
  const update = "UPDATE cadenza_sessions SET length = ?, state = coalesce(?, state), changed_at = ? WHERE id = ?";
  connection.run(update, length, state === undefined ? null : toJson(state), at, id);
}
