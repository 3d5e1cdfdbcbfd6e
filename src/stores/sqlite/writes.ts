import { needsOwner, stillCancelling } from "../../core/head.ts";
import type { Labels, MovedEntry } from "../../core/log.ts";
import type {
  Expected,
  RunHead,
  RunKey,
  RunPost,
  RunWrite,
  StoreConflict,
  WrittenWithInbox,
} from "../../core/ports.ts";
import { userOf } from "../../core/user.ts";
import { countable, fromText, insertedColumns, toHead, toJson, toLines, toText, toTextOrNull } from "../stored-rows.ts";
import type { Connection } from "./database.ts";
import { addLines } from "./entries.ts";
import { addToFeed } from "./feed.ts";
import { asksGate, isCrowded, toGate } from "./gates.ts";
import { addToInbox, emptyInbox, hasMore, readInbox, takeFromInbox } from "./inbox.ts";
import { fromHead } from "./rows.ts";
import type { RunRow } from "./run-row.ts";
import { findRow } from "./run-row.ts";
import { addToCounters, changeSession, isForeign } from "./sessions.ts";
import type { Place } from "./slots.ts";
import {
  changeRun,
  enter,
  hasPermitFor,
  heldPlace,
  keyOfRefusing,
  letIn,
  limitsIn,
  needsPermit,
  settleNew,
  toLimits,
  withoutRates,
} from "./slots.ts";
import { leaseEnd } from "./work.ts";

/*
 * Writes inside a transaction. Each function checks before it writes: a refusal has written nothing, so that nothing
 * has to be rolled back.
 */

const inserted = [
  ...insertedColumns,
  "created_by",
  "line",
  "turn",
  "since",
  "plain",
  "priority",
  "gate",
  "came_at",
  "limits",
];
/** SQLite gives an id anew that was the highest. That of a deleted run is not free while entries of the run are left. */
const newId = `CASE WHEN EXISTS (SELECT 1 FROM cadenza_removed) THEN (
  SELECT max(run) + 1 FROM cadenza_removed WHERE run >= ifnull((SELECT max(id) FROM cadenza_runs), 0)) END`;
const insertRun = `
  INSERT INTO cadenza_runs (id, ${inserted.join(", ")}) VALUES (${[newId, ...inserted.map(() => "?")].join(", ")})
  ON CONFLICT DO NOTHING`;

/**
 * A write with its entries as text. What JSON cannot carry fails here, before it shares a transaction with other
 * writes.
 */
export interface PreparedWrite {
  readonly write: RunWrite;
  readonly lines: string;
}

/** Turns the entries of a write into text. */
export function prepareWrite(write: RunWrite): PreparedWrite {
  return { write, lines: toLines(write.entries) };
}

