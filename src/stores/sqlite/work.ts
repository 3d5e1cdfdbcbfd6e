import type { AgentVersion, TakeRequest } from "../../core/ports.ts";
import { Choice, distinctAgents } from "../choice.ts";
import { countable, toKey, toNumber, toText, toTextOrNull } from "../stored-rows.ts";
import type { Connection, SqliteRow, SqliteValue } from "./database.ts";
import { emptyInbox } from "./inbox.ts";
import { runRow } from "./reads.ts";
import { countHolder, hasPermitFor, letIn, rankOf } from "./slots.ts";

/*
 * Leases, and the runs that need work. They are found in indexes that hold nothing else: neither runs that wait for a
 * later time nor runs of living owners are read.
 */

/** How many rows of each kind the first page has. Each next page has four times as many. */
const FIRST_PAGE = 16;
const MAX_PAGE = 4_096;

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
const workColumns = `id, agent_name, version, owner, takeovers, due_at, slot, slot_max, holds_slot, look, rank, line,
  ${onlyEnds} AS only_ends`;
/** A page behind a run. Runs leave the pages before it. A run without a time comes first. */
const NO_TIME = -1e300;
const page = `AND (ifnull(due_at, ${NO_TIME}), id) > (?, ?) ORDER BY due_at, id LIMIT ? + 0`;
const selectDue = `SELECT ${workColumns} FROM cadenza_runs
  WHERE finished_at IS NULL AND owner IS NULL AND line IS NULL AND agent_name = ? AND version IS ? AND due_at <= ? ${page}`;
const selectOwned = `SELECT ${workColumns} FROM cadenza_runs
  WHERE finished_at IS NULL AND owner = ? AND agent_name = ? AND version IS ? ${page}`;
const selectCancelled = `SELECT ${workColumns} FROM cadenza_runs
  WHERE finished_at IS NULL AND status = 'cancelling' AND owner IS ?
    AND iif(owner IS NULL, line IS NULL AND due_at <= ?, plain IS NULL)`;
const selectPlain = `SELECT ${workColumns} FROM cadenza_runs WHERE finished_at IS NULL AND owner = ? AND plain IS NOT NULL`;
const updateTaken = `
  UPDATE cadenza_runs SET owner = ?, epoch = epoch + 1, due_at = ?, blocked = NULL, look = 0, wakes = 0,
    holds_slot = holds_slot OR (slot IS NOT NULL AND NOT look AND NOT ${onlyEnds}), rank = CASE WHEN look THEN rank END, since = NULL, line = NULL,
    takeovers = takeovers + (owner IS NOT NULL)
  WHERE id = ?`;
/** A run that waits for a permit has no owner. What a dead owner still writes is refused by the epoch. */
const updateWaiting = `
  UPDATE cadenza_runs SET line = slot, rank = ?, owner = NULL, epoch = epoch + (owner IS NOT NULL),
    takeovers = takeovers + (owner IS NOT NULL), due_at = iif(owner IS NULL, due_at, ?), blocked = iif(owner IS NULL, blocked, NULL),
    wakes = iif(owner IS NULL, wakes, 0)
  WHERE id = ?`;
/** A run that no process executes gives its permit back, and needs one when it is taken. */
const updateUnused = `
  UPDATE cadenza_runs SET holds_slot = 0, since = NULL, owner = NULL, epoch = epoch + (owner IS NOT NULL),
    takeovers = takeovers + (owner IS NOT NULL), due_at = iif(owner IS NULL, due_at, ?), blocked = iif(owner IS NULL, blocked, NULL),
    wakes = iif(owner IS NULL, wakes, 0)
  WHERE id = ?`;
const updateLeft = "UPDATE cadenza_runs SET line = NULL, rank = NULL WHERE id = ?";
const selectHolds = "SELECT holds_slot FROM cadenza_runs WHERE id = ?";
const hasLine = "EXISTS (SELECT 1 FROM cadenza_runs l WHERE l.line = r.slot AND l.finished_at IS NULL)";
const selectHasLine = "SELECT 1 FROM cadenza_runs WHERE line = ? AND finished_at IS NULL LIMIT 1";
const selectUnused = `SELECT id, agent_name, version, slot FROM cadenza_runs r
  WHERE since <= ? AND agent_name = ? AND due_at <= ? AND ${hasLine}`;
