import type { AgentVersion, TakeRequest } from "../../core/ports.ts";
import type { Slot } from "../../core/slots.ts";
import { Choice, distinctAgents } from "../choice.ts";
import { countable, toJson, toKey, toNumber, toText, toTextOrNull } from "../stored-rows.ts";
import type { Connection, SqliteRow, SqliteValue } from "./database.ts";
import type { GateCursor } from "./gates.ts";
import { gatesToOpen, isCrowded, selectHasBehind } from "./gates.ts";
import { emptyInbox } from "./inbox.ts";
import type { PausedAgent, PausedInFront } from "./pauses.ts";
import { runRow } from "./reads.ts";
import type { DuePlace } from "./run-row.ts";
import { isApart, kindOf, mayWait, place } from "./run-row.ts";
import type { Asking } from "./slots.ts";
import {
  enter,
  giveBack,
  hasPermitFor,
  letIn,
  letThrough,
  limitsIn,
  lookAtMarks,
  mark,
  takePermits,
  turnOf,
} from "./slots.ts";

/*
 * Leases, and the runs that need work. They are found in indexes that hold nothing else: neither runs that wait for a
 * later time nor runs of living owners are read.
 */

/** How many rows of each kind the first page has. Each next page has four times as many. */
const FIRST_PAGE = 16;
const MAX_PAGE = 4_096;
const MAX_PRIORITY = 10;

/** The owners of live runs, found by jumps in the index from one to the next, with the end of their leases. */
export const selectOwners = `
  WITH RECURSIVE owners (owner) AS (
    SELECT min(owner) FROM cadenza_runs INDEXED BY cadenza_runs_by_owner WHERE finished_at IS NULL AND owner >= ''
    UNION ALL
    SELECT (SELECT min(r.owner) FROM cadenza_runs r INDEXED BY cadenza_runs_by_owner WHERE r.finished_at IS NULL AND r.owner > o.owner)
    FROM owners o WHERE o.owner IS NOT NULL
  )
  SELECT o.owner, l.until FROM owners o LEFT JOIN cadenza_leases l ON l.owner = o.owner WHERE o.owner IS NOT NULL`;
/** Whether a run of a dead owner is only taken to end it. For that it needs no permit. */
const onlyEnds = "(owner IS NOT NULL AND (plain IS NOT NULL OR status = 'cancelling'))";
const workColumns = `id, tenant, ${mayWait} AS may_wait, agent_name, version, owner, takeovers, due_at, slot, slot_max, holds_slot, look, turn, line, priority, gate, limits,
  ${onlyEnds} AS only_ends`;
/** A page behind a run. Runs leave the pages before it. A run without a time comes first. */
const NO_TIME = -1e300;
const page = `AND (ifnull(due_at, ${NO_TIME}), id) > (?, ?) ORDER BY due_at, id LIMIT ? + 0`;
/** Of runs with a time: the first bound is one of their index. */
const duePage = (order: string): string =>
  `AND ${order} >= ? AND (${order}, id) > (?, ?) ORDER BY ${order}, id LIMIT ? + 0`;
const selectDue = `SELECT ${workColumns} FROM cadenza_runs
  WHERE finished_at IS NULL AND owner IS NULL AND line IS NULL AND agent_name = ? AND version IS ? AND due_at <= ? AND priority = 0 AND gate IS NULL ${duePage("due_at")}`;
const selectOwned = `SELECT ${workColumns} FROM cadenza_runs
  WHERE finished_at IS NULL AND owner = ? AND agent_name = ? AND version IS ? AND priority = 0 AND gate IS NULL ${page}`;
const apart = `cadenza_runs INDEXED BY cadenza_runs_apart WHERE ${isApart}`;
const apartOf = `${apart} AND owner IS ? AND agent_name = ? AND version IS ?`;
/** The highest priority below another one, by a jump in the index. */
const selectPriority = `SELECT priority FROM ${apartOf} AND priority < ? ORDER BY priority DESC LIMIT 1`;
const pageApart = `AND (ifnull(${place}, ${NO_TIME}), id) > (?, ?) ORDER BY ${place}, id LIMIT ? + 0`;
const selectDueApart = `SELECT ${workColumns}, ${place} AS place FROM ${apartOf} AND priority = ? AND ${place} <= ? ${duePage(place)}`;
const selectOwnedApart = `SELECT ${workColumns} FROM ${apartOf} AND priority = ? ${pageApart}`;
const selectSigns = `
  SELECT EXISTS (SELECT 1 FROM cadenza_leases WHERE until > ? + for_ms) AS too_long, EXISTS (SELECT 1 FROM ${apart}) AS apart,
    ${selectHasBehind} AS behind, EXISTS (SELECT 1 FROM cadenza_slots WHERE look_at <= ?) AS marked`;
