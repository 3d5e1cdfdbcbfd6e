import type { Entry } from "../../core/log.ts";
import type { FoundRun, LinesQuery, RunKey, SlotLine } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import { positionIn } from "../../core/positions.ts";
import { isFinal } from "../../core/state.ts";
import type { LogTail, SurveyPage, SurveyQuery, WorkerLease } from "../../core/survey.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { isDamage } from "../damage.ts";
import {
  afterPrefix,
  countable,
  fromText,
  lastPart,
  toNumber,
  toSlotLine,
  toText,
  toTextOrNull,
} from "../stored-rows.ts";
import type { Connection } from "./database.ts";
import { readEntries } from "./entries.ts";
import { lineAfter } from "./gates.ts";
import type { Clause } from "./list.ts";
import { clause, hasLabel, hasStatus, joined, labelsOf, rarestOf } from "./list.ts";
import { runsWithIds } from "./reads.ts";
import { limitsIn, nextAt } from "./slots.ts";
import { selectOwners } from "./work.ts";

/*
 * What operators ask. A page is chosen among at most `MAX_EXAMINED` runs, which the index gives that selects the
 * fewest. The other conditions are checked for each of these runs.
 */

/** How many runs are looked at for a page. */
const MAX_EXAMINED = 1_000;
const selectLength = "SELECT position FROM cadenza_runs WHERE tenant = ? AND run_id = ?";
const inLine = "cadenza_runs INDEXED BY cadenza_runs_in_line WHERE finished_at IS NULL";
/** The keys of slots that runs wait for are found by jumps in the index from one to the next. */
const selectLines = `
  WITH RECURSIVE given (key) AS (VALUES (?)), keys (key) AS (
    SELECT ${lineAfter("g.key")} FROM given g
    UNION ALL SELECT ${lineAfter("k.key")} FROM keys k WHERE k.key IS NOT NULL
    LIMIT ? + 0
  )
  SELECT k.key, ifnull((SELECT held FROM cadenza_slots s WHERE s.key = k.key), 0) AS held,
    (SELECT count(*) FROM (SELECT 1 FROM ${inLine} AND line = k.key LIMIT ${COUNTED})) AS waiting,
    r.slot_max, r.limits, r.tenant, r.run_id, r.agent_name, r.version, coalesce(r.due_at, r.turn) AS due_at
  FROM keys k JOIN cadenza_runs r
  ON r.id = (SELECT id FROM ${inLine} AND line = k.key ORDER BY priority DESC, turn, id LIMIT 1)
  WHERE k.key IS NOT NULL ORDER BY k.key`;
/** The condition of `cadenza_runs_by_state`. */
const byState = "status <> 'completed' AND (owner IS NULL OR finished_at IS NOT NULL)";

export function surveyRuns(connection: Connection, query: SurveyQuery): SurveyPage<FoundRun> {
  if (query.statuses?.length === 0) return { runs: [], next: null };
  const { sql, values } = selectCandidates(connection, query);
  const seen = clause(`SELECT id FROM (${sql} ORDER BY id DESC LIMIT ${MAX_EXAMINED})`, ...values);
  const where = joined([{ ...seen, sql: `id IN (${seen.sql})` }, ...conditionsOf(query)], " AND ");
  const page = connection.all(
    `SELECT id FROM cadenza_runs WHERE ${where.sql} ORDER BY id DESC LIMIT ? + 0`,
    ...where.values,
    countable(query.limit),
  );
  const ids = page.map(({ id }) => Number(id));
  const runs = runsWithIds(connection, ids);
  if (ids.length === query.limit) return { runs, next: ids.at(-1) ?? null };
  const bounds = connection.get(`SELECT min(id) AS last, count(*) AS examined FROM (${seen.sql})`, ...seen.values);
  return { runs, next: Number(bounds?.["examined"]) < MAX_EXAMINED ? null : Number(bounds?.["last"]) };
}

/** The ids of runs among which are all of the query, up to the place where the page begins. */
function selectCandidates(connection: Connection, query: SurveyQuery): Clause {
  const { tenant, statuses, idPrefix, after } = query;
  const before = after === undefined ? [] : [clause("id < ?", after)];
  const select = (from: string, ...conditions: readonly Clause[]): Clause => {
    const { sql, values } = joined([...conditions, ...before], " AND ");
    return { sql: `SELECT id FROM ${from}${sql === "" ? "" : ` WHERE ${sql}`}`, values };
  };
  if (idPrefix !== undefined && idPrefix !== "") {
    const begins = clause("run_id >= ? AND run_id < ?", idPrefix, afterPrefix(idPrefix));
    const named = `FROM cadenza_runs INDEXED BY cadenza_runs_by_key WHERE ${begins.sql}`;
    const counted = `SELECT count(*) AS runs FROM (SELECT 1 ${named} LIMIT ${MAX_EXAMINED + 1})`;
    // A beginning that more runs have selects too little: the index has them in the order of their ids.
    if (Number(connection.get(counted, ...begins.values)?.["runs"]) <= MAX_EXAMINED)
      return select("cadenza_runs", { ...begins, sql: `id IN (SELECT id ${named})` });
  }
  const rarest = tenant === undefined ? undefined : rarestOf(connection, toText(tenant), labelsOf(query));
  if (tenant !== undefined && rarest !== undefined) {
    const found = joined(
      [
        clause("tenant = ? AND name = ? AND value = ?", toText(tenant), ...rarest),
        ...before.map(({ values }) => clause("run < ?", ...values)),
      ],
      " AND ",
    );
    return { sql: `SELECT run AS id FROM cadenza_labels WHERE ${found.sql}`, values: found.values };
  }
  if (statuses !== undefined && !statuses.includes("completed")) return withStatus([...new Set(statuses)], select);
  if (tenant === undefined || tenant === "") return select("cadenza_runs");
  return select(
    "cadenza_runs INDEXED BY cadenza_runs_by_tenant",
    clause("tenant = ? AND tenant <> ''", toText(tenant)),
  );
}

