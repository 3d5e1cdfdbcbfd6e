import type { RunHead } from "../../core/ports.ts";
import { countable, toNumber } from "../stored-rows.ts";
import type { Connection } from "./database.ts";
import type { RunRow } from "./run-row.ts";
import { updateRow } from "./run-row.ts";

/*
 * Permits of slots. A run that needs one is due only together with it. Until then it stands in the line of its slot, and
 * whatever frees a permit gives it to the first run of the line.
 */

const first = "FROM cadenza_runs WHERE line = ? AND finished_at IS NULL ORDER BY rank, id LIMIT 1";
const selectFirst = `SELECT id, slot_max ${first}`;
const selectHeld = "SELECT held FROM cadenza_slots WHERE key = ?";
const selectSlot = `SELECT (${selectHeld}) AS held, (SELECT id ${first}) AS first`;
const updateLetIn = `
  UPDATE cadenza_runs SET holds_slot = 1, line = NULL, rank = NULL, since = iif(owner IS NULL, ?, NULL) WHERE id = ?`;
const selectLast = "SELECT last FROM cadenza_slots WHERE key = ?";

/** What a permit is asked for. A run that is not written yet has no id. */
interface Asking {
  readonly id?: number;
  readonly key: string;
  readonly max: number;
  /** The rank of a run that was looked at while it waited. */
  readonly kept?: number | null;
  /** Whether the run waits under its owner. */
  readonly isOwned?: boolean;
}

/** How a run stands to its slot after a write. */
export interface Place {
  readonly holds_slot: boolean;
  readonly line: string | null;
  readonly rank: number | null;
  /** Since when it holds a permit without an owner. */
  readonly since: number | null;
}

/** Whether a run that holds no permit may get one at once: one is free, and no other run waits for it. */
export function hasPermitFor(connection: Connection, { id, key, max }: Asking): boolean {
  const slot = connection.get(selectSlot, key, key);
  return Number(slot?.["held"] ?? 0) < max && (toNumber(slot?.["first"]) ?? id) === id;
}

/** One more run holds the slot. */
export function countHolder(connection: Connection, key: string): void {
  connection.run("INSERT INTO cadenza_slots (key, held) VALUES (?, 1) ON CONFLICT DO UPDATE SET held = held + 1", key);
}

/** Gives free permits to the runs of the line, as long as the first of them gets one. `freed`: how many have just become free. */
export function letIn(connection: Connection, key: string, freed: number, now: () => number): void {
  const before = Number(connection.get(selectHeld, key)?.["held"] ?? 0);
  let held = before - freed;
  for (let run = connection.get(selectFirst, key); run !== undefined; run = connection.get(selectFirst, key)) {
    if (held >= Number(run["slot_max"])) break;
    connection.run(updateLetIn, now(), Number(run["id"]));
    held += 1;
  }
  if (held === before) return;
  if (held === 0) connection.run("DELETE FROM cadenza_slots WHERE key = ?", key);
  else
    connection.run(
      "INSERT INTO cadenza_slots (key, held) VALUES (?, ?) ON CONFLICT DO UPDATE SET held = excluded.held",
      key,
      held,
    );
}

/** The rank of a run that joins a line now: the one that it kept, or one behind all that have joined. */
export function rankOf(connection: Connection, { key, kept }: Asking, now: number): number {
  const last = toNumber(connection.get(selectLast, key)?.["last"]) ?? Number.NEGATIVE_INFINITY;
  const rank = kept ?? Math.max(now, last + 1);
  if (rank > last) connection.run("UPDATE cadenza_slots SET last = ? WHERE key = ?", rank, key);
  return rank;
}

/** Whether a run that holds no permit needs one now, since its time has come. A blocked run waits for other code first. */
export function needsPermit({ finished_at, owner, due_at, blocked, holds_slot }: RunHead, now: number): boolean {
  const isFree = finished_at === null && owner === null && blocked === null && !holds_slot;
  return isFree && due_at !== null && due_at <= now;
}

/** Where a run goes that needs a permit. The permit that it gets at once is not counted. */
export function enter(connection: Connection, asking: Asking, now: number): Place {
  const since = asking.isOwned ? null : countable(now);
  if (hasPermitFor(connection, asking)) return { holds_slot: true, line: null, rank: null, since };
  return { holds_slot: false, line: asking.key, rank: rankOf(connection, asking, now), since: null };
}

/** How a run that waits for no permit stands to its slot. `since`: since when it has held the permit without an owner. */
export function heldPlace(
  { finished_at, owner, holds_slot }: RunHead,
  now: () => number,
  since: number | null = null,
): Place {
  const isReserved = holds_slot && finished_at === null && owner === null;
  return { holds_slot, line: null, rank: null, since: isReserved ? (since ?? countable(now())) : null };
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
  const { slot, line, rank, since } = run;
  const isOwned = given.owner !== null && given.finished_at === null;
  const isAsking = slot !== null && isOwned && (asks ?? line !== null);
  const head = isAsking && run.holds_slot !== 0 ? { ...given, holds_slot: true } : given;
  const look = slot !== null && head.owner === null && (forLook || run.look !== 0) ? 1 : 0;
  if (slot === null) {
    updateRow(connection, run, head, position, { wakes, arrived, look, line, rank, since });
    return;
  }
  const holds = head.finished_at === null && head.holds_slot;
  const held = run.finished_at === null && run.holds_slot !== 0;
  const isDue = look === 0 && needsPermit(line === null ? head : { ...head, blocked: null }, now());
  const waits = isDue || (isAsking && !holds);
  const keeps = held && holds;
  if (held && !keeps) letIn(connection, slot, 1, now);
  let place = heldPlace(head, now, since);
  if (waits)
    place =
      line === null
        ? enter(connection, { id: run.id, key: slot, max: Number(run.slot_max), kept: rank, isOwned }, now())
        : { ...place, line, rank };
  else if (!holds && (head.owner !== null || look !== 0)) place = { ...place, rank };
  updateRow(connection, run, { ...head, holds_slot: place.holds_slot }, position, { wakes, arrived, look, ...place });
  if (!keeps && place.holds_slot && head.finished_at === null) countHolder(connection, slot);
  if (line !== place.line) letIn(connection, slot, 0, now);
}
