import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useErrorBoundary } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { Listed } from "./feed.ts";

/** The time, as it goes on: for what is shown as an age. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1_000);

export type Shown = AdminRun["status"] | "lost" | "blocked";

const marks: Readonly<Record<Shown, string>> = {
  created: "○",
  "in-progress": "▶",
  awaiting: "?",
  cancelling: "◐",
  completed: "✓",
  failed: "✕",
  cancelled: "–",
  lost: "!",
  blocked: "■",
};

/** The status of a run, by a colour, a mark and a word. */
export function Status({ is }: { readonly is: Shown }) {
  return (
    <span class={`status ${is}`}>
      <span aria-hidden="true">{marks[is]} </span>
      {is.replace("-", " ")}
    </span>
  );
}

/** What to show of a run's status. It is lost if the lease of its worker has ended. */
export function shownStatus(run: AdminRun, workers?: ReadonlyMap<string, boolean>): Shown {
  if (run.blocked !== null) return "blocked";
  const isAtWork = run.status === "in-progress" || run.status === "cancelling";
  if (isAtWork && workers !== undefined && run.worker !== null && workers.get(run.worker) !== true) return "lost";
  return run.status;
}

/** What may hold anything that agents and clients have written. If it cannot be shown, the rest of the page is. */
export function Contained({ children }: { readonly children: ComponentChildren }) {
  const [error] = useErrorBoundary();
  return <>{error === undefined ? children : <Notice>This cannot be shown: {String(error)}</Notice>}</>;
}

const dateAndTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A time as an age, with the whole time for those who ask. */
export function Age({ of }: { readonly of: string }) {
  const ms = now.value - Date.parse(of);
  return (
    <time dateTime={of} title={dateAndTime.format(new Date(of))}>
      {ms < 1_000 && ms > -1_000 ? "now" : ms < 0 ? `in ${duration(-ms)}` : `${duration(ms)} ago`}
    </time>
  );
}

/** A duration in the two largest units that it has, such as "2 h 5 min". */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return two(minutes, "min", Math.floor(ms / 1_000) % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return two(hours, "h", minutes % 60, "min");
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(large: number, unit: string, small: number, smaller: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smaller}`;
}

export function count(number: number, one: string, several = `${one}s`): string {
  return `${number.toLocaleString()} ${number === 1 ? one : several}`;
}

/** How many items a list shows, also for those who hear the page. */
export function Counted({
  list,
  one,
  none,
}: {
  readonly list: Listed<unknown>;
  readonly one: string;
  readonly none: string;
}) {
  const { items, more } = list;
  const text =
    items === null
      ? "Loading …"
      : items.length === 0
        ? none
        : `${more ? "The newest " : ""}${count(items.length, one)}`;
  return (
    <>
      {list.refused !== null && <Notice>{list.refused}</Notice>}
      <p class="count" role="status">
        {text}
      </p>
    </>
  );
}

/** The text of message parts. What is no text is named. */
export function textOf(parts: readonly MessagePart[]): string {
  return parts
    .filter(({ content_type }) => content_type !== "application/schema+json")
    .map(({ content, content_type, content_url }) => {
      if (typeof content_url === "string") return content_url;
      return content_type === "text/plain" || /json/.test(content_type) ? (content ?? "") : `[${content_type}]`;
    })
    .join("");
}

export function shortId(run_id: string): string {
  return run_id.slice(0, 8);
}

/** A message to the user, also for those who hear the page. */
export function Notice({ children, kind = "error" }: { readonly children: ComponentChildren; readonly kind?: string }) {
  return (
    <p class={`notice ${kind}`} role={kind === "error" ? "alert" : "status"}>
      {children}
    </p>
  );
}
