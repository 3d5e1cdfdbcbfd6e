import type { ClientRun } from "cadenza/client";
import { createClient } from "cadenza/client";
import type { agents } from "../agents.ts";

/* A chat: each message begins a run, and all of them share a session. A run that the server has accepted goes on after a reload. */

type DeskRun = ClientRun<(typeof agents)[number]>;

interface Chat {
  readonly session: string;
  readonly said: { text: string; run_id: string }[];
}

const client = createClient<typeof agents>({ url: "/api" });
const saved = localStorage.getItem("chat");
const chat: Chat = saved === null ? { session: crypto.randomUUID(), said: [] } : JSON.parse(saved);

const log = find("#chat", HTMLElement);
const composer = find("#composer", HTMLFormElement);

for (const { text, run_id } of chat.said) show(text, client.attach("desk", run_id));

composer.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { text } = Object.fromEntries(new FormData(composer)) as { text: string };
  if (text.trim() === "") return;
  composer.reset();
  try {
    const run = await client.run("desk", text, { session_id: chat.session });
    chat.said.push({ text, run_id: run.run_id });
    localStorage.setItem("chat", JSON.stringify(chat));
    show(text, run);
  } catch (error) {
    log.append(problem(error));
  }
});

find("#new", HTMLButtonElement).addEventListener("click", () => {
  localStorage.removeItem("chat");
  location.reload();
});

/** Shows a message and the run that answers it, as long as the page is open. */
function show(text: string, run: DeskRun): void {
  const answer = element("article", { className: "agent" });
  log.append(element("article", { className: "user", textContent: text }), answer);
  const draw = () => {
    const { text: said, questions, status, error } = run.view;
    const isOver = ["completed", "failed", "cancelled"].includes(status);
    answer.replaceChildren(
      element("p", { textContent: said }),
      ...questions.map((question) => ask(run, question)),
      ...(error === null ? [] : [problem(error.message)]),
      ...(isOver || questions.length > 0 ? [] : [element("p", { className: "busy", textContent: "…" })]),
    );
    answer.scrollIntoView({ block: "end" });
  };
  run.watch(draw, (error) => answer.append(problem(error)));
  draw();
}

/** A question of the agent, with a button for each answer. */
function ask(run: DeskRun, { await_id, message }: DeskRun["view"]["questions"][number]): HTMLElement {
  const question = element("fieldset", {});
  const button = (textContent: string, approved: boolean) =>
    element("button", {
      textContent,
      onclick: () => {
        question.disabled = true;
        run.answer({ await_id }, { approved }).catch((error) => question.append(problem(error)));
      },
    });
  const text = message.parts.find(({ content_type }) => content_type === "text/plain")?.content ?? "";
  question.append(element("legend", { textContent: text }), button("Yes", true), button("No", false));
  return question;
}

function problem(error: unknown): HTMLElement {
  return element("p", { className: "error", textContent: String(error) });
}

function find<Kind extends HTMLElement>(selector: string, kind: new () => Kind): Kind {
  const found = document.querySelector(selector);
  if (found instanceof kind) return found;
  throw new Error(`The page has no ${selector}.`);
}

function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  properties: Partial<HTMLElementTagNameMap[Name]>,
): HTMLElementTagNameMap[Name] {
  return Object.assign(document.createElement(name), properties);
}
