import type { Backlog } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import type { LiveCount } from "../../core/survey.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { fromText, toNumber } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { deadOwners } from "./work.ts";

/** The version of an agent as a text that sorts. Empty: the agent has none. */
const marked = "ifnull('=' || version, '')";
/** What a live run without an owner waits for: a permit, an event or a time. */
const IN_LINE = 1;
const FOR_EVENT = 2;
const FOR_TIME = 3;
const kind = `CASE WHEN line IS NOT NULL THEN ${IN_LINE} WHEN due_at IS NULL THEN ${FOR_EVENT} ELSE ${FOR_TIME} END`;
const isFree = "finished_at IS NULL AND owner IS NULL";

/*
 * The counts of live runs. Agents and versions are found by jumps in an index from one to the next, and of each at most
 * `COUNTED` runs are read of a kind: so what a count costs does not depend on how many runs wait. The runs of owners are all
 * read, since processes hold them in memory.
 */
export const counts = `
  CREATE INDEX cadenza_runs_waiting ON cadenza_runs (agent_name, ${marked}, ${kind}, status, due_at, owner, finished_at)
    WHERE ${isFree};
`;

const waiting = `cadenza_runs INDEXED BY cadenza_runs_waiting WHERE ${isFree}`;
const selectAgent = (after: string): string =>
  `SELECT agent_name AS value FROM ${waiting} AND agent_name ${after} ORDER BY agent_name LIMIT 1`;
const selectVersion = (after: string): string =>
  `SELECT ${marked} AS value FROM ${waiting} AND agent_name = ? AND ${marked} ${after} ORDER BY ${marked} LIMIT 1`;
const [firstAgent, nextAgent] = [selectAgent(">= ''"), selectAgent("> ?")];
const [firstVersion, nextVersion] = [selectVersion(">= ''"), selectVersion("> ?")];
const ofVersion = `${waiting} AND agent_name = a.name AND ${marked} = a.marked`;
/** All statuses of live runs. The index has the times of each of them in order. */
const statuses = "statuses (live) AS (VALUES ('created'), ('in-progress'), ('awaiting'), ('cancelling'))";
const hasTime = `statuses s CROSS JOIN ${ofVersion} AND ${kind} = ${FOR_TIME} AND status = s.live`;
const inLine = `${ofVersion} AND ${kind} = ${IN_LINE}`;
const isBlocked = `cadenza_runs INDEXED BY cadenza_runs_blocked
  WHERE ${isFree} AND line IS NULL AND blocked IS NOT NULL AND agent_name = a.name AND version IS a.version AND (due_at IS NULL OR due_at > a.now)`;
const counted = (which: string): string => `(SELECT count(*) FROM (SELECT 1 FROM ${which} LIMIT ${COUNTED}))`;
const selectBacklog = `
  WITH a (name, marked, version, now) AS (VALUES (?, ?, ?, ?)), ${statuses}
  SELECT ${counted(`${hasTime} AND due_at <= a.now`)} + ${counted(inLine)} AS due,
    ${counted(`${hasTime} AND due_at > a.now`)} + ${counted(`${ofVersion} AND ${kind} = ${FOR_EVENT}`)} AS waiting,
    ${counted(isBlocked)} AS blocked,
    (SELECT min((SELECT min(due_at) FROM ${ofVersion} AND ${kind} = ${FOR_TIME} AND status = s.live AND due_at <= a.now)) FROM statuses s) AS first,
    (SELECT min(due_at) FROM (SELECT due_at FROM ${inLine} LIMIT ${COUNTED})) AS first_in_line
  FROM a`;
const selectCensus = `
  WITH a (name, marked) AS (VALUES (?, ?)), ${statuses}
  SELECT s.live AS status, ${[IN_LINE, FOR_EVENT, FOR_TIME].map((one) => counted(`${ofVersion} AND ${kind} = ${one} AND status = s.live`)).join(" + ")} AS runs
  FROM a, statuses s`;
const selectOwned = `SELECT agent_name, version, status, count(*) AS runs
  FROM cadenza_runs INDEXED BY cadenza_runs_by_owner WHERE owner IS NOT NULL AND finished_at IS NULL GROUP BY agent_name, version, status`;
const selectLeft = `SELECT agent_name, version, count(*) AS runs FROM cadenza_runs
  WHERE finished_at IS NULL AND owner = ? GROUP BY agent_name, version`;

export function readBacklog(connection: Connection, now: number): readonly Backlog[] {
  const found = new Map<string, Growing>();
  const add = (agent: Agent, due: number, since: number | null, more?: SqliteRow): void => {
    const name = JSON.stringify([agent.agent_name, agent.version]);
    const before = found.get(name) ?? { ...agent, due: 0, since: null, waiting: 0, blocked: 0 };
    found.set(name, before);
    before.due = Math.min(before.due + due, COUNTED);
    if (since !== null) before.since = Math.min(before.since ?? since, since);
    if (more === undefined) return;
    before.waiting = Math.min(Number(more["waiting"]), COUNTED);
    before.blocked = Number(more["blocked"]);
  };
  for (const [agent_name, version] of waitingAgents(connection)) {
    const row = connection.get(selectBacklog, agent_name, version, unmarked(version), now);
    if (row === undefined) continue;
    const since = [row["first"], row["first_in_line"]].flatMap((at) => toNumber(at) ?? []);
    add(
      agentOf(agent_name, unmarked(version)),
      Number(row["due"]),
      since.length === 0 ? null : Math.min(...since),
      row,
    );
  }
  for (const { owner, until } of deadOwners(connection, now))
    for (const row of connection.all(selectLeft, owner))
      add(agentOf(String(row["agent_name"]), row["version"]), Number(row["runs"]), until);
  return [...found.values()];
}

export function readCensus(connection: Connection): readonly LiveCount[] {
  const found = new Map<string, LiveCount>();
  const add = (agent: Agent, row: SqliteRow): void => {
    const status = row["status"] as RunStatus;
    const name = JSON.stringify([agent.agent_name, agent.version, status]);
    const runs = Math.min(Number(row["runs"]) + (found.get(name)?.runs ?? 0), COUNTED);
    if (runs > 0) found.set(name, { ...agent, status, runs });
  };
  for (const [agent_name, version] of waitingAgents(connection))
    for (const row of connection.all(selectCensus, agent_name, version))
      add(agentOf(agent_name, unmarked(version)), row);
  for (const row of connection.all(selectOwned)) add(agentOf(String(row["agent_name"]), row["version"]), row);
  return [...found.values()];
}

type Growing = { -readonly [Name in keyof Backlog]: Backlog[Name] };
type Agent = Pick<Backlog, "agent_name" | "version">;

/** The agents and versions with live runs without an owner, as they are stored, versions marked. */
function* waitingAgents(connection: Connection): Generator<readonly [agentName: string, version: string]> {
  for (const name of connection.values(firstAgent, nextAgent))
    for (const version of connection.values(firstVersion, nextVersion, name)) yield [String(name), String(version)];
}

function unmarked(version: string): string | null {
  return version === "" ? null : version.slice(1);
}

function agentOf(agentName: string, version: unknown): Agent {
  return { agent_name: fromText(agentName), version: typeof version === "string" ? fromText(version) : null };
}
