import type { Entry } from "cadenza/store";
import type { FeedItem, WatchedEvent } from "./internals.ts";
import { DetailFold, evolve, initialState } from "./internals.ts";

/**
 * What is wrong with the events that a feed has of a run, by the log of the run: what readers of its details are told is
 * what the feed has to tell, in the same order. It may tell each event again. What several processes have posted for a
 * sub-run may come in another order, and too late.
 */
export function misfed(run_id: string, log: readonly Entry[], feed: readonly FeedItem[]): readonly string[] {
  const told = feed.filter(({ key }) => key.run_id === run_id).map(({ event }) => event);
  const expected = toldBy(run_id, log);
  const ofSubRuns = new Set(log.flatMap((entry) => (entry.type === "awaited" && entry.of ? [entry.await_id] : [])));
  const isOwn = (text: string): boolean => !ofSubRuns.has(text.split(" ")[1] ?? "");
  const texts = [...new Set(told.filter(({ type }) => type !== "run.blocked").map(textOf))];
  const [is, must] = [texts.filter(isOwn), expected.filter(isOwn)];
  const missing = expected.filter((text) => !texts.includes(text));
  const wrong = missing.map((text) => `the feed lacks ${text} of run ${run_id}`);
  if (JSON.stringify(is) !== JSON.stringify(must))
    wrong.push(`the feed has ${is.join(", ")} of run ${run_id}, and its log tells ${must.join(", ")}`);
  return wrong;
}

function toldBy(run_id: string, log: readonly Entry[]): readonly string[] {
  const fold = new DetailFold(true);
  const state = initialState(run_id);
  const told: string[] = [];
  for (const entry of log) {
    evolve(state, entry);
    const isForked = log.indexOf(entry) < log.findLastIndex(({ type }) => type === "forked");
    for (const detail of fold.detailsOf(state, entry)) {
      if (isForked) continue;
      if (detail.type === "question.asked") told.push(`run.awaiting ${detail.question.await_id}`);
      if (detail.type === "question.settled") told.push(`question.settled ${detail.await_id} ${detail.how}`);
    }
    if (entry.type === "ended") told.push(`run.${entry.outcome}`);
  }
  return told;
}

function textOf(event: WatchedEvent): string {
  if (event.type === "run.awaiting") return `${event.type} ${event.await_id}`;
  return event.type === "question.settled" ? `${event.type} ${event.await_id} ${event.how}` : event.type;
}
