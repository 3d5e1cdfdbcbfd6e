import type { UIMessage, UIMessageChunk } from "ai";
import type { MessagePart, Run, RunEvent } from "cadenza";

/** A question of an agent. The user's next message answers it. */
export interface Question {
  readonly run_id: string;
  readonly await_id: string;
  readonly text: string;
  /** The JSON Schema of the answer; undefined if the question takes any answer. */
  readonly schema: unknown;
}

export type AgentMessage = UIMessage<unknown, { question: Question }>;

type Chunk = UIMessageChunk<unknown, { question: Question }>;

/** An event as `parseJsonEventStream` reads it. */
type Parsed = { readonly success: true; readonly value: RunEvent } | { readonly success: false; readonly error: Error };

/** Turns the events of a run into the chunks that `useChat` takes. */
export class Chunks extends TransformStream<Parsed, Chunk> {
  constructor() {
    let texts = 0;
    let isTextOpen = false;
    let isOver = false;
    super({
      transform(parsed, out) {
        if (!parsed.success) throw parsed.error;
        const event = parsed.value;
        switch (event.type) {
          case "message.part":
            if (!isText(event.part)) {
              out.enqueue({ type: "file", mediaType: event.part.content_type, url: urlOf(event.part) });
              return;
            }
            if (!isTextOpen) out.enqueue({ type: "text-start", id: `${++texts}` });
            isTextOpen = true;
            out.enqueue({ type: "text-delta", id: `${texts}`, delta: event.part.content ?? "" });
            return;
          case "message.completed":
            if (isTextOpen) out.enqueue({ type: "text-end", id: `${texts}` });
            isTextOpen = false;
            return;
          case "run.awaiting":
            out.enqueue({ type: "data-question", ...questionOf(event.run) });
            isOver = true;
            return;
          case "run.completed":
            isOver = true;
            return;
          case "run.failed":
            out.enqueue({ type: "error", errorText: event.run.error?.message ?? "The run failed." });
            isOver = true;
            return;
          case "run.cancelled":
            out.enqueue({ type: "error", errorText: "The run was cancelled." });
            isOver = true;
            return;
          case "error":
            out.enqueue({ type: "error", errorText: event.error.message });
            isOver = true;
        }
      },
      flush(out) {
        if (!isOver) out.enqueue({ type: "error", errorText: "The connection ended before the run did." });
      },
    });
  }
}

/** A part with a name is an artifact. */
function isText({ name, content_type, content_encoding, content_url }: MessagePart): boolean {
  return name === undefined && content_type === "text/plain" && content_encoding === "plain" && !content_url;
}

function urlOf({ content_type, content_encoding, content, content_url }: MessagePart): string {
  if (content_url) return content_url;
  if (content_encoding === "base64") return `data:${content_type};base64,${content ?? ""}`;
  return `data:${content_type},${encodeURIComponent(content ?? "")}`;
}

function questionOf({ run_id, await_request }: Run): { readonly id: string; readonly data: Question } {
  const { await_id = "", message } = await_request ?? {};
  const parts = message?.parts ?? [];
  const schema = parts.find(({ content_type }) => content_type === "application/schema+json")?.content;
  const text = parts
    .filter(isText)
    .map(({ content }) => content)
    .join("\n");
  return {
    id: await_id,
    data: { run_id, await_id, text, schema: schema === undefined ? undefined : JSON.parse(schema) },
  };
}