const cancelled = "cadenza_runs INDEXED BY cadenza_runs_cancelling WHERE status = 'cancelling' AND owner IS ?";
const cancelledOf = `${cancelled} AND agent_name = ? AND version IS ?`;
/** Each finds the next value by a jump in the index. */
const selectCancelledAgent = `SELECT agent_name FROM ${cancelled} AND agent_name > ? ORDER BY agent_name LIMIT 1`;
const selectCancelledVersion = `SELECT version AS value FROM ${cancelled} AND agent_name = ? AND version > ? ORDER BY version LIMIT 1`;
const selectFirstCancelledVersion = `SELECT version AS value FROM ${cancelled} AND agent_name = ? ORDER BY version LIMIT 1`;
const selectCancelledPriority = `SELECT priority FROM ${cancelledOf} AND priority < ? ORDER BY priority DESC LIMIT 1`;
const selectCancelled = `SELECT ${workColumns} FROM ${cancelledOf} AND priority = ? AND finished_at IS NULL
  AND line IS NULL AND due_at <= ? ${duePage("due_at")}`;
const selectCancelledOwned = `SELECT ${workColumns} FROM ${cancelledOf} AND priority = ? AND finished_at IS NULL
  AND plain IS NULL ${page}`;
const selectPlain = `SELECT ${workColumns} FROM cadenza_runs WHERE finished_at IS NULL AND owner = ? AND plain IS NOT NULL`;
const updateTaken = `
  UPDATE cadenza_runs SET owner = ?, epoch = epoch + 1, due_at = ?, blocked = NULL, look = 0, wakes = 0,
    holds_slot = holds_slot OR (slot IS NOT NULL AND NOT look AND NOT ${onlyEnds}), turn = CASE WHEN look THEN turn END, since = NULL, came_at = NULL, line = NULL,
    takeovers = takeovers + (owner IS NOT NULL)
  WHERE id = ?`;
const updatePlace = "UPDATE cadenza_runs SET line = ?, turn = ? WHERE id = ?";
/** A run that waits for a permit has no owner. What a dead owner still writes is refused by the epoch. */
const updateWaiting = `
  UPDATE cadenza_runs SET owner = NULL, epoch = epoch + 1, takeovers = takeovers + 1, due_at = ?, blocked = NULL, wakes = 0
  WHERE id = ?`;
/** A run that no process executes gives its permit back, and needs one when it is taken. */
const updateUnused = `
  UPDATE cadenza_runs SET holds_slot = 0, since = NULL, owner = NULL, epoch = epoch + (owner IS NOT NULL),
    takeovers = takeovers + (owner IS NOT NULL), due_at = iif(owner IS NULL, due_at, ?), blocked = iif(owner IS NULL, blocked, NULL),
    wakes = iif(owner IS NULL, wakes, 0)
  WHERE id = ?`;
const updateLeft = "UPDATE cadenza_runs SET line = NULL, turn = NULL WHERE id = ?";
const selectHolds = "SELECT holds_slot FROM cadenza_runs WHERE id = ?";
const hasLine = `iif(r.limits IS NULL,
  EXISTS (SELECT 1 FROM cadenza_runs l WHERE l.line = r.slot AND l.finished_at IS NULL),
  EXISTS (SELECT 1 FROM json_each(r.limits) j JOIN cadenza_runs l ON l.line = json_extract(j.value, '$.key') AND l.finished_at IS NULL))`;