export function createRun(
  connection: Connection,
  key: RunKey,
  { write, lines }: PreparedWrite,
  idempotencyKey: string | null,
  now: () => number,
): StoreConflict | undefined {
  const [created] = write.entries;
  if (created?.type !== "created") throw new TypeError("The first entry of a run is `created`.");
  const { slots, head, priority = 0 } = write;
  const slot = slots?.[0];
  const tenant = toText(key.tenant);
  const runId = toText(key.run_id);
  const used = toTextOrNull(idempotencyKey);
  if (isForeign(connection, key.tenant, write.session)) return { conflict: "foreign" };
  const limits = toLimits(slots);
  const max = countable(slot?.max ?? Number.POSITIVE_INFINITY);
  const asking = slot && { key: toText(slot.key), max, priority, limits };
  const refusing = asking && head.holds_slot && keyOfRefusing(connection, { ...asking, priority: undefined }, now());
  if (typeof refusing === "string")
    return creationConflict(connection, tenant, runId, used) ?? { conflict: "full", key: fromText(refusing) };
  if (limits !== undefined) {
    const conflict = creationConflict(connection, tenant, runId, used);
    if (conflict !== undefined) return conflict;
    for (const limit of limits) letIn(connection, limit.key, 0, now);
  }
  const isOwned = head.owner !== null && head.finished_at === null;
  const asks = write.asks === true && isOwned && !head.holds_slot;
  const isFree = head.owner === null && head.finished_at === null;
  const gate = toGate(write.gate);
  const passes = asking !== undefined && head.holds_slot;
  const stays = gate !== null && !passes && asksGate(head, now()) && isCrowded(connection, gate, now());
  const waits = asking !== undefined && !stays && (asks || needsPermit(head, now()));
  const stands = stays ? { line: gate, turn: countable(now()) } : undefined;
  const place: Place = waits
    ? enter(connection, { ...asking, isOwned }, now())
    : { ...heldPlace(head, now), ...stands };
  const { changes, lastInsertRowid } = connection.run(
    insertRun,
    tenant,
    runId,
    toText(created.agent_name),
    toTextOrNull(created.version ?? null),
    toText(created.session_id),
    toTextOrNull(created.parent?.run_id ?? null),
    used,
    place.slot ?? asking?.key ?? null,
    place.slot_max ?? asking?.max ?? null,
    ...fromHead({ ...head, holds_slot: place.holds_slot }),
    write.entries.length,
    created.at,
    toTextOrNull(userOf(created.principal) ?? null),
    place.line,
    place.turn,
    place.since,
    created.durable === true ? null : 1,
    priority,
    gate,
    gate === null || place.line !== null || !isFree || head.due_at === null
      ? null
      : Math.max(head.due_at, countable(now())),
    limits === undefined ? null : (place.limits ?? (place.holds_slot ? withoutRates(limits) : toJson(limits))),
  );
  if (Number(changes) === 0) return creationConflict(connection, tenant, runId, used);
  if (asking !== undefined && head.finished_at === null) settleNew(connection, asking, place, now);
  addLines(connection, Number(lastInsertRowid), 0, lines);
  if (created.labels !== undefined) addLabels(connection, Number(lastInsertRowid), tenant, created.labels);
  settle(connection, key, created.agent_name, write, now);
  return undefined;
}

export function appendToRun(
  connection: Connection,
  key: RunKey,
  expected: Expected,
  { write, lines }: PreparedWrite,
  now: () => number,
): StoreConflict | WrittenWithInbox | undefined {
  const run = findRow(connection, toText(key.tenant), toText(key.run_id));
  if (run === undefined) return { conflict: "missing" };
  const { head, entries } = write;
  const refusal =
    changed(run, expected) ??
    unseenWakeUp(run, expected, head) ??
    leftInInbox(connection, run, write) ??
    missingPermit(connection, run, head, now);
  if (refusal !== undefined) return refusal;
  const { position } = expected;
  addLines(connection, run.id, position, lines);
  const { arrived, added } =
    run.arrived === 0 ? noInbox : changeInbox(connection, key, run, position + entries.length, write.takes, now);
  const length = position + entries.length + added;
  changeRun(connection, run, stillDue(run, stillCancelling(run.status, head)), length, now, {
    arrived,
    asks: write.asks === true,
  });
  settle(connection, key, fromText(run.agent_name), write, now);
  return arrived === 0 || head.owner === null ? undefined : readInbox(connection, key, run.id);
}

