import type { OpenQuestionDetails } from "../../../protocol/extensions.ts";
import type { Message } from "../../../protocol/message.ts";
import type { DetailedEvent } from "../../../runtime/events.ts";
import { questionCallId } from "../../chat/call-ids.ts";
import type { Teller } from "../../chat/item-format.ts";
import { idOf, shownText } from "../../chat/parts.ts";
import { messageOf, schemaOf, wordsOf } from "../../chat/questions.ts";
import type { UiChunk } from "./chunks.ts";
import { ASK } from "./chunks.ts";
import { partChunks } from "./part-chunks.ts";

/** Where a response begins. */
export interface ResponseStart {
  readonly run_id: string;
  /** The message that the response is, or goes on with. */
  readonly messageId: string;
  /** The calls that the page shows already in that message. */
  readonly shown?: ReadonlySet<string> | undefined;
}

/** The id of the assistant message after an answer that the user gave as a message. */
export function messageIdAfter(runId: string, awaitId: string): string {
  return questionCallId(runId, awaitId);
}

/**
 * Turns the events of a run into the chunks of a response, with their details. An assistant message holds what the run
 * does up to the next message of the user.
 */
export class Response implements Teller {
  readonly #runId: string;
  /** Whether yes-or-no questions are approvals. */
  readonly #approvals: boolean;
  #messageId: string;
  #isOpen = false;
  /** Nothing but results of earlier calls has come in this step. */
  #isStepEmpty = true;
  /** The id of the text that is being written. */
  #text: string | undefined;
  /** The number of the event that is being told. */
  #event = 0;
  /** The open questions. */
  readonly #questions = new Map<string, OpenQuestionDetails>();
  /** The calls of this message, and the questions of this step. */
  readonly #calls: Set<string>;
  readonly #inStep = new Set<string>();
  #chunks: UiChunk[] = [];
  #ending: UiChunk[] = [];

  constructor(
    { run_id, messageId, shown }: ResponseStart,
    approvals: boolean,
    questions: readonly OpenQuestionDetails[] = [],
  ) {
    this.#runId = run_id;
    this.#messageId = messageId;
    this.#approvals = approvals;
    this.#calls = new Set(shown);
    for (const question of questions) this.#questions.set(question.await_id, question);
  }

  /** The chunks of an event. */
  take(event: DetailedEvent): readonly UiChunk[] {
    this.#chunks = [];
    this.#begin();
    if ("id" in event) this.#event = event.id;
    this.#tell(event);
    return this.#chunks;
  }

  /** The chunks for a page whose answer was refused: the question is open again, in its place. */
  refuse(question: OpenQuestionDetails, errorText: string): readonly UiChunk[] {
    this.#chunks = [{ type: "start", messageId: this.#messageId }];
    this.#ask(question);
    return [...this.#chunks, { type: "error", errorText }];
  }

  fail({ message }: { readonly message: string }): readonly UiChunk[] {
    return [{ type: "error", errorText: message }];
  }

  /** The chunks at the end: nothing more comes until the page sends something. */
  end(): readonly UiChunk[] {
    this.#chunks = [];
    this.#begin();
    for (const question of this.#questions.values()) if (!this.#inStep.has(question.await_id)) this.#ask(question);
    this.#endText();
    this.#push({ type: "finish-step" });
    if (this.#ending.length > 0) this.#push(...this.#ending);
    else this.#push({ type: "finish", finishReason: this.#questions.size > 0 ? "tool-calls" : "stop" });
    return this.#chunks;
  }

  #begin(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#push({ type: "start", messageId: this.#messageId }, { type: "start-step" });
  }

  #tell(event: DetailedEvent): void {
    switch (event.type) {
      case "message.part":
        this.#addPart(event.part);
        return;
      case "message.completed":
      case "step.attempt_failed":
      case "step.started":
        // What an interrupted attempt has shown is a text of its own.
        this.#endText();
        return;
      case "generic":
        this.#endText();
        this.#push({ type: "data-generic", data: event.generic, transient: true });
        return;
      case "question.asked":
        this.#questions.set(event.question.await_id, event.question);
        this.#ask(event.question);
        return;
      case "question.settled":
        this.#settle(event);
        return;
      case "run.failed":
        this.#ending = [
          { type: "error", errorText: event.run.error?.message ?? "The run failed." },
          { type: "finish", finishReason: "error" },
        ];
        return;
      case "run.cancelled":
        this.#ending = [{ type: "abort" }];
        return;
      case "error":
        this.#ending = [{ type: "error", errorText: event.error.message }];
        return;
      default:
    }
  }