const selectHasLine = "SELECT 1 FROM cadenza_runs WHERE line = ? AND finished_at IS NULL LIMIT 1";
const reserved = "FROM cadenza_runs r INDEXED BY cadenza_runs_reserved WHERE since IS NOT NULL";
/** Each finds the next name by a jump in the index. */
const selectName = `SELECT agent_name AS value ${reserved} AND agent_name > ? ORDER BY agent_name LIMIT 1`;
const selectFirstName = `SELECT agent_name AS value ${reserved} ORDER BY agent_name LIMIT 1`;
/** The runs of an agent that hold permits for which others wait, but for those of some versions. Null: those without a version. */
const selectUnused = `SELECT id, agent_name, version, slot, limits ${reserved} AND since <= ? AND agent_name = ? AND due_at <= ?
  AND NOT EXISTS (SELECT 1 FROM json_each(?) v WHERE v.value IS r.version) AND ${hasLine}`;
const selectPaused = `SELECT id, agent_name, version, slot, limits ${reserved} AND agent_name = ? AND due_at <= ?
  AND (? OR version IS ?) AND ${hasLine}`;
const selectLeft = `SELECT id, agent_name, version, slot, limits FROM cadenza_runs r
  WHERE finished_at IS NULL AND owner = ? AND plain IS NULL AND slot IS NOT NULL AND holds_slot AND ${hasLine}`;
/** So many runs of a version at most leave a line in one call. */
const MAX_LEAVING = 10_000;
const updateAside = `
  UPDATE cadenza_runs SET line = NULL, came_at = iif(gate IS NULL, NULL, max(due_at, ?)) WHERE id IN (
    SELECT id FROM cadenza_runs WHERE line = ? AND finished_at IS NULL AND agent_name = ? AND version IS ? AND owner IS NULL
    ORDER BY priority DESC, turn, id LIMIT ${MAX_LEAVING})`;
/** How many paused runs a call passes over one by one, behind the place where it begins to read. */
const MAX_PASSED = 256;
/** So many runs at most begin to wait for a permit in one call. Their time has come, or their owner is dead. */
const MAX_JOINING = 256;

export function renewLease(connection: Connection, owner: string, forMs: number, now: number): void {
  const upsert = `INSERT INTO cadenza_leases (owner, until, for_ms) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET until = excluded.until, for_ms = excluded.for_ms`;
  connection.run(upsert, toText(owner), countable(now + forMs), countable(forMs));
  // An expired owner without runs needs no row.
  connection.run(
    `DELETE FROM cadenza_leases WHERE until <= ? AND NOT EXISTS
      (SELECT 1 FROM cadenza_runs r WHERE r.finished_at IS NULL AND r.owner = cadenza_leases.owner)`,
    now,
  );
}

export function releaseLease(connection: Connection, owner: string): void {
  connection.run("DELETE FROM cadenza_leases WHERE owner = ?", toText(owner));
}

/**
 * When the lease of an owner ends, as it is stored. Cuts short a lease that now lasts longer than requested: the clock
 * was set back.
 */
export function leaseEnd(connection: Connection, owner: string, now: number): number {
  const lease = connection.get("SELECT until, for_ms FROM cadenza_leases WHERE owner = ?", owner);
  if (lease === undefined) return Number.NEGATIVE_INFINITY;
  const until = Math.min(Number(lease["until"]), countable(now + Number(lease["for_ms"])));
  if (until < Number(lease["until"]))
    connection.run("UPDATE cadenza_leases SET until = ? WHERE owner = ?", until, owner);
  return until;
}

/** Whether `takeRuns` would change anything. Writes nothing, and leaves the cursor where gates are to be opened. */
export function hasWork(
  connection: Connection,
  request: TakeRequest,
  cursor: GateCursor,
  paused: PausedInFront,
  now: number,
): boolean {
  const signs = signsOf(connection, now);
  if (signs.tooLong || (signs.marked && request.limit > 0)) return true;
  const { agents, unusedForMs } = request;
  if (unusedForMs !== undefined && unusedHolders(connection, agents, unusedForMs, now).length > 0) return true;
  if (request.limit > 0 && pausedHolders(connection, paused.agents, now).length > 0) return true;
  const one = { ...request, limit: Math.min(1, request.limit) };
  if (choose(connection, one, signs, paused, now, () => true).length > 0) return true;
  const { after } = cursor;
  if (!signs.behind || request.limit <= 0 || gatesToOpen(connection, agents, cursor, now).length === 0) return false;
  cursor.after = after;
  return true;
}

/**
 * Gives runs that need work to an owner, and returns their rows. Their first entries are read after the transaction,
 * since a damaged page would make it fail.
 */
