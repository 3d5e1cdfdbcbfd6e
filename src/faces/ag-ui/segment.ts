import type { OpenQuestionDetails, Usage } from "../../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import { questionCallId } from "../chat/call-ids.ts";
import type { Teller } from "../chat/item-format.ts";
import { shownText, stateIn, thoughtIn } from "../chat/parts.ts";
import { messageOf, outputOf, schemaOf, toolOf, wordsOf } from "../chat/questions.ts";
import type { AgUiEvent, AgUiMessage, Interrupt, Outcome, TokenUsage } from "./events.ts";
import { patchOf } from "./json-patch.ts";
import { blocks, partEvents, partId, ShownCalls } from "./part-events.ts";

/** What a segment tells of. */
export interface SegmentStart {
  readonly threadId: string;
  /** The id that the client gave the segment. */
  readonly runId: string;
  /** The run; undefined: none, since nothing was said in the thread yet. */
  readonly run_id: string | undefined;
  /** What was said before, for a client that has nothing of the thread. */
  readonly before?: readonly AgUiMessage[] | undefined;
  /** The state that the client gets together with the earlier messages. Undefined: no agent has set one. */
  readonly state?: JsonValue | undefined;
  /** The tools that the client executes itself. Their calls are no interrupts: the client sends their results. */
  readonly clientTools?: ReadonlySet<string> | undefined;
  /** Whether the client says which version of the protocol it speaks. Clients before 1.0 take no run as cancelled. */
  readonly isVersioned?: boolean | undefined;
  /** The questions that the client has replied to: the segment begins where the first of them is settled. */
  readonly resumed?: ReadonlySet<string> | undefined;
}

/** The event with which a segment begins. */
export function startOf({ threadId, runId, run_id }: SegmentStart): AgUiEvent {
  return {
    type: "RUN_STARTED",
    threadId,
    runId,
    protocolVersion: "1.0",
    ...(run_id !== undefined && { metadata: { run_id } }),
  };
}

/**
 * Turns the events of a run, with their details and from the first one on, into one segment of AG-UI: up to where the
 * run rests.
 */
export class Segment implements Teller {
  #start: SegmentStart;
  /** The events are those before the segment. */
  #isBefore: boolean;
  #hasBegun = false;
  /** The segment began with a reply that has settled its question. */
  #hasResumed = false;
  /** The text or the thought that is being written. */
  #block: { readonly kind: keyof typeof blocks; readonly id: string } | undefined;
  /** The state that the client has. Undefined: the agent has set none. */
  #state: JsonValue | undefined;
  /** The number of the event that is being told. */
  #event = 0;
  readonly #questions = new Map<string, OpenQuestionDetails>();
  /** The names of the open steps, by their keys. */
  readonly #steps = new Map<string, string>();
  /** The agents of the open sub-runs, by their ids. */
  readonly #subRuns = new Map<string, string>();
  readonly #calls = new ShownCalls();
  #usage: TokenUsage | undefined;
  #outcome: Outcome | Extract<AgUiEvent, { readonly type: "RUN_ERROR" }> | undefined;
  #items: AgUiEvent[] = [];
  /** What is told before the next event. */
  #left: readonly AgUiEvent[] = [];

  constructor(start: SegmentStart) {
    this.#start = start;
    this.#isBefore = start.resumed !== undefined;
    this.#state = start.state;
  }

  /** The state that the agent has set last. Undefined: none. */
  get state(): JsonValue | undefined {
    return this.#state;
  }

  take(event: DetailedEvent): readonly AgUiEvent[] {
    this.#items = [...this.#left];
    this.#left = [];
    this.#begin();
    if ("id" in event) this.#event = event.id;
    this.#tell(event);
    return this.#isBefore ? [] : this.#items;
  }

