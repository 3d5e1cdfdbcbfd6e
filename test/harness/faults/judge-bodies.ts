import type { Known, RunEvidence, Seen } from "./evidence.ts";
import type { BodyBegan } from "./witness.ts";

/*
 * Rules against repetition: of the bodies of steps, and of agents that are not durable. Only the cases that the
 * documentation names are allowed:
 *
 * - A body that was interrupted runs again, as another attempt. (durable.md, rule 2)
 * - A body goes on in a process that has frozen in it, or is closing, while the next owner of the run begins it again.
 *   ("Bodies that run once" under "What is not promised")
 * - A process that freezes between the check of its lease and the first line of the body begins that body when it is
 *   thawed. It is recognised by the time since it last read the clock, with no other body begun since.
 */

type Began = Seen & BodyBegan & { readonly run: string; readonly incarnation: string };

/** What is wrong, and the position of the line that proves it. */
export type Complain = (kind: string, what: string, place?: number) => void;

/** Longer than the time between the check of the lease and the body. */
const LOOK_MS = 100;

export function judgeBodies(run: RunEvidence, known: Known, leaseMs: number, complain: Complain): void {
  const { lines } = run;
  const began = lines.filter((line): line is Began => line.is === "began");
  beginsOnce(began, complain);
  beginsNothingFinished(run, complain);
  if (run.durable) {
    leavesItToTheNext(began, complain);
    keepsWhatItHas(run, began, known, leaseMs, complain);
  } else {
    const calls = lines.filter(({ is }) => is === "called");
    if (calls.length > 1)
      complain("doubled", `is not durable, and its agent was called ${calls.length} times`, calls[1]?.place);
  }
}

/** Each attempt is in the log before its body begins, and begins once. */
function beginsOnce(began: readonly Began[], complain: Complain): void {
  const attempts = new Set<string>();
  for (const { key, attempt, place } of began) {
    const name = `attempt ${attempt} at ${key}`;
    if (attempts.has(name)) complain("doubled", `${name} began twice`, place);
    attempts.add(name);
  }
}

/** A step whose result the agent has got does not begin again, and no step begins after the end of the run was seen. */
function beginsNothingFinished({ lines }: RunEvidence, complain: Complain): void {
  const finished = new Set<string>();
  let isOver = false;
  for (const line of lines) {
    if (line.is === "got") finished.add(line.key);
    else if (line.is === "seen to end") isOver = true;
    else if (line.is === "began" && !frozeBetween(line)) {
      const { key, attempt, place } = line;
      if (finished.has(key))
        complain("doubled", `attempt ${attempt} at ${key} began although the step had its result`, place);
      if (isOver) complain("doubled", `attempt ${attempt} at ${key} began after the run had ended`, place);
    }
  }
}

/** When the next owner of a run has begun a body, its former owner begins none. */
function leavesItToTheNext(began: readonly Began[], complain: Complain): void {
  const former = new Set<string>();
  let current: string | undefined;
  for (const line of began) {
    const { incarnation, key, attempt, place } = line;
    if (former.has(incarnation)) {
      if (!frozeBetween(line))
        complain(
          "doubled",
          `attempt ${attempt} at ${key} began in ${incarnation}, after ${current} had begun a body`,
          place,
        );
    } else if (current !== incarnation) {
      if (current !== undefined) former.add(current);
      current = incarnation;
    }
  }
}

/** A living process whose stalls are shorter than its lease keeps the runs whose bodies it executes. */
function keepsWhatItHas(
  { lines }: RunEvidence,
  began: readonly Began[],
  known: Known,
  leaseMs: number,
  complain: Complain,
): void {
  const ended = new Map(lines.flatMap((line) => (line.is === "ended" ? [[line.body, line.place]] : [])));
  for (const [index, next] of began.entries()) {
    const open = began.slice(0, index).find(({ body, by, place, incarnation }) => {
      if (by === next.by || incarnation === next.incarnation) return false;
      return (ended.get(body) ?? Number.POSITIVE_INFINITY) > next.place && place < next.place;
    });
    if (open === undefined || frozeBetween(next)) continue;
    // Between its last renewal and the take-over.
    const from = next.at - 2 * leaseMs;
    if (known.process(open.by).isSound(from, next.at, leaseMs / 4))
      complain(
        "doubled",
        `attempt ${next.attempt} at ${next.key} began in ${next.by} while ${open.key} was running in ${open.by}, which was sound`,
        next.place,
      );
  }
}

/** Whether the process froze between the check of the lease and the line: before the first line of the body, or in it. */
function frozeBetween({ lookedMs, begunSince, lateMs = 0 }: BodyBegan & Pick<Seen, "lateMs">): boolean {
  return (lookedMs > LOOK_MS && begunSince === 0) || lateMs > LOOK_MS;
}
