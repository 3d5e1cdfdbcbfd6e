import type { ProtocolError } from "../protocol/error.ts";
import type { RunEvent } from "../protocol/event.ts";
import type { DetailEvent, OpenQuestionDetails, Usage } from "../protocol/extensions.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { RunStatus } from "../protocol/run.ts";

/** An event of a run as a client gets it. Those of ACP have a number. */
export type ClientEvent = (RunEvent & { readonly id: number }) | DetailEvent;

/** What a page shows of a run. */
export interface RunView {
  readonly status: RunStatus;
  /** All that the agent has said, as text. */
  readonly text: string;
  /** All parts of its output, in order. Texts next to each other are one part. */
  readonly parts: readonly MessagePart[];
  /** The open questions, in the order in which they were asked. */
  readonly questions: readonly OpenQuestionDetails[];
  /** The sub-runs that it has started. Their status is null while they go on. */
  readonly subRuns: readonly {
    readonly run_id: string;
    readonly agent_name: string;
    readonly status: RunStatus | null;
  }[];
  /** What it has used; null for nothing. */
  readonly usage: Usage | null;
  /** Why it has failed; null if it has not. */
  readonly error: ProtocolError | null;
}

/** A run before its first event. */
export const emptyView: RunView = {
  status: "created",
  text: "",
  parts: [],
  questions: [],
  subRuns: [],
  usage: null,
  error: null,
};

/** Folds the events of a run, with its details, into what a page shows. */
export class ViewFold {
  /** The view after the last event. Each event makes a new one, or leaves it as it is. */
  view = emptyView;
  /** The steps and sub-runs at work. What they have emitted is left out if they are tried again. */
  readonly #atWork = new Set<string>();
  /** What the run had said when the first of them began, and what it has said since. */
  #before: Said = emptyView;
  #since: { readonly id: number; readonly part: MessagePart }[] = [];

  take(event: ClientEvent): void {
    const { view } = this;
    switch (event.type) {
      case "message.part":
        if (this.#atWork.size > 0) this.#since.push(event);
        this.view = { ...view, ...withPart(view, event.part) };
        return;
      case "output.torn": {
        const isTorn = (id: number): boolean => event.events.some(({ first, last }) => id >= first && id <= last);
        this.#since = this.#since.filter(({ id }) => !isTorn(id));
        this.view = { ...view, ...this.#since.reduce((said, { part }) => withPart(said, part), this.#before) };
        return;
      }
      case "step.started":
        this.#begin(event.key);
        return;
      case "step.completed":
      case "step.failed":
        this.#atWork.delete(event.key);
        return;
      case "question.asked":
        this.view = { ...view, questions: [...view.questions, event.question] };
        return;
      case "question.settled":
        this.view = { ...view, questions: view.questions.filter(({ await_id }) => await_id !== event.await_id) };
        return;
      case "sub_run.started": {
        this.#begin(event.key);
        const { run_id, agent_name } = event;
        this.view = { ...view, subRuns: [...view.subRuns, { run_id, agent_name, status: null }] };
        return;
      }
      case "sub_run.ended": {
        this.#atWork.delete(event.key);
        const status = event.status ?? "failed";
        const subRuns = view.subRuns.map((sub) => (sub.run_id === event.run_id ? { ...sub, status } : sub));
        this.view = { ...view, subRuns };
        return;
      }
      case "usage":
        this.view = { ...view, usage: event.total };
        return;
      default:
        if ("run" in event) this.view = { ...view, status: event.run.status, error: event.run.error };
    }
  }

  #begin(key: string): void {
    if (this.#atWork.size === 0) {
      this.#before = this.view;
      this.#since = [];
    }
    this.#atWork.add(key);
  }
}

type Said = Pick<RunView, "text" | "parts">;

function withPart(said: Said, part: MessagePart): Said {
  if (!isText(part)) return { text: said.text, parts: [...said.parts, part] };
  const { content = "" } = part;
  const last = said.parts.at(-1);
  const parts =
    last !== undefined && isText(last)
      ? [...said.parts.slice(0, -1), { ...last, content: `${last.content ?? ""}${content}` }]
      : [...said.parts, part];
  return { text: `${said.text}${content}`, parts };
}

function isText({ name, content_type, content_encoding, metadata }: MessagePart): boolean {
  return name === undefined && content_type === "text/plain" && content_encoding === "plain" && metadata === undefined;
}