const selectLeft = `SELECT id, agent_name, version, slot FROM cadenza_runs r
  WHERE finished_at IS NULL AND owner = ? AND plain IS NULL AND slot IS NOT NULL AND holds_slot AND ${hasLine}`;
/** So many runs of a version at most leave a line in one call. */
const MAX_LEAVING = 10_000;
const updateAside = `
  UPDATE cadenza_runs SET line = NULL WHERE id IN (
    SELECT id FROM cadenza_runs WHERE line = ? AND finished_at IS NULL AND agent_name = ? AND version IS ? AND owner IS NULL
    ORDER BY rank, id LIMIT ${MAX_LEAVING})`;
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

/** Whether `takeRuns` would change anything. Writes nothing. */
export function hasWork(connection: Connection, request: TakeRequest, now: number): boolean {
  const tooLong = "SELECT 1 FROM cadenza_leases WHERE until > ? + for_ms LIMIT 1";
  if (connection.get(tooLong, now) !== undefined) return true;
  const { agents, unusedForMs } = request;
  if (unusedForMs !== undefined && unusedHolders(connection, agents, unusedForMs, now).length > 0) return true;
  return choose(connection, request, now, () => true).length > 0;
}

/**
 * Gives runs that need work to an owner, and returns their rows. Their first entries are read after the transaction,
 * since a damaged page would make it fail.
 */
export function takeRuns(connection: Connection, request: TakeRequest, clock: () => number): readonly SqliteRow[] {
  const now = clock();
  connection.run("UPDATE cadenza_leases SET until = ? + for_ms WHERE until > ? + for_ms", now, now);
  freeUnused(connection, request, clock);
  let joining = 0;
  const moved = new Set<string>();
  const letOthersIn = (key: string): void => {
    moved.add(key);
    letIn(connection, key, 0, clock);
  };
  const holds = (id: number): boolean => Number(connection.get(selectHolds, id)?.["holds_slot"]) !== 0;
  const chosen = choose(connection, request, now, ({ id, needs, leaves }) => {
    if (leaves !== null) {
      connection.run(updateLeft, id);
      letOthersIn(leaves);
    }
    // It may have got a permit since it was read.
    if (needs === null || (moved.has(needs.key) && holds(id))) return true;
    if (joining === MAX_JOINING) return false;
    if (hasPermitFor(connection, { id, ...needs })) {
      countHolder(connection, needs.key);
      return true;
    }
    joining += 1;
    connection.run(updateWaiting, rankOf(connection, needs, now), now, id);
    leaveInbox(connection, id, clock);
    letOthersIn(needs.key);
    return holds(id);
  });
  for (const id of chosen) connection.run(updateTaken, toText(request.owner), now, id);
  for (const id of chosen) leaveInbox(connection, id, clock);
  return chosen.map((id) => runRow(connection, id));
}

/** See {@link TakeRequest}. */
function freeUnused(connection: Connection, { agents, unusedForMs }: TakeRequest, clock: () => number): void {
  if (unusedForMs === undefined) return;
  for (const { id, slot, agent_name, version } of unusedHolders(connection, agents, unusedForMs, clock())) {
    if (connection.get(selectHasLine, slot) === undefined) continue;
    connection.run(updateUnused, clock(), id);
    leaveInbox(connection, id, clock);
    connection.run(updateAside, slot, agent_name, version);
    letIn(connection, slot, 1, clock);
  }
}

interface Holder {
  readonly id: number;
  readonly slot: string;
  readonly agent_name: string;
  readonly version: string | null;
}

/** The runs of other versions of these agents that hold permits for which others wait, and that no process executes. */
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
  const dead = deadOwners(connection, now).filter(({ until }) => until === null || until <= before);
  const rows = [
    ...[...versions.keys()].flatMap((name) => connection.all(selectUnused, before, name, before)),
    ...dead.flatMap(({ owner }) => connection.all(selectLeft, owner)),
  ];
  return rows
    .map(holderOf)
    .filter(({ agent_name, version }) => versions.get(agent_name)?.has(version) === false)
    .toSorted((one, other) => one.id - other.id);
}

