import { inBackground } from "../../core/background.ts";
import type { Logger } from "../../core/ports.ts";
import { readError } from "../../http/errors.ts";
import type { EventFormat, EventSource, EventText } from "../../http/event-text.ts";
import { escapeBreaks, STREAM_HEARTBEAT } from "../../http/event-text.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import { questionCallId } from "../chat/call-ids.ts";
import { shownText } from "../chat/parts.ts";
import { elicitationOf } from "./elicitation.ts";
import type { RpcRequest } from "./rpc.ts";
import { errorOf, INTERNAL_ERROR, RpcError } from "./rpc.ts";

/** How the messages of a response are told apart. */
export interface Frame {
  readonly before: string;
  readonly after: string;
  /** Written after a silence; undefined: nothing. */
  readonly heartbeat?: string;
}

export const sseFrame: Frame = {
  before: "event: message\ndata: ",
  after: "\n\n",
  heartbeat: STREAM_HEARTBEAT,
};
export const lineFrame: Frame = { before: "", after: "\n" };

/** A message in its frame. */
export function framed({ before, after }: Frame, message: JsonObject): string {
  return `${before}${escapeBreaks(JSON.stringify(message))}${after}`;
}

/** The response to a request. */
export function respond(frame: Frame, { id }: RpcRequest, content: JsonObject): string {
  return framed(frame, { jsonrpc: "2.0", id, ...content });
}

/** The error of a response whose events cannot be read further. */
export function broken(error: unknown): JsonObject {
  const { message, data } = readError(error);
  return { code: INTERNAL_ERROR, message, ...(data !== undefined && { data: data as JsonValue }) };
}

/** By how much the progress rises with each text. The numbers of an agent are larger, and stay what they are. */
const TEXT_PROGRESS = 2 ** -10;

/** Writes the events of a run as progress and questions, and then the response to the call. */
export class CallText implements EventFormat {
  readonly begin = "";
  readonly heartbeat: string | undefined;
  /** The result of the call, or its error, once the run rests. */
  result: JsonObject | RpcError | undefined;
  /** Whether the response has been written. */
  isAnswered = false;
  /** Whether the response is all that was written. */
  isAlone = true;
  /** Whether a question could not be shown. */
  isUnasked = false;
  /** Called when a question is shown. */
  onQuestion: (question: OpenQuestionDetails) => void = ignore;
  readonly #frame: Frame;
  readonly #request: RpcRequest;
  readonly #runId: string;
  readonly #asks: boolean | undefined;
  readonly #cancel: () => void;
  readonly #reasons = new Map<string, string>();
  #progress = 0;

  /**
   * `asks`: whether questions are asked within the response, as before `2026-07-28`; false: its client shows none. Undefined:
   * the response says what is asked. `cancel`: cancels the run.
   */
  constructor(frame: Frame, request: RpcRequest, runId: string, asks: boolean | undefined, cancel: () => void) {
    this.heartbeat = frame.heartbeat;
    this.#frame = frame;
    this.#request = request;
    this.#runId = runId;
    this.#asks = asks;
    this.#cancel = cancel;
  }

  /** The event that shows a question again. */
  again(question: OpenQuestionDetails, reason: string): DetailedEvent {
    this.#reasons.set(question.await_id, reason);
    return { type: "question.asked", position: 0, at: "", question };
  }

  write(event: DetailedEvent, out: EventText): void {
    if (event.type === "question.asked") this.#ask(event.question, out);
    else this.#tell(event, out);
  }

  #ask(question: OpenQuestionDetails, out: EventText): void {
    if (this.#asks === undefined) return;
    if (!this.#asks) {
      this.isUnasked = true;
      this.#cancel();
      return;
    }
    const { await_id } = question;
    this.onQuestion(question);
    const id = questionCallId(this.#runId, await_id);
    const { before, after } = this.#frame;
    this.isAlone = false;
    out.put(before, { jsonrpc: "2.0", id, ...elicitationOf(question, this.#reasons.get(await_id)) }, after);
  }

  #tell(event: DetailedEvent, out: EventText): void {
    const { _meta: meta } = this.#request.params;
    const token = isJsonObject(meta) ? meta["progressToken"] : undefined;
    if (token === undefined) return;
    const told = this.#progressOf(event);
    if (told === undefined) return;
    const params = { progressToken: token, ...told };
    this.isAlone = false;
    const { before, after } = this.#frame;
    out.put(before, { jsonrpc: "2.0", method: "notifications/progress", params }, after);
  }

  /** What an event says of the progress. It rises with each notification. Undefined: nothing. */
  #progressOf(event: DetailedEvent): JsonObject | undefined {
    if (event.type === "generic") {
      const { progress, total, message } = event.generic;
      if (typeof progress !== "number" || progress <= this.#progress) return undefined;
      this.#progress = progress;
      const isText = typeof message === "string";
      return { progress, ...(typeof total === "number" && { total }), ...(isText && { message }) };
    }
    const message = event.type === "message.part" ? progressText(event.part) : undefined;
    if (message === undefined) return undefined;
    this.#progress += TEXT_PROGRESS;
    return { progress: this.#progress, message };
  }

  end(): string {
    this.isAnswered = true;
    const { result = {} } = this;
    const content = result instanceof RpcError ? { error: errorOf(result) } : { result };
    return respond(this.#frame, this.#request, content);
  }

  readonly failure = (error: unknown): string => respond(this.#frame, this.#request, { error: broken(error) });
}

/** What a part says of the progress: its text, or the name of the tool that is used. */
function progressText(part: MessagePart): string | undefined {
  const { metadata } = part;
  if (metadata?.kind === "trajectory" && typeof metadata.tool_name === "string") return metadata.tool_name;
  return shownText(part) || undefined;
}

/** The events of a run, between them questions that are shown again, and then the result of its call. */
export class CallSource implements EventSource {
  readonly #logger: Logger;
  readonly #events: EventSource;
  readonly #finish: () => Promise<void>;
  readonly #repeated: DetailedEvent[] = [];
  /** The event that is awaited. */
  #pending: Promise<IteratorResult<DetailedEvent, undefined>> | undefined;
  #wake: (() => void) | undefined;

  /** `finish`: called after the last event. */
  constructor(logger: Logger, events: EventSource, finish: () => Promise<void>) {
    this.#logger = logger;
    this.#events = events;
    this.#finish = finish;
  }

  /** Gives an event again. */
  repeat(event: DetailedEvent): void {
    this.#repeated.push(event);
    this.#wake?.();
  }

  poll(): ReturnType<EventSource["poll"]> {
    const value = this.#repeated.shift();
    if (value !== undefined) return { done: false, value };
    const next = this.#pending ?? this.#events.poll();
    if (!("then" in next)) return this.#after(next);
    this.#pending = next;
    return new Promise((resolve, reject) => {
      let isOpen = true;
      this.#wake = () => {
        isOpen = false;
        this.#wake = undefined;
        resolve(this.poll());
      };
      const settle = (act: () => void): void => {
        if (!isOpen) return;
        this.#wake = undefined;
        this.#pending = undefined;
        act();
      };
      const settled = next.then(
        (result) => settle(() => resolve(this.#after(result))),
        (error: unknown) => settle(() => reject(error)),
      );
      inBackground(this.#logger, settled);
    });
  }

  #after(result: IteratorResult<DetailedEvent, undefined>): ReturnType<EventSource["poll"]> {
    return result.done === true ? this.#finish().then(() => result) : result;
  }

  return(): void {
    this.#events.return();
  }
}

function ignore(): void {
  // No one keeps the questions that are shown.
}