export function takeRuns(
  connection: Connection,
  request: TakeRequest,
  cursor: GateCursor,
  paused: PausedInFront,
  clock: () => number,
): readonly SqliteRow[] {
  const now = clock();
  let signs = signsOf(connection, now);
  if (signs.tooLong) connection.run("UPDATE cadenza_leases SET until = ? + for_ms WHERE until > ? + for_ms", now, now);
  if (request.unusedForMs !== undefined) {
    freePermits(connection, unusedHolders(connection, request.agents, request.unusedForMs, now), clock);
    signs = signsOf(connection, now);
  }
  if (request.limit > 0 && paused.agents.length > 0) {
    freePermits(connection, pausedHolders(connection, paused.agents, now), clock);
    signs = signsOf(connection, now);
  }
  let hasBehind = signs.behind;
  if (signs.marked && request.limit > 0) {
    lookAtMarks(connection, clock);
    signs = signsOf(connection, now);
  }
  let joining = 0;
  const moved = new Set<string>();
  const letOthersIn = (key: string): void => {
    moved.add(key);
    letIn(connection, key, 0, clock);
  };
  const holds = (id: number): boolean => Number(connection.get(selectHolds, id)?.["holds_slot"]) !== 0;
  /** Whether a run gets the permits that it needs. If not, it stands in the line of a slot that refuses one. */
  const joins = (id: number, needs: Asking): boolean => {
    const asking = { ...needs, id, isOwned: false };
    if (needs.limits === undefined) {
      connection.run(updatePlace, needs.key, turnOf(connection, needs, now), id);
      letOthersIn(needs.key);
      return holds(id);
    }
    for (const { key } of needs.limits) letOthersIn(key);
    const { holds_slot, line, turn, slot, slot_max } = enter(connection, asking, now);
    connection.run(updatePlace, line, turn, id);
    if (holds_slot) takePermits(connection, asking, now);
    else
      connection.run("UPDATE cadenza_runs SET slot = ?, slot_max = ? WHERE id = ?", slot ?? null, slot_max ?? null, id);
    if (line !== null) mark(connection, line);
    return holds_slot;
  };
  const begins = ({ id, needs, leaves, gate }: Work): boolean => {
    if (leaves !== null) {
      connection.run(updateLeft, id);
      letOthersIn(leaves);
    }
    // It may have got a permit since it was read.
    if (needs === null || (moved.has(needs.key) && holds(id))) return true;
    if (joining === MAX_JOINING) return false;
    if (hasPermitFor(connection, { ...needs, id, priority: undefined }, now)) {
      takePermits(connection, { ...needs, id }, now);
      return true;
    }
    joining += 1;
    // A run of a dead owner comes to its gate.
    const stays = gate !== null && needs.isOwned === true && needs.kept === null && isCrowded(connection, gate, now);
    hasBehind ||= stays;
    if (stays) connection.run(updatePlace, gate, countable(now), id);
    else if (joins(id, needs)) return true;
    if (needs.isOwned !== true) return false;
    connection.run(updateWaiting, now, id);
    leaveInbox(connection, id, clock);
    return false;
  };
  const taken = new Set<number>();
  // A run that is taken is through its gate no more when the next one comes there. An owner whose own lease has ended may
  // meet it again among its runs.
  const chosen = choose(connection, request, signs, paused, now, (run) => {
    if (taken.has(run.id) || !begins(run)) return false;
    taken.add(run.id);
    connection.run(updateTaken, toText(request.owner), now, run.id);
    return true;
  });
  for (const { id } of chosen) leaveInbox(connection, id, clock);
  if (hasBehind) {
    const gates = new Set(chosen.flatMap(({ gate }) => gate ?? []));
    if (chosen.length < request.limit)
      for (const gate of gatesToOpen(connection, request.agents, cursor, now)) gates.add(gate);
    for (const gate of gates) letThrough(connection, gate, now);
  }
  return chosen.map(({ id }) => runRow(connection, id));
}

/**
 * Runs that no process may execute give their permits back, if others wait for them. The other runs of their versions leave these
 * lines: they would only get the permits next.
 */