  end(): readonly AgUiEvent[] {
    this.#items = [];
    this.#isBefore = false;
    this.#begin();
    this.#endText();
    for (const stepName of this.#steps.values()) this.#items.push({ type: "STEP_FINISHED", stepName });
    for (const subagentRunId of this.#subRuns.keys()) this.#suspend(subagentRunId);
    const outcome = this.#outcome ?? this.#interrupts();
    if (outcome.type === "RUN_ERROR" && this.#hasResumed) this.#endAfterResume(outcome);
    else if (outcome.type === "RUN_ERROR") this.#items.push({ ...outcome, ...this.#used() });
    else if (outcome.type === "cancelled" && this.#start.isVersioned !== true)
      this.#finish({ type: "success" }, { message: "The run was cancelled.", code: "cancelled" });
    else this.#finish(outcome);
    return this.#items;
  }

  /** Continues with the events of another run. The run before it rests, and asks nothing. */
  goOn(run_id: string): void {
    const isEnd = ({ type }: AgUiEvent): boolean => type === "RUN_FINISHED" || type === "RUN_ERROR";
    this.#left = this.end().filter((item) => !isEnd(item));
    this.#start = { ...this.#start, run_id, resumed: undefined };
    this.#hasResumed = false;
    this.#outcome = undefined;
    this.#steps.clear();
    this.#subRuns.clear();
  }

  fail({ message, data }: { readonly message: string; readonly data?: object }): readonly AgUiEvent[] {
    this.#items = [];
    this.#isBefore = false;
    this.#begin();
    const reason = data !== undefined && "reason" in data ? data.reason : undefined;
    this.#items.push({ type: "RUN_ERROR", message, code: typeof reason === "string" ? reason : "server_error" });
    return this.#items;
  }

  /**
   * The official client forgets an interrupt when the run is finished, and not at an error: after an error every further
   * message of its user would be refused by it.
   */
  #endAfterResume({ message, code }: ReturnType<typeof errorOf>): void {
    const error = { message, ...(code !== undefined && { code }) };
    this.#items.push({ type: "CUSTOM", name: "run_failed", value: error });
    this.#finish({ type: this.#start.isVersioned === true ? "cancelled" : "success" }, error);
  }

  #finish(outcome: Outcome, error?: JsonObject): void {
    const { threadId, runId } = this.#start;
    const result = error && { result: { error } };
    this.#items.push({ type: "RUN_FINISHED", threadId, runId, outcome, ...result, ...this.#used() });
  }

  #used(): { readonly usage?: readonly TokenUsage[] } {
    return this.#usage === undefined ? {} : { usage: [this.#usage] };
  }

  /** The call that a question is about is shown before it, once. */
  #showTool(question: OpenQuestionDetails): void {
    const tool = toolOf(question);
    if (tool !== undefined) this.#items.push(...this.#calls.begin(tool.id, tool.name, tool.input));
  }

  #begin(): void {
    if (this.#hasBegun || this.#isBefore) return;
    this.#hasBegun = true;
    const { before, state } = this.#start;
    this.#items.push(startOf(this.#start));
    if (before !== undefined) this.#items.push({ type: "MESSAGES_SNAPSHOT", messages: before });
    if (state !== undefined) this.#items.push({ type: "STATE_SNAPSHOT", snapshot: state });
  }

