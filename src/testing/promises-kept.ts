import { isCopy } from "../core/emission-source.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Entry } from "../core/log.ts";
import type { DriveEvent } from "./drive-event.ts";
import { describeDriveEvent, quote } from "./drive-event.ts";
import { writeDuration } from "./duration.ts";
import type { Operation } from "./operation.ts";
import type { Outcome } from "./rehearsal.ts";
import type { Stage } from "./stage.ts";

/**
 * What an interrupted agent did wrong, in sentences; none if nothing. `uninterrupted` is the agent when it is left
 * alone.
 */
export function brokenPromises(outcome: Outcome, uninterrupted: Outcome): string[] {
  return [
    ...outcome.problems,
    ...terminalProblems(outcome),
    ...stopProblems(outcome),
    ...operationProblems(outcome),
    ...answerProblems(outcome),
    ...looseEnds(outcome, uninterrupted),
    ...stubbornness(outcome, uninterrupted),
  ];
}

/** What the agent emitted after it was told to stop. Only `finally` blocks should. */
export function emittedAfterStop({ stage }: Outcome): readonly Entry[] {
  const log = stage.view?.entries ?? [];
  const stopped = log.findIndex(stops);
  const emits = (entry: Entry): boolean => entry.type === "emitted" && entry.kind !== "close" && !isCopy(entry.source);
  return stopped < 0 ? [] : log.slice(stopped).filter(emits);
}

function stops(entry: Entry): boolean {
  if (entry.type === "exceeded") return true;
  return entry.type === "cancel-requested" || (entry.type === "timed-out" && !entry.defaulted);
}

function terminalProblems({ stage }: Outcome): string[] {
  const log = stage.view?.entries ?? [];
  const ends = log.filter(({ type }) => type === "ended").length;
  if (ends !== 1) return [`Its log has ${ends} terminal entries instead of one.`];
  return log.at(-1)?.type === "ended" ? [] : ["Its log goes on after the terminal entry."];
}

function stopProblems({ stage, hung, dropped }: Outcome): string[] {
  const { begun, finished, thrownByFinally } = stage.cast.conduct;
  const problems: string[] = [];
  const grace = writeDuration(stage.settings.cancelGraceMs);
  if (hung)
    problems.push(`It did not stop within ${grace}, and was abandoned${finished ? "" : "; its finally did not run"}.`);
  else if (begun && !finished) problems.push("It never ended: its finally did not run.");
  if (dropped > 0)
    problems.push(
      `It went on after the run had ended: ${things(dropped)} of what it emitted ${dropped === 1 ? "was" : "were"} dropped.`,
    );
  if (thrownByFinally !== undefined) problems.push(`Its finally threw ${quote(String(thrownByFinally.error))}.`);
  return problems;
}

function operationProblems({ stage }: Outcome): string[] {
  const open = stage.cast.operations.filter(
    (operation) => operation.state === "pending" || (operation.kind === "run" && wasCutOff(operation, stage)),
  );
  return open.map((operation) => `${describeOperation(operation)} was still at work when the run had ended.`);
}

function answerProblems({ stage, problems }: Outcome): string[] {
  const asks = stage.cast.operations.filter(({ kind, run_id }) => kind === "ask" && run_id === stage.state?.run_id);
  // A run that was cut short may have ended before the agent awaited its answers.
  const hasCompleted = stage.state?.status === "completed";
  const lost = asks.filter(({ state, wasAwaited }) => hasCompleted && state === "done" && !wasAwaited);
  const ended = problems.length === 0 ? asks.filter((ask) => wasCutOff(ask, stage)) : [];
  return [
    ...lost.map(({ key }) => `The answer to ${key} is lost: the agent never waited for it.`),
    ...ended.map(({ key }) => `It ended while ${key} was still open: an answer to it is lost.`),
  ];
}

/** Whether an operation failed because the agent that began it had ended. */
function wasCutOff({ error, run_id }: Operation, { state }: Stage): boolean {
  const hasCompleted = state?.status === "completed" && state.run_id === run_id;
  return hasCompleted && CadenzaError.is(error) && error.code === "run_cancelled";
}

/** Timers and listeners that are left. If the agent removes them when it is left alone, it lacks a `finally` block. */
function looseEnds(outcome: Outcome, uninterrupted: Outcome): string[] {
  const listeners = outcome.stage.cast.listeners.left;
  const hint = (isLeftAnyway: boolean): string =>
    isLeftAnyway || outcome === uninterrupted
      ? ""
      : " Uninterrupted, the agent takes care of it: that belongs into a finally block.";
  const timers = outcome.timers.map((timer) => `It left ${timer}.${hint(uninterrupted.timers.length > 0)}`);
  if (listeners === 0) return timers;
  return [
    ...timers,
    `It left ${listeners === 1 ? "an abort listener" : `${listeners} abort listeners`} on its signal.`,
  ];
}

/**
 * An agent that is stopped may finish its current work, and its `finally` blocks may emit. It must not catch the error
 * with which it is stopped and go on.
 */
function stubbornness(outcome: Outcome, uninterrupted: Outcome): string[] {
  const { conduct } = outcome.stage.cast;
  const shown = emittedAfterStop(outcome);
  const hasSwallowed =
    conduct.form === "generator"
      ? conduct.swallowed !== undefined
      : conduct.interrupted && conduct.finished && conduct.thrown === undefined;
  if (!hasSwallowed) return [];
  const more = conduct.form === "generator" ? (conduct.swallowed ?? 0) : shown.length - 1;
  const next = driveEventAfterStop(outcome);
  if (next === undefined) return [];
  const index = outcome.driveEvents.indexOf(next);
  // One more thing that the uninterrupted agent does not emit, such as a goodbye, is allowed.
  const asPlanned = uninterrupted.driveEvents.some((other) => describeDriveEvent(other) === describeDriveEvent(next));
  if (more < 1 && !asPlanned) return [];
  const rest = more > 0 ? `, and would have emitted ${things(more)} more` : ", as if it had been answered";
  return [
    `It caught the error with which it was stopped and went on: yield ${index + 1} (${describeDriveEvent(next)})${rest}. ` +
      "Let that error pass.",
  ];
}

function driveEventAfterStop({ stage, driveEvents }: Outcome): DriveEvent | undefined {
  const log = stage.view?.entries ?? [];
  const before = log.slice(0, Math.max(log.findIndex(stops), 0));
  const shownBefore = before.filter(
    (entry) => (entry.type === "emitted" && entry.kind !== "close") || entry.type === "awaited",
  );
  const next = driveEvents[shownBefore.length];
  return next?.type === "end" ? undefined : next;
}

function describeOperation({ kind, key, agent_name }: Operation): string {
  return kind === "step" ? `Step ${key} of ${agent_name}` : `${names[kind]} ${key}`;
}

const names = { ask: "Question", sleep: "Sleep", receive: "Receive", run: "Sub-run" } as const;

function things(count: number): string {
  return count === 1 ? "1 thing" : `${count} things`;
}
