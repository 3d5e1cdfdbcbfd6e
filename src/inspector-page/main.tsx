import { useSignalEffect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ChatView } from "./chat.tsx";
import { connection } from "./feed.ts";
import { FiguresView } from "./figures.tsx";
import { Keyboard } from "./keyboard.tsx";
import { NewRunView } from "./new-run.tsx";
import { place, view } from "./place.ts";
import { QuestionsView } from "./questions.tsx";
import { RunView } from "./run.tsx";
import { RunsView } from "./runs.tsx";
import { loadStart, messageOf, start } from "./server.ts";
import { StuckView } from "./stuck.tsx";
import { showOrder } from "./visible-order.ts";
import { Contained, Notice } from "./words.tsx";

const views: readonly (readonly [name: string, label: string, isForAllTenants?: true])[] = [
  ["runs", "Runs"],
  ["questions", "Questions"],
  ["stuck", "Stuck"],
  ["new", "New run"],
  ["figures", "Figures", true],
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
        <span class="name">Cadenza</span>
        <nav aria-label="Views">
          {views.map(([name, label, isForAllTenants]) =>
            isForAllTenants && start.value?.tenant !== null ? null : (
              <a key={name} href={`#/${name}`} aria-current={current === name ? "page" : undefined}>
                {label}
              </a>
            ),
          )}
        </nav>
        <span class={`connection ${connection.value}`} role="status">
          {connection.value === "open" ? "live" : connection.value === "lost" ? "not connected" : "connecting"}
        </span>
      </header>
      <main id="main" tabIndex={-1}>
        {refused !== null ? (
          <Notice>{refused}</Notice>
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

function View({ path }: { readonly path: readonly string[] }) {
  const [name = "", ...rest] = path;
  const [first = "", second = "", third = ""] = rest;
  switch (name) {
    case "":
    case "runs":
      return <RunsView />;
    case "run":
      return <RunView key={rest.join("/")} tenant={first} run_id={second} />;
    case "questions":
      return <QuestionsView />;
    case "stuck":
      return <StuckView />;
    case "new":
      return <NewRunView />;
    case "chat":
      return <ChatView key={rest.join("/")} tenant={first} agent_name={second} session_id={third} />;
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
  return views.find(([view]) => view === name)?.[1] ?? "Runs";
}

function focusMain(): void {
  document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
}

const root = document.getElementById("app");
showOrder();
if (root !== null) render(<App />, root);
