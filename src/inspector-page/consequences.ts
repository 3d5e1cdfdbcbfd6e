import type { AdminRun } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import { nameIn } from "./text-of.ts";

/** How many operations are named. */
const NAMED = 6;

/** How a run is forked, and what that does. */
export interface Forking {
  /** `before`: the key of an operation. Left out: where the run has failed. */
  fork(before?: string): Promise<void>;
  says(before?: string): string;
}

type Operation = Extract<TimelineItem, { readonly key: string }>;

/** What a fork does again, in words. */
export function forkSays(items: readonly TimelineItem[], before: string | undefined): string {
  const operations = items.filter(isOperation);
  const ended = items.at(-1);
  const key = before ?? (ended?.type === "ended" ? ended.key : null);
  const cut = key === null ? operations.length : operations.findLastIndex((item) => item.key === key);
  const again = cut === -1 ? [] : operations.slice(cut);
  const acts = again.filter(({ type }) => type === "step" || type === "sub_run");
  const asked = again.filter(({ type }) => type === "question").length;
  const done =
    acts.length === 0 ? "It does no recorded step again" : `It does again, with its effects: ${namesOf(acts)}`;
  const asks = asked === 0 ? "" : ` It asks ${asked} ${asked === 1 ? "question" : "questions"} again.`;
  const from = key === null ? "all that is recorded" : `what came before ${key}`;
  const keys = acts.some(({ type }) => type === "step") ? " Its steps have the idempotency keys that they had." : "";
  return `A new run takes over ${from}. ${done}.${asks}${keys} This run stays as it is.`;
}

/** What a cancel stops, in words. */
export function cancelSays({ created }: AdminRun, items: readonly TimelineItem[]): string {
  const open = items.filter(isOperation).filter(({ ended_at }) => ended_at === null);
  const of = (type: Operation["type"]): readonly Operation[] => open.filter((item) => item.type === type);
  const stops = [
    ...(of("step").length > 0 ? [`${namesOf(of("step"))} is told to stop`] : []),
    ...(of("sub_run").length > 0 ? [`${namesOf(of("sub_run"))} ends too`] : []),
    ...(of("question").length > 0 ? ["its open questions are withdrawn"] : []),
  ];
  const what = stops.length === 0 ? "" : `: ${stops.join(", ")}`;
  const again = created?.durable === true ? " A fork can go on from what is recorded." : "";
  return `The run ends${what}. What is done stays done.${again}`;
}

function isOperation(item: TimelineItem): item is Operation {
  return "key" in item && item.type !== "ended";
}

function namesOf(operations: readonly Operation[]): string {
  const names = operations.map(({ key }) => nameIn(key));
  const more = names.length - NAMED;
  return `${names.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${more.toLocaleString()} more` : ""}`;
}
