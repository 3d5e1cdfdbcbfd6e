import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import { questionCallId } from "../chat/call-ids.ts";
import type { Teller } from "../chat/item-format.ts";
import { idOf, shownText, thoughtIn } from "../chat/parts.ts";
import type { AskedTool } from "../chat/questions.ts";
import { messageOf, outputOf, schemaOf, toolOf, wordsOf } from "../chat/questions.ts";
import type { BlockKind, MessageMetadata, UiChunk } from "./chunks.ts";
import { ASK } from "./chunks.ts";
import { partChunks, preliminaryChunks } from "./part-chunks.ts";

/** Where a response begins. */
export interface ResponseStart {
  readonly run_id: string;
  /** The message that the response is, or goes on with. */
  readonly messageId: string;
  /** The calls that the page shows already in that message. */
  readonly shown?: ReadonlySet<string> | undefined;
  /** What the page need not be told. Default: nothing. */
  readonly leftOut?: LeftOut | undefined;
}

/** The events from `first` to `last`. */
interface EventRange {
  readonly first: number;
  readonly last: number;
}

/** What a page that reads a response from its start need not be told. */
export interface LeftOut {
  /** The last message of the run. The page has the earlier messages, and gets no chunks of them. */
  readonly before: string;
  /** The parts that do not count, since their step was tried again. */
  readonly torn: readonly EventRange[];
}

/** The id of the assistant message after an answer that the user gave as a message. */
export function messageIdAfter(runId: string, awaitId: string): string {
  return questionCallId(runId, awaitId);
}

