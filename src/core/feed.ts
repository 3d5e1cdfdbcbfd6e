import type { Entry, QuestionRef } from "./log.ts";
import type { HowSettled, Question, RunState } from "./state.ts";
import { EARLIER, howSettled, openQuestions } from "./state.ts";

/**
 * How a store keeps a feed, from which `watch` tells of all runs: types of events, with the ids of runs and questions.
 * Nothing of what a run says is in it.
 */
export interface FeedOptions {
  /** For how long an event is kept at least, in milliseconds. `Infinity`: for ever. */
  readonly keepMs: number;
}

/**
 * What watchers of all runs are told. It names what has happened, and holds nothing of what was said: so it may outlive
 * its run.
 */
export type WatchedEvent =
  | QuestionAsked
  | QuestionEnded
  | { readonly type: "run.completed" }
  | { readonly type: "run.failed" }
  | { readonly type: "run.cancelled" }
  | { readonly type: "run.blocked" };

/** The run asks a question, also if it is not the first that is open. */
interface QuestionAsked {
  readonly type: "run.awaiting";
  /** The id of the question. `details(run_id)` has the question among its `await_requests` while it is open. */
  readonly await_id: string;
  /** The question of a sub-run that the run shows: the run that asks has an event of its own. Null: the run asks itself. */
  readonly of: QuestionRef | null;
}

/** The question is not open any more. */
interface QuestionEnded {
  readonly type: "question.settled";
  readonly await_id: string;
  /** As in the `question.settled` of {@link DetailEvent}. */
  readonly how: HowSettled;
  /** As in `run.awaiting`. */
  readonly of: QuestionRef | null;
}

/** The entries after which there may be something to tell. */
const TOLD: ReadonlySet<Entry["type"]> = new Set([
  ...(["awaited", "resumed", "declined", "withdrawn", "timed-out", "settled"] as const),
  ...(["cancel-requested", "exceeded", "continued", "ended"] as const),
]);

/**
 * What the entries of a write tell watchers, in the order of the log. `state` is the state after the entries, of which the
 * first has the position `from`. `isBlocked`: the write blocks the run. `others`: up to which position other processes may
 * have written. One that posts a cancel does not know the questions that the owner has asked meanwhile, so the last write
 * tells again which ones a cancel has settled. Undefined: they tell nothing.
 */
export function feedOf(
  state: RunState,
  entries: readonly Entry[],
  from: number,
  isBlocked: boolean,
  others = 0,
): readonly WatchedEvent[] | undefined {
  if (!isBlocked && !entries.some(({ type }) => TOLD.has(type))) return undefined;
  // What a fork takes over has happened in another run.
  const after = from + entries.findLastIndex(({ type }) => type === "forked") + 1;
  const last = entries.at(-1);
  const isEnd = last?.type === "ended";
  const isToldAgain = ({ settled, settled_position }: Question): boolean =>
    isEnd && settled?.type === "cancel-requested" && settled_position <= others;
  const told: { readonly position: number; readonly event: WatchedEvent }[] = [];
  const tell = (question: Question): void => {
    const { await_id, of = null } = question.asked;
    const { position, settled_position } = question;
    if (position > after) told.push({ position, event: { type: "run.awaiting", await_id, of } });
    if (settled_position > after || isToldAgain(question))
      told.push({
        position: settled_position,
        event: { type: "question.settled", await_id, how: howOf(question), of },
      });
  };
  const ofNow = (state.exchanges ?? []).filter(({ after: place }) => place !== EARLIER);
  const exchanges = [...(state.generation?.left ?? []), ...ofNow];
  const before = exchanges.findLastIndex((one) => one.settled_position <= after && !isToldAgain(one));
  for (const question of exchanges.slice(before + 1)) tell(question);
  for (const question of openQuestions(state)) tell(question);
  const events = told.sort((one, other) => one.position - other.position).map(({ event }) => event);
  if (isEnd) events.push({ type: `run.${last.outcome}` });
  if (isBlocked) events.push({ type: "run.blocked" });
  return events.length === 0 ? undefined : events;
}

function howOf({ asked, settled }: Question): HowSettled {
  switch (settled?.type) {
    case "resumed":
    case "declined":
    case "settled":
      return howSettled(settled);
    case "timed-out":
      if (settled.await_id !== asked.await_id) return "withdrawn";
      return settled.defaulted ? "default" : "expired";
    default:
      return "withdrawn";
  }
}