function holderOf(row: SqliteRow): Holder {
  const { version } = row;
  return {
    id: Number(row["id"]),
    slot: String(row["slot"]),
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

/** The rows that a `take` gives, in order. `begins`: whether a run can begin now. */
function choose(
  connection: Connection,
  request: TakeRequest,
  now: number,
  begins: (run: Work) => boolean,
): readonly number[] {
  const choice = new Choice(request);
  const chosen: number[] = [];
  const sources = sourcesFor(connection, request, now);
  while (!choice.isOver) {
    const source = firstOf(sources);
    const run = source?.first;
    if (source === undefined || run === undefined) break;
    source.advance();
    if (choice.takes(run.takeovers, () => begins(run))) chosen.push(run.id);
  }
  return chosen;
}

function sourcesFor(connection: Connection, { agents, cancelledForMs }: TakeRequest, now: number): readonly Source[] {
  const wanted = distinctAgents(agents).map(({ agent_name, version }: AgentVersion): [string, string | null] => [
    toText(agent_name),
    toTextOrNull(version),
  ]);
  const sources: Source[] = [];
  const add = (select: string, ...values: readonly SqliteValue[]): void => {
    sources.push(
      new Source((count, last) =>
        connection.all(select, ...values, last?.due_at ?? NO_TIME, last?.id ?? -1, count).map(workOf),
      ),
    );
  };
  const isWanted = (row: SqliteRow): boolean =>
    wanted.some(([name, version]) => row["agent_name"] === name && row["version"] === version);
  const addOthers = (rows: readonly SqliteRow[]): void => {
    const inOrder = rows
      .filter((row) => !isWanted(row))
      .map(workOf)
      .toSorted(compare);
    sources.push(new Source((_count, last) => (last === undefined ? inOrder : [])));
  };
  const dead = deadOwners(connection, now);
  for (const agent of wanted) {
    add(selectDue, ...agent, now);
    for (const { owner } of dead) add(selectOwned, owner, ...agent);
  }
  for (const { owner } of dead) addOthers(connection.all(selectPlain, owner));
  if (cancelledForMs === undefined) return sources;
  const before = now - cancelledForMs;
  const owners = dead.filter(({ until }) => until === null || until <= before).map(({ owner }) => owner);
  for (const owner of [null, ...owners]) addOthers(connection.all(selectCancelled, owner, before));
  return sources;
}

/** A run that needs work. */
interface Work {
  readonly id: number;
  readonly takeovers: number;
  readonly due_at: number;
  /** The slot of which it needs a permit; null if it needs none, or holds one. */
  readonly needs: { readonly key: string; readonly max: number; readonly kept: number | null } | null;
  /** The line that it leaves when it is taken, although it gets no permit; null for none. */
  readonly leaves: string | null;
}

function workOf(row: SqliteRow): Work {
  const { slot, line } = row;
  const ends = Number(row["only_ends"]) !== 0;
  const needs = typeof slot === "string" && Number(row["holds_slot"]) === 0 && Number(row["look"]) === 0 && !ends;
  return {
    id: Number(row["id"]),
    takeovers: Number(row["takeovers"]),
    due_at: toNumber(row["due_at"]) ?? NO_TIME,
    needs: needs ? { key: slot, max: Number(row["slot_max"]), kept: toNumber(row["rank"]) } : null,
    leaves: ends && typeof line === "string" ? line : null,
  };
}

function compare(one: Work, other: Work): number {
  return one.due_at === other.due_at ? one.id - other.id : one.due_at < other.due_at ? -1 : 1;
}

/** Runs that need work, in order, read in pages. */
class Source {
  /** Gives at most `count` runs behind the last one. */
  readonly #load: (count: number, last: Work | undefined) => readonly Work[];
  #runs: readonly Work[] = [];
  #index = 0;
  #count = FIRST_PAGE;
  #isOver = false;

  constructor(load: (count: number, last: Work | undefined) => readonly Work[]) {
    this.#load = load;
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
