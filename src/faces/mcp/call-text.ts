import type { EventText } from "../../http/event-text.ts";
import { RpcError } from "../../http/json-rpc.ts";
import { RpcText } from "../../http/rpc-text.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import { questionCallId } from "../chat/call-ids.ts";
import { shownText } from "../chat/parts.ts";
import { elicitationOf } from "./elicitation.ts";
import type { RpcCall } from "./options.ts";
import { errorOf, resultFor } from "./responses.ts";

/** By how much the progress rises with each text. The numbers of an agent are larger, and stay what they are. */
const TEXT_PROGRESS = 2 ** -10;

/** How often one question is shown. A client that answers by itself would repeat an answer that is refused without end. */
const MAX_TIMES_ASKED = 10;

/** Writes the events of a run as progress and questions, and then the response to the call. */
export class CallText extends RpcText {
  readonly begin = "";
  /** The result of the call, or its error, once the run rests. */
  result: JsonObject | RpcError | undefined;
  /** Whether the response has been written. */
  isAnswered = false;
  /** Whether the response is all that was written. */
  isAlone = true;
  /** Why a question was not shown, and the run therefore cancelled. Undefined: all were shown. */
  unasked: string | undefined;
  readonly #call: RpcCall;
  /** The run as it was when the response began. */
  readonly #run: RunDetails;
  /**
   * Whether questions are asked within the response, as before `2026-07-28`; false: its client shows none. Undefined: the
   * response says what is asked.
   */
  readonly #asks: boolean | undefined;
  readonly #cancel: () => void;
  readonly #reasons = new Map<string, string>();
  readonly #timesAsked = new Map<string, number>();
  /** The number of the last event. */
  #number = 0;
  /** What was told last. The first text is 0, as the first number of an agent may be. */
  #progress = -TEXT_PROGRESS;

  /** `cancel`: cancels the run. */
  constructor(call: RpcCall, run: RunDetails, cancel: () => void) {
    const { message, peer, service } = call;
    super(service.settings.frame, message);
    this.#call = call;
    this.#run = run;
    this.#asks = peer.isModern ? undefined : peer.elicits;
    this.#cancel = cancel;
  }

  /** The event that shows a question again. */
  again(question: OpenQuestionDetails, reason: string): DetailedEvent {
    this.#reasons.set(question.await_id, reason);
    return { type: "question.asked", position: 0, at: "", question };
  }

  write(event: DetailedEvent, out: EventText): void {
    if ("id" in event && event.id !== undefined) this.#number = event.id;
    if (event.type === "question.asked") this.#ask(event.question, out);
    else this.#tell(event, out);
  }

  #ask(question: OpenQuestionDetails, out: EventText): void {
    const { run_id, last_event_id, await_requests } = this.#run;
    const { await_id } = question;
    const isOpen = this.#number >= last_event_id || await_requests.some((one) => one.await_id === await_id);
    if (this.#asks === undefined || !isOpen) return;
    const times = (this.#timesAsked.get(await_id) ?? 0) + 1;
    this.#timesAsked.set(await_id, times);
    if (!this.#asks || times > MAX_TIMES_ASKED) {
      this.unasked = this.#asks ? UNFIT : UNSHOWN;
      this.#cancel();
      return;
    }
    const id = questionCallId(run_id, await_id);
    this.#say(out, { id, ...elicitationOf(question, this.#reasons.get(await_id)) });
  }

  #tell(event: DetailedEvent, out: EventText): void {
    const { _meta: meta } = this.request.params;
    const token = isJsonObject(meta) ? meta["progressToken"] : undefined;
    if (typeof token !== "string" && typeof token !== "number") return;
    const told = this.#progressOf(event);
    if (told !== undefined)
      this.#say(out, { method: "notifications/progress", params: { progressToken: token, ...told } });
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

  #say(out: EventText, message: JsonObject): void {
    this.isAlone = false;
    this.put(out, message);
  }

  end(): string {
    this.isAnswered = true;
    const { result = {} } = this;
    return this.respond(
      result instanceof RpcError ? { error: errorOf(result) } : { result: resultFor(this.#call, result) },
    );
  }
}

const UNSHOWN = "The client shows no questions. The run was cancelled.";
const UNFIT = `${MAX_TIMES_ASKED} answers were refused. The run was cancelled.`;

/** What a part says of the progress: its text, or the name of the tool that is used. */
function progressText(part: MessagePart): string | undefined {
  const { metadata } = part;
  if (metadata?.kind === "trajectory" && typeof metadata.tool_name === "string") return metadata.tool_name;
  return shownText(part) || undefined;
}
