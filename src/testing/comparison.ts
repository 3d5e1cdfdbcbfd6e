import type { PartSource } from "../core/emission-source.ts";
import { isCopy, stepOf } from "../core/emission-source.ts";
import { sameJson } from "../core/json.ts";
import type { Entry } from "../core/log.ts";
import { waitKeys } from "../core/operation-keys.ts";
import type { JsonValue } from "../protocol/json.ts";
import { questionText, quote } from "./drive-event.ts";
import { diffLines } from "./text-diff.ts";

/** An entry that is compared, and its position in its log, counted from 1. */
export interface Comparable {
  readonly number: number;
  readonly entry: Entry;
}

/** Where an agent does not match its cassette. */
export interface Difference {
  /** The number of the first entry of the cassette that differs, counted from 1. */
  readonly entry: number;
  /** What the cassette holds; undefined for nothing. */
  readonly expected: JsonValue | undefined;
  /** What the agent did; undefined for nothing. */
  readonly received: JsonValue | undefined;
}

/**
 * The entries of a log that are compared: what the agent emitted and asked, the end of each wait, and the end of the
 * run. Times, ids and usage are left out. So are the results of steps, which the cassette provides, what attempts
 * before the last one emitted, and what other processes have posted.
 */
export function comparable(entries: readonly Entry[]): Comparable[] {
  const attempts = lastAttempts(entries);
  const waits = waitKeys(entries);
  return entries
    .map((entry, index) => ({ entry, number: index + 1 }))
    .filter(({ entry }) => {
      switch (entry.type) {
        case "created":
        case "started":
        case "forked":
        case "intent":
        case "attempt-failed":
        case "patched":
        case "moved":
        case "received":
        case "offered":
        case "refused":
        case "settled":
          return false;
        case "step":
          return waits.has(entry.key);
        case "emitted":
          // What a sub-run shows comes with its result.
          if (isCopy(entry.source)) return false;
          return (
            entry.kind !== "part" ||
            entry.source === undefined ||
            entry.source.attempt === attempts.get(entry.source.key)
          );
        case "torn":
          return false;
        case "awaited":
          return entry.of === undefined;
        default:
          return true;
      }
    });
}

/** The parts that a step emitted in its last attempt. */
export function emittedBy(key: string, entries: readonly Entry[]): readonly Entry[] {
  return comparable(entries)
    .map(({ entry }) => entry)
    .filter((entry) => entry.type === "emitted" && entry.kind === "part" && stepOf(entry.source)?.key === key);
}

/** Whether two entries are equal, apart from times and ids. */
export function sameEntry(a: Entry, b: Entry): boolean {
  return sameJson(essence(a), essence(b));
}

/** The compared content of an entry. */
export function essence(entry: Entry): JsonValue {
  switch (entry.type) {
    case "emitted": {
      if (entry.kind === "part") return json({ emits: "part", ...entry.part });
      if (entry.kind === "message") return json({ emits: "message", parts: entry.message.parts });
      return entry.kind === "generic" ? json({ emits: "object", object: entry.generic }) : { emits: "end of message" };
    }
    case "awaited": {
      const { at, await_id, parts, deadline } = entry;
      return json({ asks: await_id, parts, timeoutMs: deadline === undefined ? null : deadline - at });
    }
    case "resumed":
      return json({ answered: entry.await_id, answer: entry.answer });
    case "declined":
      return json({ declined: entry.await_id, reason: entry.decline.reason ?? null });
    case "withdrawn":
      return { withdraws: entry.await_id };
    case "timed-out":
      return { expired: entry.await_id ?? "the run", defaulted: entry.defaulted };
    case "exceeded":
      return { exceeds: "the budget" };
    case "received":
      return { receives: entry.name, data: entry.data };
    case "step":
      return { wakes: entry.key };
    case "continued":
      return json({ continues: entry.generation, carry: entry.carry ?? null });
    case "taken":
      return { takes: entry.key, message: entry.position !== null };
    case "ended":
      return json({ ends: entry.outcome, error: entry.error ?? null });
    default:
      return { entry: entry.type };
  }
}

/** A difference as text. */
export function describeDifference({ expected, received }: Pick<Difference, "expected" | "received">): string {
  return diffLines(write(expected), write(received))
    .split("\n")
    .map((line) => `    ${line}`)
    .join("\n");
}

/** An entry in a few words. */
export function describeEntry(entry: Entry): string {
  if (entry.type === "emitted" && entry.kind === "part") return `part ${quote(entry.part.content ?? "")}`;
  if (entry.type === "awaited") return `question ${entry.await_id} ${quote(questionText(entry.parts))}`;
  if (entry.type === "step" || entry.type === "taken") return `the end of ${entry.key}`;
  return entry.type === "ended" ? `the end, ${entry.outcome}` : entry.type;
}

function write(value: JsonValue | undefined): string {
  return value === undefined ? "(nothing)" : JSON.stringify(value, null, 2);
}

function json(value: object): JsonValue {
  return JSON.parse(JSON.stringify(value)) as JsonValue;
}

function lastAttempts(entries: readonly Entry[]): ReadonlyMap<string, number> {
  const attempts = new Map<string, number>();
  const note = ({ key, attempt }: PartSource): void => {
    attempts.set(key, Math.max(attempt, attempts.get(key) ?? 0));
  };
  for (const entry of entries) {
    if (entry.type === "intent") note(entry);
    else if (entry.type === "emitted" && entry.kind === "part" && entry.source !== undefined && !isCopy(entry.source))
      note(entry.source);
  }
  return attempts;
}
