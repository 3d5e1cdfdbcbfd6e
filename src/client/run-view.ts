import type { ProtocolError } from "../protocol/error.ts";
import type { RunEvent } from "../protocol/event.ts";
import type { DetailEvent, OpenQuestionDetails, Usage } from "../protocol/extensions.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { RunStatus } from "../protocol/run.ts";

/** An event of a run as a client gets it. Those of ACP have a number. */
export type ClientEvent = (RunEvent & { readonly id: number }) | DetailEvent;

/** A sub-run that a run has started. */
export interface SubRunView {
  readonly run_id: string;
  readonly agent_name: string;
  /** Null while it goes on. */
  readonly status: RunStatus | null;
}

/** What a page shows of a run. */
export interface RunView {
  readonly status: RunStatus;
  /** All that the agent has said, as text. */
  readonly text: string;
  /** All parts of its output, in order. Texts next to each other are one part. */
  readonly parts: readonly MessagePart[];
  /** The open questions, in the order in which they were asked. */
  readonly questions: readonly OpenQuestionDetails[];
  readonly subRuns: readonly SubRunView[];
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

/** The view after an event. The view before stays as it is. */
export function viewAfter(view: RunView, event: ClientEvent): RunView {
  switch (event.type) {
    case "message.part":
      return withPart(view, event.part);
    case "question.asked":
      return { ...view, questions: [...view.questions, event.question] };
    case "question.settled":
      return { ...view, questions: view.questions.filter(({ await_id }) => await_id !== event.await_id) };
    case "sub_run.started": {
      const { run_id, agent_name } = event;
      return { ...view, subRuns: [...view.subRuns, { run_id, agent_name, status: null }] };
    }
    case "sub_run.ended": {
      const { run_id, status } = event;
      const subRuns = view.subRuns.map((sub) => (sub.run_id === run_id ? { ...sub, status: status ?? "failed" } : sub));
      return { ...view, subRuns };
    }
    case "usage":
      return { ...view, usage: event.total };
    default:
      return "run" in event ? { ...view, status: event.run.status, error: event.run.error } : view;
  }
}

function withPart(view: RunView, part: MessagePart): RunView {
  if (!isText(part)) return { ...view, parts: [...view.parts, part] };
  const { content = "" } = part;
  const last = view.parts.at(-1);
  const parts =
    last !== undefined && isText(last)
      ? [...view.parts.slice(0, -1), { ...last, content: `${last.content ?? ""}${content}` }]
      : [...view.parts, part];
  return { ...view, text: `${view.text}${content}`, parts };
}

function isText({ name, content_type, content_encoding, metadata }: MessagePart): boolean {
  return name === undefined && content_type === "text/plain" && content_encoding === "plain" && metadata === undefined;
}
