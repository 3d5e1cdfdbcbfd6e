import type { RunHead } from "../../core/ports.ts";
import type { Slot } from "../../core/slots.ts";
import { countable, toJson, toNumber, toText } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { cameAt, isBehind, roomAt, staysBehind } from "./gates.ts";
import type { RunRow } from "./run-row.ts";
import { updateRow } from "./run-row.ts";

/*
 * Permits of slots. A run that needs one is due only together with it. Until then it stands in the line of its slot, and
 * whatever frees a permit gives it to the first run of the line.
 */

const first = "FROM cadenza_runs WHERE line = ? AND finished_at IS NULL ORDER BY priority DESC, turn, id LIMIT 1";
const selectFirst = `SELECT id, slot, slot_max, limits, priority, turn ${first}`;
const selectHeld = "SELECT held FROM cadenza_slots WHERE key = ?";
/** The first in line of those that a run of a priority does not pass. */
const selectInFront = `
  SELECT id FROM cadenza_runs WHERE line = ? AND finished_at IS NULL AND priority >= ? ORDER BY priority DESC, turn, id LIMIT 1`;
const selectSlot = `SELECT (${selectHeld}) AS held, (${selectInFront}) AS first`;
const updateLetIn = `
  UPDATE cadenza_runs SET holds_slot = 1, line = NULL, turn = NULL, since = iif(owner IS NULL, ?, NULL),
    came_at = iif(owner IS NULL AND gate IS NOT NULL, max(due_at, ?), NULL)
  WHERE id = ?`;
const updateThrough = `
  UPDATE cadenza_runs SET holds_slot = ?, line = ?, turn = ?, since = ?, came_at = iif(? IS NULL, max(due_at, ?), NULL)
  WHERE id = ?`;
const updateSlot = "UPDATE cadenza_runs SET slot = ?, slot_max = ?, limits = ? WHERE id = ?";
const updateMoved = "UPDATE cadenza_runs SET line = ?, turn = ?, slot = ?, slot_max = ? WHERE id = ?";
const selectBehind = `
  SELECT id, slot, slot_max, limits, holds_slot, priority FROM cadenza_runs
  WHERE line = ? AND finished_at IS NULL ORDER BY priority DESC, turn, id LIMIT ? + 0`;
const selectLast = "SELECT last FROM cadenza_slots WHERE key = ?";
const ofKey = "FROM cadenza_grants WHERE key = ?";
/** When the grant was given that is the last but so many, unless the rate has never given so many in its time. */
const selectGrant = `
  SELECT at ${ofKey} AND n = (SELECT max(n) ${ofKey}) + 1 - ? AND ? <= (SELECT kept FROM cadenza_slots WHERE key = ?)`;
const insertGrant = `INSERT INTO cadenza_grants (key, n, at) SELECT ?, ifnull(max(n), 0) + 1, ? ${ofKey}`;
const upsertRate = `
  INSERT INTO cadenza_slots (key, held, kept, until) VALUES (?, 0, ?, ?)
  ON CONFLICT DO UPDATE SET kept = max(ifnull(kept, 0), excluded.kept), until = max(ifnull(until, 0), excluded.until)`;
const selectGrants = `
  SELECT kept, (SELECT min(n) ${ofKey}) AS first, (SELECT max(n) ${ofKey}) AS last FROM cadenza_slots WHERE key = ?`;
/** So many runs at most go from one line to others with one write. */
const MAX_MOVED = 8;

/** The lowest priority. */
const LOWEST = -10;

/** Before all times, for a rate that has given nothing. */
const EVER_BEFORE = -8.64e15;

/** What a permit is asked for. A run that is not written yet has no id. */
export interface Asking {
  readonly id?: number;
  readonly key: string;
  readonly max: number;
  /** All slots of which it needs permits. Left out: the one. */
  readonly limits?: readonly Slot[] | undefined;
  /** It passes those that wait and have a lower one. Left out: it passes none. */
  readonly priority?: number | undefined;
  /** The turn of a run that was looked at while it waited. */
  readonly kept?: number | null;
  /** Whether the run waits under its owner. */
  readonly isOwned?: boolean;
}

/** How a run stands to its slot after a write. */
export interface Place {
  readonly holds_slot: boolean;
  readonly line: string | null;
  readonly turn: number | null;
  /** Since when it holds a permit without an owner. */
  readonly since: number | null;
  /** What changes of the slots of a run that needs permits of several, or of a rate. */
  readonly slot?: string;
  readonly slot_max?: number;
  readonly limits?: string;
}

