import type { NewPause, Pause, PausedRuns } from "../../core/pauses.ts";
import { ASIDE_MS, covers, pauseKey } from "../../core/pauses.ts";
import type { AgentVersion } from "../../core/ports.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { countable, fromJson, fromText, toHead, toJson, toKey, toText, toTextOrNull } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import type { DuePlace } from "./run-row.ts";
import { findRow, isApart, kindOf, mayWait, place } from "./run-row.ts";
import { changeRun } from "./slots.ts";

/* Pauses, and the runs that they have set aside: these are the last in their index of due runs, and in one of their own. */

const aside = `cadenza_runs INDEXED BY cadenza_runs_aside WHERE due_at >= ${ASIDE_MS}`;
/** How many due runs of each agent are looked at in one transaction, to be set aside. */
const MAX_ASIDE = 256;
/** How many more of them are passed over, which costs less. */
const MAX_PASSED = 2_048;

/** Statements about the due runs of an agent, those in front first. */
function dueRuns(runs: string, order: string) {
  const due = `cadenza_runs ${runs} AND owner IS NULL AND agent_name = ? AND version IS ? AND priority = 0 AND ${order} <= ?`;
  const page = `(SELECT ${order} AS due_at, id, ${mayWait} AND tenant IN (SELECT value FROM json_each(?)) AS is_paused
    FROM ${due} AND ${order} >= ? AND (${order}, id) > (?, ?) ORDER BY ${order}, id LIMIT ${MAX_PASSED})`;
  return {
    select: `SELECT ${order} AS due_at, id, tenant, agent_name, version, ${mayWait} AS may_wait
      FROM ${due} ORDER BY ${order}, id LIMIT ${MAX_ASIDE}`,
    /** Of the next ones the first that is not paused, and the last one. */
    selectOther: `SELECT due_at, id FROM ${page} WHERE NOT is_paused LIMIT 1`,
    selectLast: `SELECT due_at, id FROM ${page} ORDER BY due_at DESC, id DESC LIMIT 1`,
  };
}

/** Those without a gate, and those that are through theirs. */
const kinds = [
  dueRuns("WHERE finished_at IS NULL AND line IS NULL AND gate IS NULL", "due_at"),
  dueRuns(`INDEXED BY cadenza_runs_apart WHERE ${isApart} AND gate IS NOT NULL`, place),
];
const updateAside = `UPDATE cadenza_runs SET due_at = due_at + ${ASIDE_MS}, came_at = NULL WHERE id = ?`;
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
  const pause = fromJson(row["runs"]) as NewPause;
  return { ...pause, at: Number(row["at"]), by: fromJson(row["by"]) };
}

export function addPause(connection: Connection, pause: NewPause, by: JsonValue, now: number): boolean {
  const insert = `INSERT INTO cadenza_pauses (key, runs, at, by) VALUES (?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET runs = excluded.runs WHERE ${pause.now === true} AND runs <> excluded.runs`;
  const { changes } = connection.run(insert, pauseKey(pause), toJson(pause), countable(now), toJson(by));
  return Number(changes) > 0;
}

export function removePause(connection: Connection, runs: PausedRuns): boolean {
  return Number(connection.run("DELETE FROM cadenza_pauses WHERE key = ?", pauseKey(runs)).changes) > 0;
}

/** An agent or a version of it that is paused for all tenants, as it is stored. */
export interface PausedAgent {
  readonly agent_name: string;
  /** Undefined: all of them. */
  readonly version: string | null | undefined;
}

/**
 * The due runs that pauses of their tenants cover, before a `take`. They are set aside part by part, and may be many. So a
 * `take` passes over them, and the next one begins behind those, as long as no other run stands in front.
 */
export class PausedInFront {
  /** Of each kind of due runs of an agent the last paused one that has no other in front. */
  readonly passed = new Map<string, DuePlace>();
  /** What is paused for all tenants. */
  agents: readonly PausedAgent[] = [];
  #pauses: readonly Pause[] = [];

  /** Reads the pauses. Answers the first due runs that are to be set aside, and passes over the next ones. */
  look(connection: Connection, agents: readonly AgentVersion[], now: number): readonly number[] {
    const all = readPauses(connection);
    this.agents = all.flatMap(pausedAgentOf);
    const pauses = all.filter(({ tenant }) => tenant !== undefined);
    // What was resumed may have been passed over.
    if (toJson(pauses) !== toJson(this.#pauses)) this.passed.clear();
    this.#pauses = pauses;
    const ids: number[] = [];
    for (const agent of pauses.length === 0 ? [] : agents)
      for (const [hasGate, { select, selectOther, selectLast }] of kinds.entries()) {
        const values = [toText(agent.agent_name), toTextOrNull(agent.version)] as const;
        const kind = kindOf(hasGate === 1, values);
        const paused = connection.all(select, ...values, now).filter((row) => this.covers(row));
        for (const row of paused) ids.push(Number(row["id"]));
        const last = paused[MAX_ASIDE - 1];
        if (last === undefined) {
          this.passed.delete(kind);
          continue;
        }
        const from = this.passed.get(kind) ?? duePlace(last);
        const next = [toJson(this.#tenantsOf(agent)), ...values, now, from.due_at, from.due_at, from.id] as const;
        const other = connection.get(selectOther, ...next);
        const end = other ?? connection.get(selectLast, ...next);
        const { due_at, id } = end === undefined ? from : duePlace(end);
        // Right in front of the other one.
        this.passed.set(kind, { due_at, id: other === undefined ? id : id - 1 });
      }
    return ids;
  }

  /** The tenants of which all due runs of an agent are paused. */
  #tenantsOf({ agent_name, version }: AgentVersion): readonly string[] {
    return this.#pauses.flatMap((pause) =>
      pause.tenant !== undefined && covers(pause, agent_name, version, pause.tenant) ? toText(pause.tenant) : [],
    );
  }

  /** Sets these runs aside, each with its own time. Answers whether there were any. */
  setAside(connection: Connection, agents: readonly AgentVersion[], now: number): boolean {
    const ids = this.look(connection, agents, now);
    for (const id of ids) connection.run(updateAside, id);
    return ids.length > 0;
  }

  /** Whether a due run is to be set aside. */
  covers(row: SqliteRow): boolean {
    if (this.#pauses.length === 0 || Number(row["may_wait"]) === 0) return false;
    const [tenant, name] = [fromText(String(row["tenant"])), fromText(String(row["agent_name"]))];
    const version = row["version"] === null ? null : fromText(String(row["version"]));
    return this.#pauses.some((pause) => covers(pause, name, version, tenant));
  }
}

function pausedAgentOf({ agent_name, version, tenant }: Pause): readonly PausedAgent[] {
  if (tenant !== undefined || agent_name === undefined) return [];
  return [{ agent_name: toText(agent_name), version: version === undefined ? undefined : toTextOrNull(version) }];
}

function duePlace(row: SqliteRow): DuePlace {
  return { due_at: Number(row["due_at"]), id: Number(row["id"]) };
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
