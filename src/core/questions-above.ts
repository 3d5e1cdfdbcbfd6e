import { SCHEMA_TYPE } from "../protocol/run.ts";
import type { AwaitedEntry, Entry, Growing, SettledEntry } from "./log.ts";
import type { Question, RunState } from "./state.ts";
import { hasSeen, isStopped, openQuestion, openQuestions, replyKey, replyTo, settledQuestion } from "./state.ts";

/* A question lives in the log of the run that asks it. The runs above it show it, so that it can be answered there too. */

/**
 * What the log of a parent lacks of the questions of its sub-run: those to show, and those that are settled. Only what
 * is committed in the sub-run counts, up to the position `committed`. `key`: the sub-run's key in the parent.
 */
export function newsForParent(
  child: RunState,
  committed: number,
  key: string,
  parent: RunState,
  at: number,
): readonly Entry[] {
  const atEnd = child.ended !== null && parent.created?.durable === true ? child.exchanges : null;
  if (child.question === null && parent.question === null && atEnd === null) return nothing;
  const news: Entry[] = [];
  for (const { asked } of openQuestions(parent)) {
    const childId = idBelow(asked.await_id, key);
    if (childId === undefined || openQuestion(child, childId) !== undefined) continue;
    const settled = settledQuestion(child, childId);
    if (settled !== undefined && settled.settled_position <= committed)
      news.push(settledAbove(child.run_id, settled, key, at));
  }
  // Another process may be showing a question just now, and may die before it settles it.
  for (const question of atEnd ?? [])
    if (!hasSeen(parent, idAbove(question.asked.await_id, key)))
      news.push(settledAbove(child.run_id, question, key, at));
  if (isStopped(parent)) return news;
  for (const question of openQuestions(child)) {
    const isNew = question.position <= committed && !hasSeen(parent, idAbove(question.asked.await_id, key));
    if (isNew) news.push(shownAbove(child.run_id, question, key, at));
  }
  return news;
}

const nothing: readonly Entry[] = [];

/** The entry with which a parent shows a question of its sub-run. */
export function shownAbove(runId: string, { asked }: Question, key: string, at: number): AwaitedEntry {
  const { await_id, name, kind, deadline, of = { run_id: runId, await_id } } = asked;
  const id = idAbove(await_id, key);
  // The part with the schema names the question.
  const parts = asked.parts.map((part) =>
    part.content_type === SCHEMA_TYPE && part["await_id"] === await_id ? { ...part, await_id: id } : part,
  );
  const entry: Growing<AwaitedEntry> = { type: "awaited", at, await_id: id, of, parts, emitted: 0 };
  if (name !== undefined) entry.name = name;
  if (kind !== undefined) entry.kind = kind;
  if (deadline !== undefined) entry.deadline = deadline;
  return entry;
}

/** The entry with which a parent learns that a question of its sub-run is not open any more. */
export function settledAbove(runId: string, question: Question, key: string, at: number): SettledEntry {
  const { await_id, of = { run_id: runId, await_id } } = question.asked;
  const entry: Growing<SettledEntry> = { type: "settled", at, await_id: idAbove(await_id, key), of };
  const reply = replyTo(question);
  if (reply !== undefined && "answer" in reply) entry.answer = reply.answer;
  else if (reply !== undefined) entry.decline = reply.decline;
  const idempotencyKey = replyKey(question);
  if (idempotencyKey !== null) entry.idempotency_key = idempotencyKey;
  const { settled } = question;
  const by = settled !== null && "by" in settled ? settled.by : undefined;
  if (by !== undefined) entry.by = by;
  return entry;
}

/** The id of a question in the parent, from its id in the sub-run. */
function idAbove(awaitId: string, key: string): string {
  return `${key}/${awaitId}`;
}

/** The id of a question in a sub-run, from its id in the parent. Undefined: it is of another sub-run, or the parent's own. */
function idBelow(awaitId: string, key: string): string | undefined {
  return awaitId.startsWith(`${key}/`) ? awaitId.slice(key.length + 1) : undefined;
}