  #tell(event: DetailedEvent): void {
    switch (event.type) {
      case "message.part":
        this.#addPart(event.part);
        return;
      case "message.created":
      case "message.completed":
        this.#endText();
        return;
      case "generic": {
        const { name, value } = event.generic;
        const isNamed = typeof name === "string" && value !== undefined;
        this.#items.push({
          type: "CUSTOM",
          ...(isNamed ? { name, value } : { name: "generic", value: event.generic }),
        });
        return;
      }
      case "step.attempt_failed":
      case "step.completed":
      case "step.failed":
        this.#endStep(event.key);
        return;
      case "step.started":
        this.#endStep(event.key);
        this.#beginStep(event);
        return;
      case "sub_run.started":
        this.#beginSubRun(event.run_id, event.agent_name);
        return;
      case "sub_run.ended":
        this.#endSubRun(event);
        return;
      case "question.asked":
        this.#endText();
        this.#questions.set(event.question.await_id, event.question);
        this.#showTool(event.question);
        return;
      case "question.settled":
        this.#settle(event);
        return;
      case "usage":
        this.#usage = sumOf(this.#usage, event.usage);
        return;
      case "run.completed":
        this.#outcome = { type: "success" };
        return;
      case "run.cancelled":
        this.#outcome = { type: "cancelled" };
        return;
      case "run.failed":
        this.#outcome = errorOf(event.run.error ?? { message: "The run failed." });
        return;
      case "error":
        this.#outcome = errorOf(event.error);
        // The run has not ended, and its questions stay open.
        this.#hasResumed = false;
        return;
      default:
    }
  }

  #addPart(part: MessagePart): void {
    this.#write("text", shownText(part));
    this.#write("thought", thoughtIn(part));
    const others = partEvents(part, partId(this.#runId, this.#event), this.#calls);
    const state = stateIn(part);
    if (others.length > 0 || state !== undefined) this.#endText();
    this.#items.push(...others);
    if (state !== undefined) this.#setState(state);
  }

  #write(kind: keyof typeof blocks, delta = ""): void {
    if (delta === "") return;
    if (this.#block?.kind !== kind) this.#endText();
    if (this.#block === undefined) {
      const id = `${this.#start.run_id}-${kind === "text" ? "m" : "r"}${this.#event}`;
      this.#block = { kind, id };
      this.#items.push(...blocks[kind].start(id));
    }
    this.#items.push(blocks[kind].add(this.#block.id, delta));
  }

  /** Ends what is being written. */
  #endText(): void {
    if (this.#block !== undefined) this.#items.push(...blocks[this.#block.kind].end(this.#block.id));
    this.#block = undefined;
  }

  #setState(state: JsonValue): void {
    const before = this.#state;
    this.#state = state;
    if (before === undefined) this.#items.push({ type: "STATE_SNAPSHOT", snapshot: state });
    else {
      const delta = patchOf(before, state);
      if (delta.length > 0) this.#items.push({ type: "STATE_DELTA", delta });
    }
  }

  #beginStep({ key, name }: { readonly key: string; readonly name: string }): void {
    // Steps that run at the same time have names of their own.
    const stepName = [...this.#steps.values()].includes(name) ? key : name;
    this.#steps.set(key, stepName);
    this.#items.push({ type: "STEP_STARTED", stepName });
  }

  /** What an interrupted attempt at a step has shown is a message of its own. */
  #endStep(key: string): void {
    this.#endText();
    const stepName = this.#steps.get(key);
    if (!this.#steps.delete(key) || stepName === undefined) return;
    this.#items.push({ type: "STEP_FINISHED", stepName });
  }

  #beginSubRun(subagentRunId: string, name: string): void {
    if (this.#subRuns.has(subagentRunId)) return;
    this.#subRuns.set(subagentRunId, name);
    this.#items.push({ type: "SUBAGENT_STARTED", subagentRunId, name });
  }

  #endSubRun({ run_id, status, error }: Extract<DetailedEvent, { readonly type: "sub_run.ended" }>): void {
    if (!this.#subRuns.delete(run_id)) return;
    const subagentRunId = run_id;
    if (status === "completed")
      this.#items.push({ type: "SUBAGENT_FINISHED", subagentRunId, outcome: { type: "success" } });
    else {
      const why = errorOf(error ?? { message: "The run was cancelled.", data: { reason: "cancelled" } });
      this.#items.push({ ...why, type: "SUBAGENT_ERROR", subagentRunId });
    }
  }

  /** A sub-run that is open at the end of a segment. It goes on in the next one, if there is one. */
  #suspend(subagentRunId: string): void {
    const asked = [...this.#questions.values()].filter(({ of }) => of?.run_id === subagentRunId);
    const interruptIds = asked.map(({ await_id }) => questionCallId(this.#runId, await_id));
    this.#items.push({ type: "SUBAGENT_FINISHED", subagentRunId, outcome: { type: "suspended", interruptIds } });
  }

  #settle(settled: Settled): void {
    const { await_id, answer } = settled;
    this.#endText();
    const question = this.#questions.get(await_id);
    this.#questions.delete(await_id);
    const isReplied = this.#start.resumed?.has(await_id) === true;
    if (this.#isBefore && isReplied) this.#resume();
    const messageId = questionCallId(this.#runId, await_id);
    const tool = question?.kind === "input" ? toolOf(question) : undefined;
    if (question !== undefined && tool !== undefined) {
      // The client has the results of its own tools.
      if (isReplied && this.#isOfClient(question)) this.#calls.finishUnseen(tool.id);
      else this.#items.push(...this.#calls.finish(tool.id, messageId, resultOf(settled)));
      return;
    }
    const message = messageOf(answer);
    const words = message === undefined ? "" : wordsOf(message);
    if (words === "") return;
    this.#items.push(
      { type: "TEXT_MESSAGE_START", messageId, role: "user" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta: words },
      { type: "TEXT_MESSAGE_END", messageId },
    );
  }

  /** The segment begins. What was open at the end of the one before it is open again. */
  #resume(): void {
    this.#items = [];
    this.#isBefore = false;
    this.#hasResumed = true;
    this.#usage = undefined;
    this.#begin();
    for (const stepName of this.#steps.values()) this.#items.push({ type: "STEP_STARTED", stepName });
    for (const [subagentRunId, name] of this.#subRuns)
      this.#items.push({ type: "SUBAGENT_STARTED", subagentRunId, name });
  }

  get #runId(): string {
    return this.#start.run_id ?? "";
  }

  #interrupts(): Outcome {
    const questions = [...this.#questions.values()].filter((question) => !this.#isOfClient(question));
    if (questions.length === 0) return { type: "success" };
    return { type: "interrupt", interrupts: questions.map((question) => this.#interruptOf(question)) };
  }

  #isOfClient(question: OpenQuestionDetails): boolean {
    const tool = toolOf(question);
    return tool !== undefined && question.kind === "input" && this.#start.clientTools?.has(tool.name) === true;
  }

  #interruptOf(question: OpenQuestionDetails): Interrupt {
    const { await_id, kind, name, message, expires_at, of } = question;
    const toolCallId = toolOf(question)?.id;
    const responseSchema = schemaOf(question);
    return {
      id: questionCallId(this.#runId, await_id),
      reason: kind === "approval" ? "confirmation" : "input_required",
      message: wordsOf(message),
      ...(toolCallId !== undefined && { toolCallId }),
      ...(isJsonObject(responseSchema) && { responseSchema }),
      ...(expires_at !== null && { expiresAt: expires_at }),
      ...(of !== null && this.#subRuns.has(of.run_id) && { subagentRunId: of.run_id }),
      metadata: { kind, ...(name !== null && { name }) },
    };
  }
}

type Settled = Extract<DetailedEvent, { readonly type: "question.settled" }>;

/** The result of a tool, as the reply to the question for it. Why there is none is written as CopilotKit writes it. */
function resultOf({ how, answer, reason }: Settled): string {
  if (how !== "answer" && how !== "default") return `Error: ${reason ?? `There is no result: ${how}.`}`;
  const output = outputOf(answer);
  return typeof output === "string" ? output : JSON.stringify(output);
}

function errorOf({ message, data }: { readonly message: string; readonly data?: JsonObject | undefined }): {
  readonly type: "RUN_ERROR";
  readonly message: string;
  readonly code?: string;
} {
  const code = data?.["reason"];
  return { type: "RUN_ERROR", message, ...(typeof code === "string" && { code }) };
}

function sumOf(before: TokenUsage | undefined, usage: Usage): TokenUsage {
  return {
    inputTokens: (before?.inputTokens ?? 0) + usage.input_tokens,
    outputTokens: (before?.outputTokens ?? 0) + usage.output_tokens,
    totalTokens: (before?.totalTokens ?? 0) + usage.total_tokens,
    reasoningTokens: (before?.reasoningTokens ?? 0) + usage.reasoning_tokens,
    cachedInputTokens: (before?.cachedInputTokens ?? 0) + usage.cached_input_tokens,
    cacheWriteInputTokens: (before?.cacheWriteInputTokens ?? 0) + usage.cache_write_tokens,
  };
}