function freePermits(connection: Connection, holders: readonly Holder[], clock: () => number): void {
  for (const { id, slot, limits, agent_name, version } of holders) {
    const keys = limits?.map(({ key }) => key) ?? [slot];
    const isWaitedFor = (key: string): boolean => connection.get(selectHasLine, key) !== undefined;
    for (const line of keys.filter(isWaitedFor)) connection.run(updateAside, clock(), line, agent_name, version);
    if (!keys.some(isWaitedFor)) continue;
    connection.run(updateUnused, clock(), id);
    leaveInbox(connection, id, clock);
    if (limits !== undefined) giveBack(connection, limits);
    for (const key of keys) letIn(connection, key, limits === undefined ? 1 : 0, clock);
  }
}

interface Holder {
  readonly id: number;
  readonly slot: string;
  readonly limits: readonly Slot[] | undefined;
  readonly agent_name: string;
  readonly version: string | null;
}

/** The runs of other agents or versions than these that hold permits for which others wait, and that no process executes. */
function unusedHolders(
  connection: Connection,
  agents: readonly AgentVersion[],
  forMs: number,
  now: number,
): readonly Holder[] {
  const before = now - forMs;
  const versions = new Map<string, Set<string | null>>();
  for (const { agent_name, version } of agents) {
    const name = toText(agent_name);
    versions.set(name, (versions.get(name) ?? new Set()).add(toTextOrNull(version)));
  }
  const found: Holder[] = [];
  for (const name of connection.values(selectFirstName, selectName)) {
    const wanted = toJson([...(versions.get(name ?? "") ?? [])]);
    found.push(...connection.all(selectUnused, before, name, before, wanted).map(holderOf));
  }
  const left = leftHolders(connection, before, now);
  return inOrder([...found, ...left.filter(({ agent_name, version }) => !versions.get(agent_name)?.has(version))]);
}

/** The runs of paused agents and versions that hold permits for which others wait, and that no process executes. */
function pausedHolders(connection: Connection, paused: readonly PausedAgent[], now: number): readonly Holder[] {
  if (paused.length === 0) return [];
  const found = paused.flatMap(({ agent_name, version }) =>
    connection.all(selectPaused, agent_name, now, version === undefined ? 1 : 0, version ?? null).map(holderOf),
  );
  const isPaused = ({ agent_name, version }: Holder): boolean =>
    paused.some((one) => one.agent_name === agent_name && (one.version === undefined || one.version === version));
  return inOrder([...found, ...leftHolders(connection, now, now).filter(isPaused)]);
}

/** The durable runs of owners whose leases had ended by a time. */
function leftHolders(connection: Connection, by: number, now: number): readonly Holder[] {
  const dead = deadOwners(connection, now).filter(({ until }) => until === null || until <= by);
  return dead.flatMap(({ owner }) => connection.all(selectLeft, owner)).map(holderOf);
}

/** Each of them once, in the order of their creation. */
function inOrder(holders: readonly Holder[]): readonly Holder[] {
  return [...new Map(holders.map((holder) => [holder.id, holder])).values()].toSorted(
    (one, other) => one.id - other.id,
  );
}

function holderOf(row: SqliteRow): Holder {
  const { version } = row;
  return {
    id: Number(row["id"]),
    slot: String(row["slot"]),
    limits: limitsIn(row["limits"]),
    agent_name: String(row["agent_name"]),
    version: typeof version === "string" ? version : null,
  };
}

/** What has arrived for a run goes into its log: the owner for whom it was is gone. */
function leaveInbox(connection: Connection, id: number, now: () => number): void {
  if (connection.get("SELECT 1 FROM cadenza_runs WHERE id = ? AND arrived > 0", id) === undefined) return;
  const row = runRow(connection, id);
  const added = emptyInbox(connection, toKey(row), id, Number(row["position"]), now);
  connection.run("UPDATE cadenza_runs SET position = position + ?, arrived = 0 WHERE id = ?", added, id);
}

interface DeadOwner {
  /** As it is stored. */
  readonly owner: string;
  /** When its lease ended; null if there is none. */
  readonly until: number | null;
}

export function deadOwners(connection: Connection, now: number): readonly DeadOwner[] {
  const owners = connection
    .all(selectOwners)
    .map((row) => ({ owner: String(row["owner"]), until: toNumber(row["until"]) }));
  return owners.filter(({ until }) => until === null || until <= now);
}

