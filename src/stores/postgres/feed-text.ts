import type { WatchedEvent } from "../../core/feed.ts";
import type { HowSettled } from "../../core/state.ts";
import { toJson } from "../stored-rows.ts";

/*
 * An event of the feed as a text: a letter for what has happened, then a JSON array of the ids that the event names, if it
 * names any. The server writes each event of each run to its log, so the text is short.
 */

type Type = WatchedEvent["type"];
type What = Exclude<Type, "question.settled"> | HowSettled;

/** A letter for each type of event. In place of `question.settled` each way to settle a question has one. */
const LETTERS: Readonly<Record<What, string>> = {
  "run.completed": "c",
  "run.failed": "f",
  "run.cancelled": "x",
  "run.blocked": "b",
  "run.awaiting": "q",
  answer: "a",
  default: "d",
  declined: "n",
  expired: "e",
  withdrawn: "w",
};

const kinds = new Map(
  Object.entries(LETTERS).map(([what, letter]) => [
    letter,
    what.includes(".") ? { type: what as Type } : { type: "question.settled" as Type, how: what as HowSettled },
  ]),
);

export function toFeedText(event: WatchedEvent): string {
  const letter = LETTERS["how" in event ? event.how : event.type];
  if (!("await_id" in event)) return letter;
  const { await_id, of } = event;
  return letter + toJson(of === null ? [await_id] : [await_id, of.run_id, of.await_id]);
}

export function fromFeedText(text: string): WatchedEvent {
  const kind = kinds.get(text.charAt(0));
  if (text.length === 1) return kind as WatchedEvent;
  const [await_id, run_id, asked_id] = JSON.parse(text.slice(1)) as readonly string[];
  return { ...kind, await_id, of: run_id === undefined ? null : { run_id, await_id: asked_id } } as WatchedEvent;
}

/** The letters of the events of some types, one after the other. */
export function lettersOf(types: readonly Type[]): string {
  return [...kinds].map(([letter, { type }]) => (types.includes(type) ? letter : "")).join("");
}