/** Runs that processes execute are few, and are in another index. */
function withStatus(
  statuses: readonly RunStatus[],
  select: (from: string, ...conditions: readonly Clause[]) => Clause,
): Clause {
  const parts = statuses.map((status) => {
    const { sql, values } = select(
      "cadenza_runs INDEXED BY cadenza_runs_by_state",
      clause(byState),
      clause("status = ?", status),
    );
    return { sql: `SELECT id FROM (${sql} ORDER BY id DESC LIMIT ${MAX_EXAMINED})`, values };
  });
  if (statuses.some((status) => !isFinal(status))) {
    const live = clause("finished_at IS NULL AND owner IS NOT NULL");
    parts.push(select("cadenza_runs INDEXED BY cadenza_runs_by_owner", live, hasStatus(statuses)));
  }
  return joined(parts, " UNION ALL ");
}

/** `+` keeps SQLite from using other indexes: the candidates are few. */
function conditionsOf(query: SurveyQuery): readonly Clause[] {
  const { tenant, agent_name, version, statuses, idPrefix, roots, createdAfter, createdBefore } = query;
  const found: Clause[] = labelsOf(query).map(hasLabel);
  if (tenant !== undefined) found.push(clause("+tenant = ?", toText(tenant)));
  if (agent_name !== undefined) found.push(clause("+agent_name = ?", toText(agent_name)));
  if (version !== undefined) found.push(clause("+version IS ?", toTextOrNull(version)));
  if (statuses !== undefined) found.push(clause(`+${hasStatus(statuses).sql}`, ...statuses));
  if (idPrefix !== undefined) found.push(clause("+run_id >= ? AND +run_id < ?", idPrefix, afterPrefix(idPrefix)));
  if (roots === true) found.push(clause("+parent IS NULL"));
  if (createdAfter !== undefined) found.push(clause("+created_at >= ?", createdAfter));
  if (createdBefore !== undefined) found.push(clause("+created_at < ?", createdBefore));
  return found;
}

export function readTails(
  connection: Connection,
  runs: readonly RunKey[],
  count: number,
): readonly (LogTail | undefined)[] {
  return runs.map((key) => {
    const row = connection.get(selectLength, toText(key.tenant), toText(key.run_id));
    if (row === undefined) return undefined;
    const from = Math.max(0, Number(row["position"]) - count);
    try {
      const entries = readEntries(connection, key, from, count);
      if (entries === undefined) return undefined;
      const tail = lastPart(from, entries);
      // Behind deleted generations a part may be left out.
      if (tail.from + tail.entries.length >= Number(row["position"])) return tail;
      return lastPart(from, [
        ...entries,
        ...restOf(connection, key, positionIn(entries, entries.length - 1, from) + 1),
      ]);
    } catch (error) {
      if (isDamage(error)) return undefined;
      throw error;
    }
  });
}

/** All entries of a log from a position on. */
function restOf(connection: Connection, key: RunKey, from: number): readonly Entry[] {
  const rest: Entry[] = [];
  for (let at = from; ; ) {
    const entries = readEntries(connection, key, at, Number.MAX_SAFE_INTEGER - at) ?? [];
    if (entries.length === 0) return rest;
    at = positionIn(entries, entries.length - 1, at) + 1;
    rest.push(...entries);
  }
}

export function readLiving(connection: Connection, now: number): readonly string[] {
  const rows = connection.all("SELECT owner FROM cadenza_leases WHERE min(until, ? + for_ms) > ?", now, now);
  return rows.map(({ owner }) => fromText(String(owner)));
}

export function readWorkers(connection: Connection, now: number): readonly WorkerLease[] {
  const leases = connection.all("SELECT owner, until, for_ms FROM cadenza_leases");
  const known = new Set(leases.map(({ owner }) => owner));
  const others = connection.all(selectOwners).filter(({ owner }) => !known.has(owner));
  const count = "SELECT count(*) AS runs FROM cadenza_runs WHERE finished_at IS NULL AND owner = ?";
  return [...leases, ...others].map((row) => {
    const until = toNumber(row["until"]);
    const end = until === null ? null : Math.min(until, now + Number(row["for_ms"]));
    const owner = String(row["owner"]);
    const runs = Number(connection.get(count, owner)?.["runs"]);
    return { owner: fromText(owner), until: end, is_alive: end !== null && end > now, runs };
  });
}

export function readLines(connection: Connection, { after = "", limit }: LinesQuery, now: number): readonly SlotLine[] {
  const rows = connection.all(selectLines, toText(after), countable(limit));
  return rows.map((row) => {
    const version = typeof row["version"] === "string" ? fromText(row["version"]) : null;
    const line = toSlotLine(row, fromText(String(row["key"])), version);
    const slot = limitsIn(row["limits"])?.find(({ key }) => key === row["key"]);
    if (slot === undefined) return line;
    const { max: _, ...rest } = line;
    const next_at = nextAt(connection, slot);
    return {
      ...rest,
      ...(slot.max !== undefined && { max: slot.max }),
      ...(slot.rate !== undefined && { rate: slot.rate }),
      ...(next_at > now && { next_at }),
    };
  });
}
