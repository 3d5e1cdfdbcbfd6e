import type { AdminRun } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import { textOf } from "./words.tsx";

/** What a run waits for, in sentences. Empty: it has ended, or it is at work. */
export function waitsFor(run: AdminRun, lost: boolean, items: readonly TimelineItem[]): readonly string[] {
  if (run.finished_at !== null) return [];
  const reasons: string[] = [];
  if (run.blocked !== null) {
    const { position, expected, asked, newer = false } = run.blocked;
    reasons.push(
      newer
        ? `a newer version of cadenza: entry ${position} of the log is ${expected}. Update the processes that execute its agent.`
        : `other code: the log holds ${expected} at entry ${position}, and the code did ${asked}. Register matching code, or cancel the run.`,
    );
  }
  if (lost) reasons.push("another process: the one that executed it is gone.");
  for (const item of items) {
    if (!("ended_at" in item) || item.ended_at !== null) continue;
    if (item.type === "question") reasons.push(`an answer: ${clipped(textOf(item.parts))}`);
    else if (item.type === "step" && item.waits_for !== null) reasons.push(`step ${item.name}: ${item.waits_for}`);
    else if (item.type === "sleep") reasons.push(`a time: ${item.until}`);
    else if (item.type === "receive")
      reasons.push(`a message ${item.name}${item.until === null ? "" : `, until ${item.until}`}`);
    else if (item.type === "sub_run") reasons.push(`the sub-run of ${item.agent_name}`);
    if (reasons.length === 10) return reasons;
  }
  const isIdle = run.worker === null && run.blocked === null && run.status !== "awaiting";
  if (isIdle && reasons.length === 0) reasons.push("a worker with room for it, and with its code.");
  return reasons;
}

function clipped(text: string): string {
  return text.length > 300 ? `${text.slice(0, 299)}…` : text;
}
