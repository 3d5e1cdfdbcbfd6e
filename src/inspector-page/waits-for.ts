import type { AdminRun } from "../admin/records.ts";
import type { QuestionItem, TimelineItem } from "../admin/timeline.ts";

/** A sentence, and until when the run waits; null for no time. */
export interface Reason {
  readonly text: string;
  readonly until: string | null;
}

/** How many things are named. */
const MOST = 10;

/** What a run waits for, in sentences, and the questions that it waits for. Both empty: it has ended, or it is at work. */
export interface Waited {
  readonly reasons: readonly Reason[];
  readonly questions: readonly QuestionItem[];
}

export function waitsFor(run: AdminRun, lost: boolean, items: readonly TimelineItem[]): Waited {
  const reasons: Reason[] = [];
  const add = (text: string, until: string | null = null) => reasons.push({ text, until });
  const questions: QuestionItem[] = [];
  if (run.finished_at !== null) return { reasons, questions };
  if (run.blocked !== null) {
    const { position, expected, asked, newer = false } = run.blocked;
    add(
      newer
        ? `a newer version of cadenza: position ${position} of the log holds ${expected}. Update the processes that execute its agent.`
        : `other code: the log holds ${expected} at position ${position}, and the code did ${asked}. Register matching code, or cancel the run.`,
    );
  }
  if (lost) add("another process: the one that executed it is gone.");
  for (const item of items) {
    if (!("ended_at" in item) || item.ended_at !== null) continue;
    if (item.type === "question") questions.push(item);
    else if (item.type === "step" && item.waits_for !== null) add(`step ${item.name}: ${item.waits_for}`);
    else if (item.type === "sleep") add("a time", item.until);
    else if (item.type === "receive") add(`a message ${item.name}`, item.until);
    else if (item.type === "sub_run") add(`the sub-run of ${item.agent_name}`);
    if (reasons.length + questions.length === MOST) return { reasons, questions };
  }
  const isIdle = run.worker === null && run.blocked === null && run.status !== "awaiting";
  if (isIdle && reasons.length === 0) add("a worker with room for it, and with its code.");
  return { reasons, questions };
}
