import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import { jsonPart } from "../../protocol/message.ts";
import type { AwaitRequest, Run } from "../../protocol/run.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import { idOf, textPart } from "../chat/parts.ts";
import { messageOf, toolOf } from "../chat/questions.ts";
import { DECLINING } from "./card.ts";
import type { A2aMessage, Artifact, StreamItem, Task, TaskState, TaskStatus } from "./objects.ts";
import { stateOf } from "./objects.ts";
import { shownPart, shownParts } from "./parts.ts";

/** What a task has that the events of its run do not say. */
export interface TaskOf {
  readonly run_id: string;
  readonly contextId: string;
  /** What the user said to begin it. */
  readonly inputs: readonly Message[];
}

/** Which parts of a task a client wants. */
export interface TaskView {
  /** How many of the last messages. Undefined: all. */
  readonly historyLength?: number | undefined;
  /** Whether to leave out the artifacts. */
  readonly withoutArtifacts?: boolean;
}

interface Piece {
  readonly event: number;
  readonly part: MessagePart;
}

/** Output of one message of the agent. */
interface Output {
  readonly artifactId: string;
  pieces: Piece[];
}

/** Folds the events of a run, with their details and from the first one on, into the task that they make. */
export class TaskFold {
  readonly #run_id: string;
  readonly #contextId: string;
  #state: TaskState = "TASK_STATE_SUBMITTED";
  #message: A2aMessage | undefined;
  #timestamp = "";
  #isCancelling = false;
  /** The number of messages of the agent so far. */
  #messages = 0;
  readonly #outputs: Output[] = [];
  readonly #history: A2aMessage[];
  readonly #questions = new Map<string, OpenQuestionDetails>();

  constructor({ run_id, contextId, inputs }: TaskOf) {
    this.#run_id = run_id;
    this.#contextId = contextId;
    this.#history = inputs.map((message, index) => this.#said(message, `${run_id}:input-${index + 1}`));
  }

  /** Whether the task waits for an answer. */
  get isAsking(): boolean {
    return this.#state === "TASK_STATE_INPUT_REQUIRED" || this.#state === "TASK_STATE_AUTH_REQUIRED";
  }

