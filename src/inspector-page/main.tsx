import { useSignalEffect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Start } from "../inspector/api.ts";
import { ChatView } from "./chat.tsx";
import { ComparisonView } from "./comparison/comparison.tsx";
import { connection } from "./feed.ts";
import { FiguresView } from "./figures/figures.tsx";
import type { IconName } from "./icons.tsx";
import { Icon } from "./icons.tsx";
import { InboxView } from "./inbox/inbox.tsx";
import { Keyboard, showKeys } from "./keyboard.tsx";
import { NewRunView } from "./new-run.tsx";
import { place, view } from "./place.ts";
import { RunView } from "./run.tsx";
import { RunsView } from "./runs.tsx";
import { SchedulesView } from "./schedules.tsx";
import { loadStart, messageOf, start } from "./server.ts";
import { StuckView } from "./stuck.tsx";
import { showOrder } from "./visible-order.ts";
import { Contained, Notice } from "./words.tsx";

/** The views, and for whom each is there, if not for all. */
const views: readonly (readonly [name: string, label: string, icon: IconName, isThere?: (its: Start) => boolean])[] = [
  ["runs", "Runs", "runs"],
  ["questions", "Questions", "question"],
  ["stuck", "Stuck", "warning"],
  ["new", "New run", "new"],
  ["schedules", "Schedules", "schedule", ({ has_schedules }) => has_schedules],
  ["figures", "Figures", "figures"],
];

// The token has become a cookie, and is not for the history of the browser.
if (location.search !== "") history.replaceState(null, "", location.pathname + location.hash);

function App() {
  const [refused, setRefused] = useState<string | null>(null);
  useEffect(() => {
    loadStart().catch((error: unknown) => setRefused(messageOf(error)));
  }, []);
  const shown = useRef<string | undefined>(undefined);
  useSignalEffect(() => {
    if (shown.current !== view.value) {
      // The first view needs no focus: the user has just come. This runs after a frame: a fast user may be in a field by now.
      const isThere = document.querySelector("main")?.contains(document.activeElement) === true;
      if (shown.current !== undefined && !isThere) focusMain();
      scrollTo(0, 0);
    }
    shown.current = view.value;
    document.title = `${titleOf(place.peek().path)} · Cadenza`;
  });
  const { path } = place.value;
  const current = path[0] === "" ? "runs" : path[0];
  return (
    <>
      <button type="button" class="skip" onClick={focusMain}>
        Skip to the content
      </button>
      <header>
        <a class="name" href="#/runs">
          <Logo /> Cadenza
        </a>
        <nav aria-label="Views">
          {views.map(([name, label, icon, isThere]) =>
            isThere !== undefined && !(start.value !== null && isThere(start.value)) ? null : (
              <a key={name} href={`#/${name}`} aria-current={current === name ? "page" : undefined}>
                <Icon is={icon} />
                {label}
              </a>
            ),
          )}
        </nav>
        <div class="foot">
          <span class={`connection ${connection.value}`} role="status">
            {connection.value === "open" ? "live" : connection.value === "lost" ? "not connected" : "connecting"}
          </span>
          <button type="button" class="ghost" onClick={showKeys}>
            <Icon is="keys" />
            Keys
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {connection.value === "lost" && (
          <Notice>
            The server does not answer, so what is shown may be old. The page asks again every two seconds. Is the
            process running?
          </Notice>
        )}
        {refused !== null ? (
          <Notice>{refused} Reload the page when the server is there again.</Notice>
        ) : start.value === null ? (
          <p role="status">Loading …</p>
        ) : (
          <Contained key={view.value}>
            <View path={path} />
          </Contained>
        )}
      </main>
      <Keyboard />
    </>
  );
}

/** Three bars of a run, one after the other. */
function Logo() {
  return (
    <svg class="logo" viewBox="0 0 24 24" aria-hidden="true">
      <rect x="2" y="4" width="11" height="4" rx="2" />
      <rect x="7" y="10" width="11" height="4" rx="2" />
      <rect x="14" y="16" width="8" height="4" rx="2" />
    </svg>
  );
}

function View({ path }: { readonly path: readonly string[] }) {
  const [name = "", ...rest] = path;
  const [first = "", second = "", third = ""] = rest;
  switch (name) {
    case "":
    case "runs":
      return <RunsView />;
    case "run":
      return <RunView key={rest.join("/")} tenant={first} run_id={second} />;
    case "compare":
      return <ComparisonView key={rest.join("/")} tenant={first} left={second} right={third} />;
    case "questions":
      return <InboxView />;
    case "stuck":
      return <StuckView />;
    case "new":
      return <NewRunView />;
    case "chat":
      return <ChatView key={rest.join("/")} tenant={first} agent_name={second} session_id={third} />;
    case "schedules":
      return <SchedulesView />;
    case "figures":
      return <FiguresView />;
    default:
      return (
        <>
          <h1>There is nothing here</h1>
          <p>
            <a href="#/runs">All runs</a>
          </p>
        </>
      );
  }
}

function titleOf([name = "", , run_id = ""]: readonly string[]): string {
  if (name === "run") return `Run ${run_id.slice(0, 8)}`;
  if (name === "chat") return "Chat";
  if (name === "compare") return "Comparison";
  return views.find(([view]) => view === name)?.[1] ?? "Runs";
}

function focusMain(): void {
  document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
}

const root = document.getElementById("app");
showOrder();
if (root !== null) render(<App />, root);
