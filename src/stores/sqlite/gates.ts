import type { AgentVersion, RunHead } from "../../core/ports.ts";
import { FEW_THROUGH, MAX_GATES, MOST_THROUGH } from "../gates.ts";
import { countable, toText, toTextOrNull } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import type { RunRow } from "./run-row.ts";

/*
 * Gates. A run behind its gate has the key of the gate in place of the line of its slot. Those that are through are in an
 * index in which no more are read than may be through.
 */

/** The runs that are through their gates, if their time has come. */
export const isThrough = `gate IS NOT NULL AND finished_at IS NULL AND owner IS NULL AND blocked IS NULL
  AND due_at IS NOT NULL AND line IS NOT gate`;
const selectThrough = `
  SELECT count(*) AS through FROM (
    SELECT 1 FROM cadenza_runs INDEXED BY cadenza_runs_through WHERE ${isThrough} AND gate = ? AND due_at <= ? LIMIT ${MOST_THROUGH})`;
/** No key of a slot begins like those of gates, which lie between these two. */
export const FIRST_GATE = "~";
const AFTER_GATES = "\u{7f}";
const inLine = "cadenza_runs INDEXED BY cadenza_runs_in_line WHERE finished_at IS NULL";
/** Whether there are runs behind gates. */
export const selectHasBehind = `EXISTS (SELECT 1 FROM ${inLine} AND line >= '${FIRST_GATE}' AND line < '${AFTER_GATES}')`;
/** The gate behind another one which has runs behind it, and the agent of these, by a jump in the index. */
const selectNext = `
  SELECT line, agent_name, version FROM ${inLine} AND line > ? AND line < '${AFTER_GATES}' ORDER BY line LIMIT 1`;
/** The key of the first line from a key on that is the line of a slot. */
export const lineAfter = (key: string): string => `coalesce(
  (SELECT min(line) FROM ${inLine} AND line > ${key} AND line < '${FIRST_GATE}'),
  (SELECT min(line) FROM ${inLine} AND line > max(${key}, '${FIRST_GATE}\u{10ffff}')))`;

/** The key of a gate as it is stored, which is the line of the runs behind it; null for none. */
export function toGate(gate: string | undefined): string | null {
  return gate === undefined ? null : `${FIRST_GATE}${toText(gate)}`;
}

/** Where a `take` goes on that looks for gates. */
export interface GateCursor {
  after: string;
}

/** How many runs are through a gate, counted up to as many as may be. */
function countThrough(connection: Connection, gate: string, now: number): number {
  return Number(connection.get(selectThrough, gate, now)?.["through"]);
}

/** Whether as many runs are through a gate as may be. */
export function isCrowded(connection: Connection, gate: string, now: number): boolean {
  return countThrough(connection, gate, now) >= MOST_THROUGH;
}

/** How many runs may be let through a gate: none, as long as more than a few are through. */
export function roomAt(connection: Connection, gate: string, now: number): number {
  const through = countThrough(connection, gate, now);
  return through > FEW_THROUGH ? 0 : MOST_THROUGH - through;
}

/** Whether a run with a new head would have to pass its gate. A cancelled one passes without. */
export function asksGate({ finished_at, owner, due_at, blocked, status }: RunHead, now: number): boolean {
  const isFree = finished_at === null && owner === null && blocked === null && status !== "cancelling";
  return isFree && due_at !== null && due_at <= now;
}

/** Whether a run is behind its gate. */
export function isBehind({ gate, line }: Pick<RunRow, "gate" | "line">): boolean {
  return gate !== null && line === gate;
}

/** Whether a run with a new head stays behind its gate, or comes there. `passes`: it holds its permit, or is looked at. */
export function staysBehind(
  connection: Connection,
  run: RunRow,
  head: RunHead,
  passes: boolean,
  now: () => number,
): boolean {
  const { gate, owner, blocked, due_at, line } = run;
  if (gate === null || passes || !asksGate(head, now())) return false;
  if (isBehind(run)) return true;
  const wasFree = owner === null && blocked === null;
  const wasThrough = wasFree && (line !== null || (due_at !== null && due_at <= now()));
  return !wasThrough && isCrowded(connection, gate, now());
}

/**
 * The place of a run with a gate among the due ones: the time at which it came there, so that it is not in front of what was
 * due before it was let through. Null: it is not there, or has no gate. `line`: where it stands from now on.
 */
export function cameAt(run: RunRow, head: RunHead, line: string | null, now: () => number): number | null {
  const { owner, finished_at, due_at } = head;
  if (run.gate === null || line !== null || owner !== null || finished_at !== null || due_at === null) return null;
  const stays = run.owner === null && run.line === null && run.due_at === due_at;
  return stays ? run.came_at : Math.max(due_at, countable(now()));
}

/**
 * The gates of agents behind which runs stand although few are through. Looks at some gates, from the cursor on, and moves it
 * behind them.
 */
export function gatesToOpen(
  connection: Connection,
  agents: readonly AgentVersion[],
  cursor: GateCursor,
  now: number,
): readonly string[] {
  const { after } = cursor;
  const found: string[] = [];
  let hasTurned = after === FIRST_GATE;
  for (let looked = 0; looked < MAX_GATES; ) {
    const row = connection.get(selectNext, cursor.after);
    const key = row === undefined ? FIRST_GATE : String(row["line"]);
    const isRound = hasTurned && (row === undefined || (after !== FIRST_GATE && key > after));
    if (isRound) break;
    cursor.after = key;
    if (row === undefined) {
      hasTurned = true;
      continue;
    }
    looked += 1;
    if (agents.some((agent) => isOf(row, agent)) && roomAt(connection, key, now) > 0) found.push(key);
  }
  return found;
}

function isOf(row: SqliteRow, { agent_name, version }: AgentVersion): boolean {
  return row["agent_name"] === toText(agent_name) && row["version"] === toTextOrNull(version);
}