/** The slots of a run as they are stored, if they are several or have a rate. */
export function toLimits(slots: readonly Slot[] | undefined): readonly Slot[] | undefined {
  if (slots === undefined || (slots.length < 2 && slots[0]?.rate === undefined)) return undefined;
  return slots.map(({ key, max, rate }) => ({ key: toText(key), max, rate }));
}

/** The slots in the column. */
export function limitsIn(column: unknown): readonly Slot[] | undefined {
  return typeof column === "string" ? (JSON.parse(column) as readonly Slot[]) : undefined;
}

/** A rate counts a run once. */
export function withoutRates(limits: readonly Slot[]): string {
  return toJson(limits.flatMap(({ key, max }) => (max === undefined ? [] : { key, max })));
}

function slotsOf({ limits, key, max }: Asking): readonly Slot[] {
  return limits ?? [{ key, max }];
}

function askingOf(row: SqliteRow): Asking & { readonly id: number } {
  return {
    id: Number(row["id"]),
    key: String(row["slot"]),
    max: Number(row["slot_max"]),
    limits: limitsIn(row["limits"]),
    priority: Number(row["priority"]),
    kept: toNumber(row["turn"]),
  };
}

/** From when on a rate gives the next permit, which may be past. */
export function nextAt(connection: Connection, { key, rate }: Slot): number {
  if (rate === undefined) return Number.NEGATIVE_INFINITY;
  const grant = connection.get(selectGrant, key, key, rate.count, rate.count, key);
  return grant === undefined ? Number.NEGATIVE_INFINITY : Number(grant["at"]) + rate.perMs;
}

function heldOf(connection: Connection, key: string): number {
  return Number(connection.get(selectHeld, key)?.["held"] ?? 0);
}

/** Whether as many runs hold a slot as may, or its rate gives none now. */
function isUsedUp(connection: Connection, slot: Slot, now: number): boolean {
  return heldOf(connection, slot.key) >= (slot.max ?? Number.POSITIVE_INFINITY) || nextAt(connection, slot) > now;
}

/** The first slot that gives a run no permit: it is used up, or other runs stand in its line in front of the run. */
function refusing(connection: Connection, asking: Asking, now: number): Slot | undefined {
  const { id = Number.POSITIVE_INFINITY, key, priority = 0, kept } = asking;
  return slotsOf(asking).find((slot) => {
    if (isUsedUp(connection, slot, now)) return true;
    const other = connection.get(selectFirst, slot.key);
    if (other === undefined || Number(other["id"]) === id) return false;
    if (Number(other["priority"]) !== priority) return Number(other["priority"]) > priority;
    const turn = (slot.key === key ? kept : null) ?? nextTurn(connection, slot.key, priority, now);
    return turn > Number(other["turn"]) || (turn === Number(other["turn"]) && id > Number(other["id"]));
  });
}

function nextTurn(connection: Connection, key: string, priority: number, now: number): number {
  if (priority !== 0) return now;
  return Math.max(now, (toNumber(connection.get(selectLast, key)?.["last"]) ?? Number.NEGATIVE_INFINITY) + 1);
}

/** Where a run goes that a slot refuses. */
function placeIn(connection: Connection, asking: Asking, { key, max }: Slot, now: number): Place & { line: string } {
  const slot_max = countable(max ?? Number.POSITIVE_INFINITY);
  const kept = asking.key === key ? (asking.kept ?? null) : null;
  const turn = turnOf(connection, { key, max: slot_max, priority: asking.priority, kept }, now);
  return { holds_slot: false, line: key, turn, since: null, slot: key, slot_max };
}

/** Counts the permits that a run gets. */
function countPermits(connection: Connection, asking: Asking, now: number): void {
  if (asking.limits === undefined) countHolder(connection, asking.key);
  for (const { key, max, rate } of asking.limits ?? []) {
    if (max !== undefined) countHolder(connection, key);
    if (rate === undefined) continue;
    connection.run(upsertRate, key, rate.count, countable(now + rate.perMs));
    connection.run(insertGrant, key, countable(now), key);
    const grants = connection.get(selectGrants, key, key, key);
    const kept = Number(grants?.["kept"]);
    const last = Number(grants?.["last"]);
    if (last - Number(grants?.["first"]) >= 2 * kept)
      connection.run("DELETE FROM cadenza_grants WHERE key = ? AND n <= ?", key, last - kept);
  }
}

/** A run that is stored gets the permits that it needs. */
export function takePermits(connection: Connection, asking: Asking & { readonly id: number }, now: number): void {
  countPermits(connection, asking, now);
  const { id, key, max, limits } = asking;
  if (limits !== undefined) connection.run(updateSlot, key, max, withoutRates(limits), id);
}

