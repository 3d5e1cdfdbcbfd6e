import { isCopy, stepOf } from "../core/emission-source.ts";
import type { Entry } from "../core/log.ts";
import { isWait } from "../core/operation-keys.ts";
import { questionText, quote } from "./drive-event.ts";

/** Where a process dies: when this entry is written, either before it is stored or right after. */
export interface CrashPoint {
  readonly mark: string;
  readonly isStored: boolean;
  /** In words: `in step charge#1, when its work was done and its result was not stored`. */
  readonly where: string;
  /** Whether the agent may behave differently after it, since a step that runs at most once fails then. */
  readonly mayDiffer: boolean;
}

/** A write to the log of one run. */
export interface SeenWrite {
  readonly run: SeenRun;
  readonly entries: readonly Entry[];
}

/** A run as it is identified in every execution of the agent. */
export interface SeenRun {
  /** The keys that lead to it; empty for the run itself. */
  readonly path: string;
  readonly agent_name: string;
}

/** What identifies an entry in every execution of the agent; undefined for an entry at which no process dies. */
export function markOf({ path }: SeenRun, entry: Entry): string | undefined {
  switch (entry.type) {
    case "created":
    case "ended":
      return `${path} ${entry.type}`;
    case "intent":
      return `${path} intent ${entry.key} ${entry.attempt}`;
    case "step":
      return `${path} step ${entry.key}`;
    case "awaited":
      return entry.of === undefined ? `${path} awaited ${entry.await_id}` : undefined;
    case "resumed":
    case "declined":
      return `${path} ${entry.type} ${entry.await_id}`;
    case "received":
      return `${path} received ${entry.idempotency_key}`;
    case "taken":
      return `${path} taken ${entry.key}`;
    case "emitted":
      // The ids of sub-runs are not the same in every execution.
      if (entry.source === undefined || isCopy(entry.source)) return undefined;
      return `${path} emitted ${entry.source.key} ${entry.source.attempt}`;
    default:
      return undefined;
  }
}

/** Every point at which a process may die that makes this write. `runsOnce` tells whether a step runs at most once. */
export function crashPointsOf(
  writes: readonly SeenWrite[],
  runsOnce: (path: string, key: string) => boolean,
): CrashPoint[] {
  const known = new Set<string>();
  const pointAt = (run: SeenRun, entry: Entry, isStored: boolean): CrashPoint[] => {
    const mark = markOf(run, entry);
    const words = wordsFor(entry, isStored);
    if (mark === undefined || words === undefined || known.has(`${mark} ${isStored}`)) return [];
    known.add(`${mark} ${isStored}`);
    const where = run.path === "" ? words : `${words}, of ${run.agent_name}`;
    const isInterrupted = isStored ? entry.type === "intent" : entry.type === "step";
    const mayDiffer = isInterrupted && "key" in entry && runsOnce(run.path, entry.key);
    return [{ mark, isStored, where, mayDiffer }];
  };
  return writes.flatMap(({ run, entries }) => {
    // A write is stored as a whole: a crash before it is before its first entry, and one after it is after its last.
    const before = entries.flatMap((entry) => pointAt(run, entry, false)).slice(0, 1);
    const after = entries.flatMap((entry) => pointAt(run, entry, true)).slice(-1);
    return [...before, ...after];
  });
}

function wordsFor(entry: Entry, isStored: boolean): string | undefined {
  switch (entry.type) {
    case "created":
      return isStored ? "before it began" : undefined;
    case "intent": {
      if (isWait(entry)) return isStored ? waiting(entry.key) : undefined;
      const attempt = entry.attempt === 1 ? "" : `, attempt ${entry.attempt}`;
      return isStored ? `before ${operation(entry.key)}${attempt}` : undefined;
    }
    case "emitted":
      return isStored ? `in step ${stepOf(entry.source)?.key ?? ""}, when it had emitted something` : undefined;
    case "step":
      if (isStored) return `after ${operation(entry.key)}`;
      if (isSleep(entry.key)) return `when ${entry.key} was over, before that was stored`;
      return `in ${operation(entry.key)}, when its work was done and its result was not stored`;
    case "awaited":
      return isStored
        ? `while it waited for the answer to ${entry.await_id} ${quote(questionText(entry.parts))}`
        : undefined;
    case "resumed":
      return isStored
        ? `after the answer to ${entry.await_id} was stored`
        : `when ${entry.await_id} was answered, before the answer was stored`;
    case "declined":
      return isStored
        ? `after the answer to ${entry.await_id} was declined, and that was stored`
        : `when the answer to ${entry.await_id} was declined, before that was stored`;
    case "received":
      return isStored
        ? `after a message ${quote(entry.name)} had arrived`
        : `when a message ${quote(entry.name)} arrived, before it was stored`;
    case "taken":
      if (entry.position === null)
        return isStored
          ? `after ${entry.key} had got no message in time`
          : `when ${entry.key} got no message in time, before that was stored`;
      return isStored
        ? `after ${entry.key} had taken a message`
        : `when ${entry.key} took a message, before that was stored`;
    case "ended":
      return isStored ? undefined : "before its end was stored";
    default:
      return undefined;
  }
}

function waiting(key: string): string {
  return isSleep(key) ? `while it waited for the end of ${key}` : `while ${key} waited for a message`;
}

function isSleep(key: string): boolean {
  return /^sleep[:#]/.test(key);
}

/** `step charge#1`, or `run:hotel#1` and `sleep#1` as they are. */
function operation(key: string): string {
  return isSleep(key) || key.startsWith("run:") ? key : `step ${key}`;
}