  /** The task after the events that were taken. */
  task({ historyLength, withoutArtifacts = false }: TaskView): Task {
    const history =
      historyLength === undefined
        ? this.#history
        : this.#history.slice(historyLength === 0 ? this.#history.length : -historyLength);
    return {
      id: this.#run_id,
      contextId: this.#contextId,
      status: this.#status(),
      ...(!withoutArtifacts && this.#outputs.length > 0 && { artifacts: this.#outputs.map(artifactOf) }),
      ...(history.length > 0 && { history }),
      ...(this.#isCancelling && { metadata: { cancelling: true } }),
    };
  }

  /** Takes an event. Returns the items for a client that has the task as it was before. */
  take(event: DetailedEvent): readonly StreamItem[] {
    switch (event.type) {
      case "run.created":
        this.#timestamp = event.run.created_at;
        return [];
      case "run.in-progress":
        this.#enter("TASK_STATE_WORKING", this.#timestamp);
        return [this.#statusUpdate()];
      case "message.created":
        this.#messages += 1;
        return [];
      case "message.part":
        return [this.#addPart({ event: event.id, part: event.part })];
      case "generic":
        return [this.#statusUpdate({ generic: event.generic as JsonObject })];
      case "run.awaiting":
        return event.run.await_request === null ? [] : this.#ask(event.run, event.run.await_request);
      case "run.completed":
      case "run.failed":
      case "run.cancelled":
        return this.#end(event.run);
      case "output.torn":
        return this.#tear(event.events);
      case "question.asked":
        this.#questions.set(event.question.await_id, event.question);
        return [];
      case "question.settled":
        this.#settle(event);
        return [];
      case "cancel.requested":
        this.#isCancelling = true;
        this.#enter("TASK_STATE_WORKING", event.at);
        return [];
      default:
        return [];
    }
  }

  #addPart(piece: Piece): StreamItem {
    const artifactId = `output-${this.#messages}`;
    const last = this.#outputs.at(-1);
    const isNew = last?.artifactId !== artifactId;
    if (isNew) this.#outputs.push({ artifactId, pieces: [piece] });
    else last.pieces.push(piece);
    const artifact = { artifactId, parts: [shownPart(piece.part)] };
    return { artifactUpdate: { ...this.#ids(), artifact, ...(!isNew && { append: true as const }) } };
  }

  /** Leaves out what an earlier attempt has emitted. A client gets what is left of each artifact that is changed. */
  #tear(torn: readonly { readonly first: number; readonly last: number }[]): readonly StreamItem[] {
    return this.#outputs.flatMap((output): StreamItem[] => {
      const pieces = output.pieces.filter(
        ({ event }) => !torn.some(({ first, last }) => event >= first && event <= last),
      );
      if (pieces.length === output.pieces.length) return [];
      output.pieces = pieces;
      return [{ artifactUpdate: { ...this.#ids(), artifact: artifactOf(output) } }];
    });
  }

  #enter(state: TaskState, timestamp: string, message?: A2aMessage): void {
    this.#state = state;
    this.#timestamp = timestamp;
    this.#message = message;
  }

  #ask(run: Run, { await_id, message, expires_at }: AwaitRequest): readonly StreamItem[] {
    const question = this.#questions.get(await_id);
    const { kind = "input" } = question ?? {};
    const tool = question && toolOf(question);
    this.#enter(stateOf(run, kind), message.created_at ?? this.#timestamp, {
      ...this.#said(message, this.#questionId(await_id)),
      metadata: { kind, ...(expires_at !== undefined && { expires_at }), ...(tool && { tool: { ...tool } }) },
    });
    return [this.#statusUpdate()];
  }

  #settle(event: DetailedEvent & { readonly type: "question.settled" }): void {
    const { await_id, how, answer, reason, at } = event;
    const question = this.#questions.get(await_id);
    this.#questions.delete(await_id);
    this.#timestamp = at;
    if (question === undefined) return;
    this.#history.push(this.#said(question.message, this.#questionId(await_id)));
    if (how !== "answer" && how !== "declined") return;
    const part = how === "answer" ? jsonPart(answer as JsonObject) : textPart(reason ?? "");
    const said = messageOf(answer) ?? { role: "user", parts: [part] };
    const message = this.#said(said as Message, `${this.#questionId(await_id)}:answer`);
    this.#history.push({ ...message, ...(how === "declined" && { metadata: { [DECLINING]: true } }) });
  }

  #end(run: Run): readonly StreamItem[] {
    const { error, finished_at } = run;
    this.#isCancelling = false;
    this.#enter(stateOf(run), finished_at ?? this.#timestamp);
    if (error !== null) {
      const reason = error.data?.["reason"];
      const said: Message = { role: "agent", parts: [textPart(error.message)], completed_at: finished_at };
      const message = this.#said(said, `${this.#run_id}:error`);
      this.#message = { ...message, ...(typeof reason === "string" && { metadata: { reason } }) };
    }
    return [this.#statusUpdate()];
  }

  #statusUpdate(metadata?: JsonObject): StreamItem {
    return { statusUpdate: { ...this.#ids(), status: this.#status(), ...(metadata && { metadata }) } };
  }

  #status(): TaskStatus {
    const message = this.#message && { message: this.#message };
    return { state: this.#state, ...message, timestamp: this.#timestamp };
  }

  #said(message: Message, messageId: string): A2aMessage {
    return {
      messageId: idOf(message) ?? messageId,
      role: message.role === "user" ? "ROLE_USER" : "ROLE_AGENT",
      parts: shownParts(message.parts),
      ...this.#ids(),
    };
  }

  #ids() {
    return { taskId: this.#run_id, contextId: this.#contextId };
  }

  #questionId(await_id: string): string {
    return `${this.#run_id}:${await_id}`;
  }
}

function artifactOf({ artifactId, pieces }: Output): Artifact {
  return { artifactId, parts: shownParts(pieces.map(({ part }) => part)) };
}