/** A run gives the permits back of several slots. */
export function giveBack(connection: Connection, limits: readonly Slot[]): void {
  for (const { key, max } of limits)
    if (max !== undefined) connection.run("UPDATE cadenza_slots SET held = held - 1 WHERE key = ?", key);
}

/** Notes when a rate gives again, if that is what the first in line waits for. */
export function mark(connection: Connection, key: string): void {
  const found = connection.get("SELECT kept FROM cadenza_slots WHERE key = ?", key);
  if (typeof found?.["kept"] !== "number" && typeof found?.["kept"] !== "bigint") return;
  const row = connection.get(selectFirst, key);
  const slot = row && limitsIn(row["limits"])?.find((limit) => limit.key === key);
  const isFull = slot !== undefined && heldOf(connection, key) >= (slot.max ?? Number.POSITIVE_INFINITY);
  const at = slot?.rate === undefined || isFull ? null : Math.max(nextAt(connection, slot), EVER_BEFORE);
  connection.run("UPDATE cadenza_slots SET look_at = ? WHERE key = ? AND look_at IS NOT ?", at, key, at);
}

/** Gives permits of rates to those that wait for their times. */
export function lookAtMarks(connection: Connection, now: () => number): void {
  const marked = connection.all(
    "SELECT key FROM cadenza_slots WHERE look_at <= ? ORDER BY look_at, key LIMIT 256",
    now(),
  );
  for (const { key } of marked) connection.run("UPDATE cadenza_slots SET look_at = NULL WHERE key = ?", String(key));
  for (const { key } of marked) letIn(connection, String(key), 0, now);
}

/**
 * Gives permits to the runs in a line of which some need others, too. If another slot is used up, the run goes to the end of the
 * line of that one, and lets the next one pass.
 */
function letInLimited(connection: Connection, key: string, now: () => number): void {
  let moved = 0;
  for (let row = connection.get(selectFirst, key); row !== undefined; row = connection.get(selectFirst, key)) {
    const asking = askingOf(row);
    const own = slotsOf(asking).find((slot) => slot.key === key);
    if (own === undefined || isUsedUp(connection, own, now())) break;
    // Who stands in the other lines does not matter: the first of two lines would refuse each other without end.
    const other = slotsOf(asking).find((slot) => slot.key !== key && isUsedUp(connection, slot, now()));
    if (other === undefined) {
      connection.run(updateLetIn, now(), now(), asking.id);
      takePermits(connection, asking, now());
      continue;
    }
    moved += 1;
    if (moved > MAX_MOVED) {
      connection.run("UPDATE cadenza_slots SET look_at = ? WHERE key = ?", now(), key);
      return;
    }
    const { line, turn, slot, slot_max } = placeIn(connection, asking, other, now());
    connection.run(updateMoved, line, turn, slot ?? null, slot_max ?? null, asking.id);
    mark(connection, line);
  }
  connection.run("DELETE FROM cadenza_slots WHERE key = ? AND held = 0 AND kept IS NULL", key);
  mark(connection, key);
}

/** Whether a run that holds no permit may get one at once: one is free, and no other run stands in front of it. */
export function hasPermitFor(connection: Connection, asking: Asking, now: number): boolean {
  return keyOfRefusing(connection, asking, now) === undefined;
}

/** The key of the first slot of which a run that holds no permit may not get one at once. */
export function keyOfRefusing(connection: Connection, asking: Asking, now: number): string | undefined {
  const { id, key, max, priority = LOWEST, limits } = asking;
  if (limits !== undefined)
    return limits.find((slot) => {
      const other = connection.get(selectFirst, slot.key);
      return (other !== undefined && Number(other["id"]) !== id) || isUsedUp(connection, slot, now);
    })?.key;
  const slot = connection.get(selectSlot, key, key, priority);
  return Number(slot?.["held"] ?? 0) < max && (toNumber(slot?.["first"]) ?? id) === id ? undefined : key;
}

/** One more run holds the slot. */
function countHolder(connection: Connection, key: string): void {
  connection.run("INSERT INTO cadenza_slots (key, held) VALUES (?, 1) ON CONFLICT DO UPDATE SET held = held + 1", key);
}