export function postToRun(
  connection: Connection,
  key: RunKey,
  post: RunPost,
  lines: string,
  now: () => number,
): StoreConflict | undefined {
  const run = findRow(connection, toText(key.tenant), toText(key.run_id));
  if (run === undefined) return { conflict: "missing" };
  const before = toHead(run);
  if (before.finished_at !== null) return { conflict: "ended" };
  if (before.status === "cancelling" && post.unlessCancelling === true) return { conflict: "cancelling" };
  if (before.owner !== null) {
    addToInbox(connection, run.id, post, lines);
    const arrived = run.arrived + 1;
    const head = stillCancelling(before.status, { ...before, status: post.status ?? before.status });
    changeRun(connection, run, head, run.position, now, { arrived });
    return undefined;
  }
  if (needsOwner(post)) return { conflict: "changed", epoch: before.epoch, position: run.position };
  const blocked = post.unblocks === true ? null : before.blocked;
  const becomesDue = post.due !== undefined && blocked === null;
  const due_at = becomesDue ? Math.min(before.due_at ?? Number.POSITIVE_INFINITY, now()) : before.due_at;
  const position = run.position;
  const head = { ...before, status: post.status ?? before.status, blocked, due_at };
  const forLook = becomesDue && post.due === "look";
  changeRun(connection, run, head, position + post.entries.length, now, { forLook });
  addLines(connection, run.id, position, lines);
  if (post.feed !== undefined) addToFeed(connection, key, run.agent_name, post.feed, now());
  return undefined;
}

export function claimRun(
  connection: Connection,
  key: RunKey,
  expected: Expected,
  head: RunHead,
  now: () => number,
): StoreConflict | undefined {
  const run = findRow(connection, toText(key.tenant), toText(key.run_id));
  if (run === undefined) return { conflict: "missing" };
  if (run.finished_at !== null) return { conflict: "ended" };
  const refusal = changed(run, expected);
  if (refusal !== undefined) return refusal;
  const { owner } = run;
  if (owner !== null && leaseEnd(connection, owner, now()) > now()) return { conflict: "owned" };
  const full = missingPermit(connection, run, head, now);
  if (full !== undefined) return full;
  // The process that claims a run checks everything that the run waits for.
  const added = run.arrived === 0 ? 0 : emptyInbox(connection, key, run.id, expected.position, now);
  const length = expected.position + added;
  changeRun(connection, run, stillCancelling(run.status, head), length, now, {
    wakes: 0,
    arrived: 0,
    asks: false,
  });
  return undefined;
}

export function moveRun(
  connection: Connection,
  key: RunKey,
  expected: Pick<Expected, "epoch" | "position">,
  moved: MovedEntry,
  now: () => number,
): StoreConflict | undefined {
  const run = findRow(connection, toText(key.tenant), toText(key.run_id));
  if (run === undefined) return { conflict: "missing" };
  const head = toHead(run);
  if (head.finished_at !== null) return { conflict: "ended" };
  const refusal = changed(run, expected);
  if (refusal !== undefined) return refusal;
  if (head.owner !== null) return { conflict: "owned" };
  const due_at = head.blocked === null ? head.due_at : Math.min(head.due_at ?? Number.POSITIVE_INFINITY, now());
  connection.run("UPDATE cadenza_runs SET version = ? WHERE id = ?", toTextOrNull(moved.version), run.id);
  changeRun(connection, run, { ...head, epoch: head.epoch + 1, blocked: null, due_at }, run.position + 1, now, {});
  addLines(connection, run.id, run.position, toLines([moved]));
  return undefined;
}

function addLabels(connection: Connection, run: number, tenant: string, labels: Labels): void {
  const insert = "INSERT INTO cadenza_labels (run, name, value, tenant) VALUES (?, ?, ?, ?)";
  for (const [name, value] of Object.entries(labels)) connection.run(insert, run, toText(name), toText(value), tenant);
}

function creationConflict(
  connection: Connection,
  tenant: string,
  runId: string,
  used: string | null,
): StoreConflict | undefined {
  if (findRow(connection, tenant, runId) !== undefined) return { conflict: "exists" };
  if (used === null) return undefined;
  const select = "SELECT run_id FROM cadenza_runs WHERE tenant = ? AND idempotency_key = ?";
  const other = connection.get(select, tenant, used);
  return other && { conflict: "key_used", run_id: fromText(String(other["run_id"])) };
}