/** What a `take` looks at besides runs that are due. */
interface Signs {
  /** The clock was set back: leases last longer than they were asked for. */
  readonly tooLong: boolean;
  /** Runs have other priorities than 0, or gates. */
  readonly apart: boolean;
  /** Runs stand behind gates. */
  readonly behind: boolean;
  /** Rates give permits again for which runs wait. */
  readonly marked: boolean;
}

function signsOf(connection: Connection, now: number): Signs {
  const row = connection.get(selectSigns, now, now);
  const is = (sign: string): boolean => Number(row?.[sign]) !== 0;
  return { tooLong: is("too_long"), apart: is("apart"), behind: is("behind"), marked: is("marked") };
}

/** The rows that a `take` gives, in order. `begins`: whether a run can begin now. */
function choose(
  connection: Connection,
  request: TakeRequest,
  signs: Signs,
  paused: PausedInFront,
  now: number,
  begins: (run: Work) => boolean,
): readonly Work[] {
  const choice = new Choice(request);
  const chosen: Work[] = [];
  const sources = sourcesFor(connection, request, signs, paused, now);
  for (let passed = 0; !choice.isOver && passed < MAX_PASSED; ) {
    const source = firstOf(sources);
    const run = source?.first;
    if (source === undefined || run === undefined) break;
    source.advance();
    if (run.isPaused) {
      passed += 1;
      if (!source.hasOthers && source.kind !== undefined) paused.passed.set(source.kind, run);
      continue;
    }
    source.hasOthers = true;
    if (choice.takes(run.takeovers, () => begins(run))) chosen.push(run);
  }
  return chosen;
}

function sourcesFor(
  connection: Connection,
  { agents, cancelledForMs }: TakeRequest,
  { apart }: Signs,
  paused: PausedInFront,
  now: number,
): readonly Source[] {
  const wanted = distinctAgents(agents).map(({ agent_name, version }: AgentVersion): [string, string | null] => [
    toText(agent_name),
    toTextOrNull(version),
  ]);
  const sources: Source[] = [];
  const toWork = (row: SqliteRow): Work => workOf(row, paused.covers(row));
  const add = (select: string, ...values: readonly SqliteValue[]): void => {
    const load = (count: number, { due_at, id }: DuePlace = FRONT): readonly Work[] =>
      connection.all(select, ...values, due_at, id, count).map(toWork);
    sources.push(new Source(load));
  };
  const addDue = (select: string, values: readonly SqliteValue[], kind?: string): void => {
    const first = kind === undefined ? undefined : paused.passed.get(kind);
    const load = (count: number, { due_at, id }: DuePlace = first ?? FRONT): readonly Work[] =>
      connection.all(select, ...values, due_at, due_at, id, count).map(toWork);
    sources.push(new Source(load, kind));
  };
  const isWanted = (row: SqliteRow): boolean =>
    wanted.some(([name, version]) => row["agent_name"] === name && row["version"] === version);
  const addOthers = (rows: readonly SqliteRow[]): void => {
    const inOrder = rows
      .filter((row) => !isWanted(row))
      .map(toWork)
      .toSorted(compare);
    sources.push(new Source((_count, last) => (last === undefined ? inOrder : [])));
  };
  const dead = deadOwners(connection, now);
  for (const agent of wanted) {
    addDue(selectDue, [...agent, now], kindOf(false, agent));
    for (const { owner } of dead) add(selectOwned, owner, ...agent);
    if (!apart) continue;
    for (const owner of [null, ...dead.map((one) => one.owner)])
      for (const priority of prioritiesOf(connection, selectPriority, owner, agent))
        if (owner !== null) add(selectOwnedApart, owner, ...agent, priority);
        else addDue(selectDueApart, [owner, ...agent, priority, now], priority === 0 ? kindOf(true, agent) : undefined);
  }
  for (const { owner } of dead) addOthers(connection.all(selectPlain, owner));
  if (cancelledForMs === undefined) return sources;
  const before = now - cancelledForMs;
  const owners = dead.filter(({ until }) => until === null || until <= before).map(({ owner }) => owner);
  for (const owner of [null, ...owners])
    for (const agent of agentsOfCancelled(connection, owner)) {
      if (wanted.some(([name, version]) => agent[0] === name && agent[1] === version)) continue;
      for (const priority of prioritiesOf(connection, selectCancelledPriority, owner, agent))
        if (owner !== null) add(selectCancelledOwned, owner, ...agent, priority);
        else addDue(selectCancelled, [owner, ...agent, priority, before]);
    }
  return sources;
}