/** Gives free permits to the runs of the line, as long as the first of them gets one. `freed`: how many have just become free. */
export function letIn(connection: Connection, key: string, freed: number, now: () => number): void {
  const slot = connection.get(selectHeld, key);
  const before = Number(slot?.["held"] ?? 0);
  let held = before - freed;
  let run = connection.get(selectFirst, key);
  for (; run !== undefined && run["limits"] === null; run = connection.get(selectFirst, key)) {
    if (held >= Number(run["slot_max"])) break;
    connection.run(updateLetIn, now(), now(), Number(run["id"]));
    held += 1;
  }
  const isLimited = run !== undefined && run["limits"] !== null;
  const isIdle = slot !== undefined && held === 0 && run === undefined;
  if (held !== before || isIdle) setHeld(connection, key, held, isLimited);
  if (isLimited) letInLimited(connection, key, now);
}

/** `stays`: the slot may have turns that others have to go behind, also if no run holds it. */
function setHeld(connection: Connection, key: string, held: number, stays: boolean): void {
  const upsert = "INSERT INTO cadenza_slots (key, held) VALUES (?, ?) ON CONFLICT DO UPDATE SET held = excluded.held";
  const remove = "DELETE FROM cadenza_slots WHERE key = ? AND kept IS NULL";
  if (held === 0 && !stays && Number(connection.run(remove, key).changes) > 0) return;
  connection.run(upsert, key, held);
}

/**
 * The turn of a run that joins a line now: the one that it kept, or one behind all that have joined. Among the few of other
 * priorities than 0 it is the time.
 */
export function turnOf(connection: Connection, { key, priority, kept }: Asking, now: number): number {
  if (priority !== undefined && priority !== 0) return kept ?? now;
  const last = toNumber(connection.get(selectLast, key)?.["last"]) ?? Number.NEGATIVE_INFINITY;
  const turn = kept ?? Math.max(now, last + 1);
  if (turn > last) connection.run("UPDATE cadenza_slots SET last = ? WHERE key = ?", turn, key);
  return turn;
}

/** Whether a run that holds no permit needs one now, since its time has come. A blocked run waits for other code first. */
export function needsPermit({ finished_at, owner, due_at, blocked, holds_slot }: RunHead, now: number): boolean {
  const isFree = finished_at === null && owner === null && blocked === null && !holds_slot;
  return isFree && due_at !== null && due_at <= now;
}

/** Where a run goes that needs a permit. The permit that it gets at once is not counted. */
export function enter(connection: Connection, asking: Asking, now: number): Place {
  const since = asking.isOwned ? null : countable(now);
  if (asking.limits !== undefined) {
    const other = refusing(connection, asking, now);
    if (other !== undefined) return placeIn(connection, asking, other, now);
    return { holds_slot: true, line: null, turn: null, since, limits: withoutRates(asking.limits) };
  }
  if (hasPermitFor(connection, asking, now)) return { holds_slot: true, line: null, turn: null, since };
  return { holds_slot: false, line: asking.key, turn: turnOf(connection, asking, now), since: null };
}

/**
 * Counts the permit that a run has got at once. One that has joined the line may be the first there: where the clock was set
 * back, also of its own priority.
 */
export function settleNew(connection: Connection, asking: Asking, place: Place, now: () => number): void {
  const { key, priority } = asking;
  if (place.holds_slot) countPermits(connection, asking, now());
  else if (asking.limits !== undefined && place.slot !== undefined) mark(connection, place.slot);
  else if (place.line === key && priority !== 0) letIn(connection, key, 0, now);
}

/** How a run that waits for no permit stands to its slot. `since`: since when it has held the permit without an owner. */
export function heldPlace(
  { finished_at, owner, holds_slot }: RunHead,
  now: () => number,
  since: number | null = null,
): Place {
  const isReserved = holds_slot && finished_at === null && owner === null;
  return { holds_slot, line: null, turn: null, since: isReserved ? (since ?? countable(now())) : null };
}

/** What a write changes of a run besides its head and its length. */
interface RunChanges {
  readonly wakes?: number;
  /** How many rows of the inbox are the run's. Left out: as many as before. */
  readonly arrived?: number;
  readonly forLook?: boolean;
  /** Whether the run waits for a permit under its owner. Left out: as before. */
  readonly asks?: boolean;
}

/**
 * Gives a run another head and length, and its place in the line of its slot. A change of owner resets `wakes`. With
 * `forLook` the run may be taken without a permit, until it has an owner.
 */