function changed(run: RunRow, expected: Expected): StoreConflict | undefined {
  const { epoch, position } = run;
  const isSameOwner = expected.owner === undefined || toTextOrNull(expected.owner) === run.owner;
  if (epoch === expected.epoch && position === expected.position && isSameOwner) return undefined;
  return { conflict: "changed", epoch, position };
}

function unseenWakeUp(run: RunRow, { wakes = 0 }: Expected, head: RunHead): StoreConflict | undefined {
  const isGivenUp = run.owner !== null && head.owner === null && head.finished_at === null;
  return isGivenUp && run.wakes !== wakes ? { conflict: "woken", wakes: run.wakes } : undefined;
}

/** The conflict of a write that leaves something behind in the inbox which its writer has to know. */
function leftInInbox(connection: Connection, run: RunRow, { head, takes }: RunWrite): StoreConflict | undefined {
  const isOver = head.finished_at !== null;
  const isGivenUp = run.owner !== null && head.owner === null && !isOver;
  const isAsked = isGivenUp || (isOver && run.status === "cancelling");
  if (run.arrived === 0 || !isAsked || !hasMore(connection, run.id, takes, isOver ? "a cancel" : "anything"))
    return undefined;
  return { conflict: "arrived" };
}

const noInbox = { arrived: 0, added: 0 };

/** Takes from an inbox what a write takes. Answers how much is left, and how many entries went into the log. */
function changeInbox(
  connection: Connection,
  key: RunKey,
  run: RunRow,
  end: number,
  takes: RunWrite["takes"],
  now: () => number,
): typeof noInbox {
  if (takes === "all") return { arrived: 0, added: emptyInbox(connection, key, run.id, end, now) };
  if (takes === undefined) return { arrived: run.arrived, added: 0 };
  return { arrived: run.arrived - takeFromInbox(connection, run.id, takes), added: 0 };
}

/** The head after a write. A run that was woken without an owner stays due until it has one, ends or is blocked. */
function stillDue(run: RunRow, head: RunHead): RunHead {
  if (run.wakes === 0 || run.owner !== null || head.owner !== null) return head;
  const { due_at } = toHead(run);
  if (due_at === null || head.finished_at !== null || head.blocked !== null) return head;
  return { ...head, due_at: Math.min(due_at, head.due_at ?? due_at) };
}

/** The conflict of a run whose head newly holds its slot while no permit is free for it. */
function missingPermit(
  connection: Connection,
  run: RunRow,
  head: RunHead,
  now: () => number,
): StoreConflict | undefined {
  const { id, slot: key } = run;
  if (key === null || !head.holds_slot || head.finished_at !== null || run.holds_slot !== 0) return undefined;
  return hasPermitFor(connection, { id, key, max: Number(run.slot_max), limits: limitsIn(run.limits) }, now())
    ? undefined
    : { conflict: "full" };
}

/** Applies what comes with the entries of a write: the session, the counters, the run to wake and the feed. */
function settle(
  connection: Connection,
  key: RunKey,
  agentName: string,
  { session, counters, wake, feed }: RunWrite,
  now: () => number,
): void {
  if (session !== undefined) changeSession(connection, key.tenant, session);
  if (counters !== undefined) addToCounters(connection, agentName, counters);
  if (wake !== undefined) wakeRun(connection, wake, now);
  if (feed !== undefined) addToFeed(connection, key, toText(agentName), feed, now());
}

function wakeRun(connection: Connection, key: RunKey, now: () => number): void {
  const run = findRow(connection, toText(key.tenant), toText(key.run_id));
  if (run === undefined || run.finished_at !== null) return;
  const head = toHead(run);
  const wakes = run.wakes + 1;
  if (head.owner !== null) changeRun(connection, run, head, run.position, now, { wakes });
  else if (head.blocked === null) {
    const due_at = Math.min(head.due_at ?? Number.POSITIVE_INFINITY, now());
    changeRun(connection, run, { ...head, due_at }, run.position, now, { wakes });
  }
}