  #addPart(part: Message["parts"][number]): void {
    const text = shownText(part);
    if (text !== undefined && text !== "") {
      if (this.#text === undefined) {
        this.#text = `t${this.#event}`;
        this.#push({ type: "text-start", id: this.#text });
      }
      this.#push({ type: "text-delta", id: this.#text, delta: text });
    }
    for (const chunk of partChunks(part, `${this.#runId}/p${this.#event}`)) {
      this.#endText();
      // The result of a call that was shown before comes alone.
      if (chunk.type === "tool-input-available") {
        if (this.#calls.has(chunk.toolCallId)) continue;
        this.#calls.add(chunk.toolCallId);
      }
      this.#push(chunk);
    }
  }

  #endText(): void {
    if (this.#text !== undefined) this.#push({ type: "text-end", id: this.#text });
    this.#text = undefined;
  }

  #ask(question: OpenQuestionDetails): void {
    this.#endText();
    const toolCallId = questionCallId(this.#runId, question.await_id);
    this.#calls.add(toolCallId);
    this.#inStep.add(question.await_id);
    this.#push({
      type: "tool-input-available",
      toolCallId,
      toolName: ASK,
      input: inputOf(question),
      dynamic: true,
    });
    if (this.#approvals && question.kind === "approval")
      this.#push({ type: "tool-approval-request", approvalId: toolCallId, toolCallId });
  }

  #settle({ await_id, how, reason, answer }: Extract<DetailedEvent, { readonly type: "question.settled" }>): void {
    this.#questions.delete(await_id);
    const toolCallId = questionCallId(this.#runId, await_id);
    const message = messageOf(answer);
    const isSaid = message !== undefined && idOf(message) !== undefined;
    const next = isSaid ? messageIdAfter(this.#runId, await_id) : this.#messageId;
    this.#endText();
    if (this.#calls.has(toolCallId)) {
      const output = how === "answer" ? outputOf(answer) : { [how]: true, ...(reason !== null && { reason }) };
      this.#push({ type: "tool-output-available", toolCallId, output, dynamic: true });
    }
    this.#inStep.clear();
    if (next === this.#messageId) {
      // Otherwise a page that sends answers automatically would send this one again.
      if (!this.#isStepEmpty) this.#push({ type: "finish-step" }, { type: "start-step" });
      return;
    }
    this.#messageId = next;
    this.#calls.clear();
    this.#push({ type: "finish-step" }, { type: "start", messageId: next }, { type: "start-step" });
  }

  #push(...chunks: UiChunk[]): void {
    for (const { type } of chunks)
      this.#isStepEmpty = type === "start-step" || (this.#isStepEmpty && /output|start$|finish/.test(type));
    this.#chunks.push(...chunks);
  }
}

/** What a question shows, as the input of a tool call. */
function inputOf(question: OpenQuestionDetails): Readonly<Record<string, unknown>> {
  const { message, name, kind, expires_at } = question;
  const schema = schemaOf(question);
  return {
    question: wordsOf(message),
    ...(name !== null && { name }),
    kind,
    ...(schema !== undefined && { schema }),
    ...(expires_at !== null && { expires_at }),
  };
}

/** An answer, as the output of a tool call: words, or the answer itself. */
function outputOf(answer: unknown): unknown {
  const message = messageOf(answer);
  return message === undefined ? answer : wordsOf(message);
}