export function changeRun(
  connection: Connection,
  run: RunRow,
  given: RunHead,
  position: number,
  now: () => number,
  { wakes, arrived, forLook = false, asks }: RunChanges = {},
): void {
  const { slot, since, priority, gate } = run;
  const wasBehind = isBehind(run);
  const { line, turn } = wasBehind ? { line: null, turn: null } : run;
  const isOwned = given.owner !== null && given.finished_at === null;
  const isAsking = slot !== null && isOwned && (asks ?? line !== null);
  const head = isAsking && run.holds_slot !== 0 ? { ...given, holds_slot: true } : given;
  const look = slot !== null && head.owner === null && (forLook || run.look !== 0) ? 1 : 0;
  const passes = forLook || look !== 0 || (slot !== null && (head.holds_slot || turn !== null));
  const stays = staysBehind(connection, run, head, passes, now);
  const behind = stays ? { line: gate, turn: wasBehind ? run.turn : countable(now()) } : undefined;
  if (slot === null) {
    const place = { line, turn, since, ...behind };
    const came_at = cameAt(run, head, place.line, now);
    updateRow(connection, run, head, position, { wakes, arrived, look, ...place, came_at });
    return;
  }
  const holds = head.finished_at === null && head.holds_slot;
  const held = run.finished_at === null && run.holds_slot !== 0;
  const isDue = !stays && look === 0 && needsPermit(line === null ? head : { ...head, blocked: null }, now());
  const waits = isDue || (isAsking && !holds);
  const keeps = held && holds;
  const limits = limitsIn(run.limits);
  const asking = { id: run.id, key: slot, max: Number(run.slot_max), priority, kept: turn, isOwned, limits };
  const inLine = waits && line !== null && !stays;
  let before = run;
  if (limits !== undefined) {
    if (held && !holds) giveBack(connection, limits);
    if (!held && holds) countPermits(connection, asking, now());
    if (line !== null && !inLine) {
      connection.run("UPDATE cadenza_runs SET line = NULL, turn = NULL WHERE id = ?", run.id);
      before = { ...run, line: null, turn: null };
    }
    if (!inLine) for (const { key } of limits) letIn(connection, key, 0, now);
  } else if (held && !keeps) letIn(connection, slot, 1, now);
  let place = heldPlace(head, now, since);
  if (limits !== undefined && !held && holds) place = { ...place, limits: withoutRates(limits) };
  if (behind !== undefined) place = { ...place, ...behind };
  else if (waits) place = line === null ? enter(connection, asking, now()) : { ...place, line, turn };
  else if (!holds && (head.owner !== null || look !== 0)) place = { ...place, turn };
  // A run that has got a permit comes among the due ones.
  const hasCome = waits && line === null && place.holds_slot;
  const came_at = cameAt(hasCome ? { ...run, due_at: null } : run, head, place.line, now);
  const changes = { wakes, arrived, look, ...place, came_at };
  updateRow(connection, before, { ...head, holds_slot: place.holds_slot }, position, changes);
  if (limits !== undefined) {
    if (place.holds_slot && !holds && !stays && head.finished_at === null) countPermits(connection, asking, now());
    if (place.slot !== undefined) mark(connection, place.slot);
    if (inLine) for (const { key } of limits) letIn(connection, key, 0, now);
    return;
  }
  if (!keeps && place.holds_slot && head.finished_at === null) countHolder(connection, slot);
  if (line !== (stays ? null : place.line)) letIn(connection, slot, 0, now);
}

/** Lets runs through a gate, if few are: they join the lines of their slots, or are due from now on. */
export function letThrough(connection: Connection, gate: string, now: number): void {
  const room = roomAt(connection, gate, now);
  if (room === 0) return;
  for (const row of connection.all(selectBehind, gate, room)) {
    const asking = row["slot"] === null ? undefined : askingOf(row);
    const due: Place = { holds_slot: Number(row["holds_slot"]) !== 0, line: null, turn: null, since: null };
    const place = asking === undefined ? due : enter(connection, asking, now);
    const { line, turn, since, slot, slot_max, limits } = place;
    connection.run(updateThrough, place.holds_slot ? 1 : 0, line, turn, since, line, countable(now), Number(row["id"]));
    if (asking?.limits !== undefined)
      connection.run(
        updateSlot,
        slot ?? asking.key,
        slot_max ?? asking.max,
        limits ?? toJson(asking.limits),
        asking.id,
      );
    if (asking !== undefined) settleNew(connection, asking, place, () => now);
  }
}

/** Forgets what rates have given, where it does not count any more and no run waits. */
export function forgetGrants(connection: Connection, now: number): void {
  const idle = `held = 0 AND until <= ?
    AND NOT EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.line = s.key AND r.finished_at IS NULL)`;
  connection.run(`DELETE FROM cadenza_grants WHERE key IN (SELECT key FROM cadenza_slots s WHERE ${idle})`, now);
  connection.run(`DELETE FROM cadenza_slots AS s WHERE ${idle}`, now);
}
