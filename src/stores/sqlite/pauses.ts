import type { Pause, PausedRuns } from "../../core/pauses.ts";
import { ASIDE_MS, covers, pauseKey } from "../../core/pauses.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { countable, fromJson, fromText, toHead, toJson, toKey, toText } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { findRow } from "./run-row.ts";
import { changeRun } from "./slots.ts";

/* Pauses, and the runs that they have set aside: these are the last in their index of due runs, and in one of their own. */

const aside = `cadenza_runs INDEXED BY cadenza_runs_aside WHERE due_at >= ${ASIDE_MS}`;
/** Each finds the next value by a jump in the index. */
const selectTenant = `SELECT tenant AS value FROM ${aside} AND tenant > ? ORDER BY tenant LIMIT 1`;
const selectFirstTenant = `SELECT tenant AS value FROM ${aside} ORDER BY tenant LIMIT 1`;
const selectAgent = `SELECT agent_name AS value FROM ${aside} AND tenant = ? AND agent_name > ? ORDER BY agent_name LIMIT 1`;
const selectFirstAgent = `SELECT agent_name AS value FROM ${aside} AND tenant = ? ORDER BY agent_name LIMIT 1`;
const selectVersion = `SELECT version AS value FROM ${aside} AND tenant = ? AND agent_name = ? AND version > ? ORDER BY version LIMIT 1`;
const selectFirstVersion = `SELECT version AS value FROM ${aside} AND tenant = ? AND agent_name = ? ORDER BY version LIMIT 1`;
const selectAside = `SELECT tenant, run_id FROM ${aside} AND tenant = ? AND agent_name = ? AND version IS ?
  ORDER BY due_at, id LIMIT ? + 0`;

export function readPauses(connection: Connection): readonly Pause[] {
  return connection.all("SELECT runs, at, by FROM cadenza_pauses ORDER BY id").map(pauseOf);
}

function pauseOf(row: SqliteRow): Pause {
  const runs = fromJson(row["runs"]) as PausedRuns;
  return { ...runs, at: Number(row["at"]), by: fromJson(row["by"]) };
}

export function addPause(connection: Connection, runs: PausedRuns, by: JsonValue, now: number): boolean {
  const insert = "INSERT INTO cadenza_pauses (key, runs, at, by) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING";
  const { changes } = connection.run(insert, pauseKey(runs), toJson(runs), countable(now), toJson(by));
  return Number(changes) > 0;
}

export function removePause(connection: Connection, runs: PausedRuns): boolean {
  return Number(connection.run("DELETE FROM cadenza_pauses WHERE key = ?", pauseKey(runs)).changes) > 0;
}

/** Makes runs due that were set aside, unless a pause of their tenant covers them. Answers how many. */
export function comeBack(connection: Connection, limit: number, now: () => number): number {
  const pauses = readPauses(connection).filter(({ tenant }) => tenant !== undefined);
  let left = limit;
  for (const tenant of connection.values(selectFirstTenant, selectTenant)) {
    const its = pauses.filter((pause) => pause.tenant === fromText(String(tenant)));
    if (its.some(({ agent_name }) => agent_name === undefined)) continue;
    for (const agent of connection.values(selectFirstAgent, selectAgent, tenant)) {
      for (const version of connection.values(selectFirstVersion, selectVersion, tenant, agent)) {
        const [name, of] = [fromText(String(agent)), version === null ? null : fromText(String(version))];
        if (its.some((pause) => covers(pause, name, of, fromText(String(tenant))))) continue;
        for (const row of connection.all(selectAside, tenant, agent, version, countable(left))) {
          makeDue(connection, row, now);
          left -= 1;
        }
        if (left <= 0) return limit;
      }
    }
  }
  return limit - left;
}

function makeDue(connection: Connection, row: SqliteRow, now: () => number): void {
  const { tenant, run_id } = toKey(row);
  const run = findRow(connection, toText(tenant), toText(run_id));
  if (run === undefined) return;
  const head = toHead(run);
  const due_at = Math.min((head.due_at ?? ASIDE_MS) - ASIDE_MS, now());
  changeRun(connection, run, { ...head, due_at }, run.position, now);
}