/** The message that begins after a detail. Undefined: the response continues the same message. */
export function nextMessageId(runId: string, event: DetailedEvent): string | undefined {
  if (event.type !== "question.settled") return undefined;
  const message = messageOf(event.answer);
  // A message of a page comes between.
  return message !== undefined && idOf(message) !== undefined ? messageIdAfter(runId, event.await_id) : undefined;
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
  /** The text or the thought that is being written. */
  #block: { readonly kind: BlockKind; readonly id: string } | undefined;
  #metadata: MessageMetadata;
  /** The number of the event that is being told. */
  #event = 0;
  /** The open questions. */
  readonly #questions = new Map<string, OpenQuestionDetails>();
  /** The calls of this message, and the questions of this step. */
  readonly #calls: Set<string>;
  readonly #inStep = new Set<string>();
  /** The questions that are shown as the calls of tools that they are about, by the ids of these calls. */
  readonly #tools = new Map<string, string>();
  /** The calls of such tools of which the page has the result. */
  readonly #finished = new Set<string>();
  /** The number of the event with which this message began, as far as this response tells it. */
  #messageBegan = 0;
  readonly #torn: readonly EventRange[];
  /** The message with which the chunks begin. Undefined once it has begun. */
  #before: string | undefined;
  #chunks: UiChunk[] = [];
  /** The events cannot be read further. */
  #isBroken = false;
  #ending: UiChunk[] = [];

  constructor(
    { run_id, messageId, shown, leftOut }: ResponseStart,
    approvals: boolean,
    questions: readonly OpenQuestionDetails[] = [],
  ) {
    this.#runId = run_id;
    this.#messageId = messageId;
    this.#metadata = { run_id };
    this.#approvals = approvals;
    this.#calls = new Set(shown);
    this.#torn = leftOut?.torn ?? [];
    this.#before = leftOut?.before === messageId ? undefined : leftOut?.before;
    for (const question of questions) {
      this.#questions.set(question.await_id, question);
      this.#toolOf(question);
    }
  }

  /** What is known of the run by now. */
  get metadata(): MessageMetadata {
    return this.#metadata;
  }

  /** The chunks of an event. */
  take(event: DetailedEvent): readonly UiChunk[] {
    this.#chunks = [];
    if ("id" in event) this.#event = event.id;
    this.#note(event);
    this.#begin();
    this.#tell(event);
    return this.#before === undefined ? this.#chunks : [];
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
    this.#endBlock();
    this.#push({ type: "finish-step" });
    this.#push(...this.#ending);
    const finishReason = this.#ending.length > 0 ? "error" : this.#questions.size > 0 ? "tool-calls" : "stop";
    const isCut = this.#ending.some(({ type }) => type === "abort") || this.#isBroken;
    if (!isCut) this.#push({ type: "finish", finishReason, messageMetadata: this.#metadata });
    return this.#chunks;
  }

  #begin(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#push(this.#start(), { type: "start-step" });
  }

  #start(): UiChunk {
    return { type: "start", messageId: this.#messageId, messageMetadata: this.#metadata };
  }

  /** What the metadata of the message say of the run. */
  #note(event: DetailedEvent): void {
    if (event.type === "usage") this.#metadata = { ...this.#metadata, usage: event.total };
    if (!("run" in event) || typeof event.run === "string") return;
    const { created_at, finished_at } = event.run;
    this.#metadata = {
      ...this.#metadata,
      created_at,
      ...(typeof finished_at === "string" && { finished_at }),
    };
  }

  #tell(event: DetailedEvent): void {
    switch (event.type) {
      case "message.part":
        if (!isIn(this.#torn, event.id)) this.#addPart(event.part);
        return;
      case "output.torn":
        this.#tear(event.events);
        return;
      case "message.completed":
      case "step.attempt_failed":
      case "step.started":
        // What an interrupted attempt has shown is a text of its own.
        this.#endBlock();
        return;
      case "generic":
        this.#addGeneric(event.generic);
        return;
      case "question.asked":
        this.#questions.set(event.question.await_id, event.question);
        this.#ask(event.question);
        return;
      case "question.settled":
        this.#settle(event);
        return;
      case "run.failed":
        this.#ending = [{ type: "error", errorText: event.run.error?.message ?? "The run failed." }];
        return;
      case "run.cancelled":
        this.#ending = [{ type: "abort" }];
        return;
      case "error":
        this.#ending = [{ type: "error", errorText: event.error.message }];
        this.#isBroken = true;
        return;
      default:
    }
  }

  #addPart(part: Message["parts"][number]): void {
    this.#write("text", shownText(part));
    this.#write("reasoning", thoughtIn(part));
    for (const chunk of partChunks(part, `${this.#runId}/p${this.#event}`)) this.#addChunk(chunk);
  }

  #addGeneric(generic: JsonObject): void {
    const chunks = preliminaryChunks(generic) ?? [{ type: "data-generic", data: generic, transient: true }];
    for (const chunk of chunks) this.#addChunk(chunk);
  }

  #addChunk(chunk: UiChunk): void {
    this.#endBlock();
    const asked = "toolCallId" in chunk ? this.#tools.get(chunk.toolCallId) : undefined;
    if (asked !== undefined) {
      if (chunk.type !== "tool-output-available" || this.#finished.has(asked)) return;
      const { type, output, preliminary } = chunk;
      this.#push({ type, toolCallId: asked, output, ...(preliminary && { preliminary }) });
      return;
    }
    // The result of a call that was shown before comes alone.
    if (chunk.type === "tool-input-available") {
      if (this.#calls.has(chunk.toolCallId)) return;
      this.#calls.add(chunk.toolCallId);
    }
    this.#push(chunk);
  }

  /** Parts do not count. If this message has shown some of them, the page gets a chunk that says so. */
  #tear(events: readonly EventRange[]): void {
    this.#endBlock();
    if (!events.some(({ first, last }) => last > this.#messageBegan && !isIn(this.#torn, first))) return;
    this.#push({ type: "data-torn", data: { message_id: this.#messageId }, transient: true });
  }

  #write(kind: BlockKind, delta = ""): void {
    if (delta === "") return;
    if (this.#block?.kind !== kind) this.#endBlock();
    if (this.#block === undefined) {
      this.#block = { kind, id: `${kind === "text" ? "t" : "r"}${this.#event}` };
      this.#push({ type: `${kind}-start`, id: this.#block.id });
    }
    this.#push({ type: `${kind}-delta`, id: this.#block.id, delta });
  }

  #endBlock(): void {
    if (this.#block !== undefined) this.#push({ type: `${this.#block.kind}-end`, id: this.#block.id });
    this.#block = undefined;
  }

  #ask(question: OpenQuestionDetails): void {
    this.#endBlock();
    const toolCallId = questionCallId(this.#runId, question.await_id);
    this.#calls.add(toolCallId);
    this.#inStep.add(question.await_id);
    const tool = this.#toolOf(question);
    this.#push({
      type: "tool-input-available",
      toolCallId,
      ...(tool === undefined
        ? { toolName: ASK, input: inputOf(question), dynamic: true }
        : { toolName: tool.name, input: tool.input }),
    });
    if (this.#approvals && question.kind === "approval")
      this.#push({ type: "tool-approval-request", approvalId: toolCallId, toolCallId });
  }

  /** The tool as which the question is shown. Undefined: it is shown as a question, since the page cannot approve calls. */
  #toolOf(question: OpenQuestionDetails): AskedTool | undefined {
    if (question.kind === "approval" && !this.#approvals) return undefined;
    const tool = toolOf(question);
    if (tool !== undefined) this.#tools.set(tool.id, questionCallId(this.#runId, question.await_id));
    return tool;
  }

  /** The result of a call that was shown as a question. */
  #outputOf(toolCallId: string, question: OpenQuestionDetails | undefined, settled: Settled): UiChunk | undefined {
    const { how, reason, answer } = settled;
    const isTool = [...this.#tools.values()].includes(toolCallId);
    if (!isTool) {
      const output = how === "answer" ? outputOf(answer) : { [how]: true, ...(reason !== null && { reason }) };
      return { type: "tool-output-available", toolCallId, output, dynamic: true };
    }
    const isApproval = question?.kind === "approval";
    // An approved call is at work now. Its result comes from the agent.
    if (isApproval && isJsonObject(answer) && answer["approved"] === true) return undefined;
    this.#finished.add(toolCallId);
    if (isApproval) return { type: "tool-output-denied", toolCallId };
    if (how === "answer" || how === "default")
      return { type: "tool-output-available", toolCallId, output: outputOf(answer) };
    return { type: "tool-output-error", toolCallId, errorText: reason ?? `There is no result: ${how}.` };
  }

  #settle(settled: Settled): void {
    const { await_id } = settled;
    const question = this.#questions.get(await_id);
    this.#questions.delete(await_id);
    const toolCallId = questionCallId(this.#runId, await_id);
    const next = nextMessageId(this.#runId, settled) ?? this.#messageId;
    this.#endBlock();
    const output = this.#calls.has(toolCallId) ? this.#outputOf(toolCallId, question, settled) : undefined;
    if (output !== undefined) this.#push(output);
    this.#inStep.clear();
    if (next === this.#messageId) {
      // Otherwise a page that sends answers automatically would send this one again.
      if (!this.#isStepEmpty) this.#push({ type: "finish-step" }, { type: "start-step" });
      return;
    }
    this.#messageId = next;
    this.#messageBegan = this.#event;
    this.#calls.clear();
    this.#push({ type: "finish-step" });
    if (this.#before === next) {
      this.#before = undefined;
      this.#chunks = [];
    }
    this.#push(this.#start(), { type: "start-step" });
  }

  #push(...chunks: UiChunk[]): void {
    for (const { type } of chunks)
      this.#isStepEmpty = type === "start-step" || (this.#isStepEmpty && /output|start$|finish/.test(type));
    this.#chunks.push(...chunks);
  }
}

type Settled = Extract<DetailedEvent, { readonly type: "question.settled" }>;

function isIn(ranges: readonly EventRange[], id: number): boolean {
  return ranges.some(({ first, last }) => id >= first && id <= last);
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
