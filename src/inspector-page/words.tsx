import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useErrorBoundary, useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Listed } from "./feed.ts";
import type { IconName } from "./icons.tsx";
import { Icon } from "./icons.tsx";

/** The time, as it goes on: for what is shown as an age. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1_000);

export type Shown = AdminRun["status"] | "lost" | "blocked";

const marks: Readonly<Record<Shown, IconName>> = {
  created: "created",
  "in-progress": "work",
  awaiting: "question",
  cancelling: "cancelling",
  completed: "done",
  failed: "failed",
  cancelled: "cancel",
  lost: "lost",
  blocked: "blocked",
};

/** The status of a run, by a colour, a picture and a word. */
export function Status({ is }: { readonly is: Shown }) {
  return (
    <span class={`status ${is}`}>
      <Icon is={marks[is]} />
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

/** A time as an age in its largest unit, with the whole time for those who point at it. */
export function Age({ of }: { readonly of: string }) {
  const ms = now.value - Date.parse(of);
  return (
    <time dateTime={of} title={wholeTime(of)}>
      {ms < 1_000 && ms > -1_000 ? "now" : ms < 0 ? `in ${duration(-ms)}` : `${roughly(ms)} ago`}
    </time>
  );
}

export function wholeTime(of: string): string {
  return dateAndTime.format(new Date(of));
}

/** How long something took, or takes so far. */
export function Lasted({ from, to }: { readonly from: string; readonly to: string | null }) {
  const until = to === null ? now.value : Date.parse(to);
  return <span class={to === null ? "running" : undefined}>{duration(Math.max(0, until - Date.parse(from)))}</span>;
}

/** A duration in the largest unit that it has, such as "2 h". */
function roughly(ms: number): string {
  const [size, unit] = units.find(([most]) => ms >= most) ?? units[3];
  return `${Math.floor(ms / size)} ${unit}`;
}

const units = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
] as const;

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

/** How many items a list shows, also for those who hear the page. Of an empty list: what to do. */
export function Counted({
  list,
  one,
  none,
  children,
}: {
  readonly list: Listed<unknown>;
  readonly one: string;
  readonly none: string;
  readonly children?: ComponentChildren;
}) {
  const { items, more, refused } = list;
  const text = items === null ? "Loading …" : `${more ? "The newest " : ""}${count(items.length, one)}`;
  return (
    <>
      {refused !== null && <Notice>{refused}</Notice>}
      {items?.length === 0 ? (
        <Empty is={none}>{children}</Empty>
      ) : (
        refused === null && (
          <p class="count" role="status">
            {text}
          </p>
        )
      )}
    </>
  );
}

/** That there is nothing, and what to do. */
export function Empty({ is, children }: { readonly is: string; readonly children?: ComponentChildren }) {
  return (
    <div class="empty" role="status">
      <p>
        <Icon is="info" /> <b>{is}</b>
      </p>
      {children !== undefined && <p class="faint">{children}</p>}
    </div>
  );
}

/** What a principal is called: its name, where it has one. */
export function nameOf(principal: JsonValue): string {
  const name = typeof principal === "object" && principal !== null ? Object(principal).name : principal;
  return typeof name === "string" ? name : JSON.stringify(principal);
}

export function shortId(run_id: string): string {
  return run_id.slice(0, 8);
}

/** A button that says what it does before it does it. */
export function Sure({
  label,
  says,
  verb,
  isLink = false,
  onSure,
  children,
}: {
  readonly label: string;
  /** What will happen. It is asked when the button is pressed. */
  readonly says: () => string;
  /** On the button that does it. */
  readonly verb: string;
  readonly isLink?: boolean;
  readonly onSure: () => void;
  /** What the button says besides its label. */
  readonly children?: ComponentChildren;
}) {
  const [isAsked, setAsked] = useState(false);
  if (!isAsked)
    return (
      <button type="button" class={isLink ? "link fork" : undefined} onClick={() => setAsked(true)}>
        {label}
        {children}
      </button>
    );
  return (
    <span role="alertdialog" aria-label={label} class="sure">
      {says()}{" "}
      <button
        type="button"
        class="danger"
        onClick={() => {
          setAsked(false);
          onSure();
        }}
      >
        {verb}
      </button>{" "}
      <button type="button" onClick={() => setAsked(false)}>
        Leave it
      </button>
    </span>
  );
}

/** A message to the user, also for those who hear the page. */
export function Notice({ children, kind = "error" }: { readonly children: ComponentChildren; readonly kind?: string }) {
  return (
    <div class={`notice ${kind}`} role={kind === "error" ? "alert" : "status"}>
      <Icon is={kind === "error" ? "warning" : "info"} />
      <div>{children}</div>
    </div>
  );
}