/** The agents and versions that have cancelled runs under an owner, or without one. */
function* agentsOfCancelled(connection: Connection, owner: string | null): Iterable<readonly [string, string | null]> {
  for (let name = ""; ; ) {
    const found = connection.get(selectCancelledAgent, owner, name);
    if (found === undefined) return;
    name = String(found["agent_name"]);
    for (const version of connection.values(selectFirstCancelledVersion, selectCancelledVersion, owner, name))
      yield [name, version];
  }
}

/** The priorities of an agent's runs in an index, the highest first. `select`: finds the next one by a jump. */
function* prioritiesOf(
  connection: Connection,
  select: string,
  owner: string | null,
  agent: readonly (string | null)[],
) {
  for (let priority: number | null = MAX_PRIORITY + 1; priority !== null; ) {
    priority = toNumber(connection.get(select, owner, ...agent, priority)?.["priority"]);
    if (priority !== null) yield priority;
  }
}

/** A place in front of all due runs. */
const FRONT: DuePlace = { due_at: NO_TIME, id: -1 };

/** A run that needs work. */
interface Work extends DuePlace {
  readonly takeovers: number;
  /** Whether it is to be set aside. */
  readonly isPaused: boolean;
  readonly priority: number;
  /** The slot of which it needs a permit; null if it needs none, or holds one. */
  readonly needs: (Omit<Asking, "id"> & { readonly kept: number | null }) | null;
  /** The line that it leaves when it is taken, although it gets no permit; null for none. */
  readonly leaves: string | null;
  readonly gate: string | null;
}

function workOf(row: SqliteRow, isPaused: boolean): Work {
  const { slot, line } = row;
  const priority = Number(row["priority"]);
  const ends = Number(row["only_ends"]) !== 0;
  const needs = typeof slot === "string" && Number(row["holds_slot"]) === 0 && Number(row["look"]) === 0 && !ends;
  return {
    id: Number(row["id"]),
    takeovers: Number(row["takeovers"]),
    isPaused,
    due_at: toNumber(row["place"] ?? row["due_at"]) ?? NO_TIME,
    gate: typeof row["gate"] === "string" ? row["gate"] : null,
    priority,
    needs: needs
      ? {
          key: slot,
          max: Number(row["slot_max"]),
          priority,
          kept: toNumber(row["turn"]),
          isOwned: row["owner"] !== null,
          limits: limitsIn(row["limits"]),
        }
      : null,
    leaves: ends && typeof line === "string" ? line : null,
  };
}

function compare(one: Work, other: Work): number {
  if (one.priority !== other.priority) return other.priority - one.priority;
  return one.due_at === other.due_at ? one.id - other.id : one.due_at < other.due_at ? -1 : 1;
}

/** Runs that need work, in order, read in pages. */
class Source {
  /** Gives at most `count` runs behind the last one. */
  readonly #load: (count: number, last: Work | undefined) => readonly Work[];
  /** Undefined: none of its runs is to be set aside. */
  readonly kind: string | undefined;
  /** Whether one has come that is not to be set aside. */
  hasOthers = false;
  #runs: readonly Work[] = [];
  #index = 0;
  #count = FIRST_PAGE;
  #isOver = false;

  constructor(load: (count: number, last: Work | undefined) => readonly Work[], kind?: string) {
    this.#load = load;
    this.kind = kind;
  }

  get first(): Work | undefined {
    if (this.#index === this.#runs.length && !this.#isOver) this.#next();
    return this.#runs[this.#index];
  }

  advance(): void {
    this.#index += 1;
  }

  #next(): void {
    this.#runs = this.#load(this.#count, this.#runs.at(-1));
    this.#index = 0;
    this.#isOver = this.#runs.length < this.#count;
    this.#count = Math.min(4 * this.#count, MAX_PAGE);
  }
}

function firstOf(sources: readonly Source[]): Source | undefined {
  let first: { readonly source: Source; readonly run: Work } | undefined;
  for (const source of sources) {
    const run = source.first;
    if (run !== undefined && (first === undefined || compare(run, first.run) < 0)) first = { source, run };
  }
  return first?.source;
}
