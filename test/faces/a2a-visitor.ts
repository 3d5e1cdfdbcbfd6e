import type { Message, Part, SendMessageRequest, StreamResponse, Task } from "@a2a-js/sdk";
import { Role, TaskState } from "@a2a-js/sdk";
import type { Client } from "@a2a-js/sdk/client";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { createA2aHandler } from "cadenza/a2a";
import { Connection } from "./connection.ts";
import type { Desk } from "./desk.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

const HOST = "http://localhost/a2a";

export type Binding = "JSONRPC" | "HTTP+JSON";

/** The official client of A2A, over one of its bindings. */
export const a2aClients: readonly FaceUnderTest[] = (["JSONRPC", "HTTP+JSON"] as const).map((binding) => ({
  kind: "a2a",
  name: `the official client of A2A over ${binding}`,
  visit: (desk, chat) => new A2aVisitor(desk, chat, binding),
}));

/** The official client of an agent, over one binding. `fetchCard` gets its card. */
export function clientOf(
  url: string,
  binding: Binding,
  fetchImpl: typeof fetch,
  fetchCard = fetchImpl,
): Promise<Client> {
  const factory = new ClientFactory({
    transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
    preferredTransports: [binding],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl: fetchCard }),
  });
  return factory.createFromUrl(url, ".well-known/agent-card.json");
}

/** What the client sends. */
export function sending(
  parts: readonly Part["content"][],
  about: Partial<Pick<Message, "messageId" | "contextId" | "taskId" | "metadata">> = {},
): SendMessageRequest {
  const described = { metadata: undefined, filename: "", mediaType: "" };
  const message: Message = {
    ...{ messageId: crypto.randomUUID(), contextId: "", taskId: "", role: Role.ROLE_USER, metadata: undefined },
    ...{ parts: parts.map((content) => ({ content, ...described })), extensions: [], referenceTaskIds: [], ...about },
  };
  return { tenant: "", message, configuration: undefined, metadata: undefined };
}

/** The text of parts. */
export function textOf(parts: readonly Part[] = []): string {
  return parts.map(({ content }) => (content?.$case === "text" ? content.value : "")).join("");
}

class A2aVisitor implements Visitor {
  readonly #desk: Desk;
  readonly #chat: string;
  readonly connection: Connection;
  readonly #client: Promise<Client>;
  #task: Task | undefined;
  readonly #texts = new Map<string, string>();
  #error: string | null = null;

  constructor(desk: Desk, chat: string, binding: Binding) {
    this.#desk = desk;
    this.#chat = chat;
    const handler = () => createA2aHandler(desk.runtime, { basePath: "/a2a", ...desk.host });
    this.connection = new Connection(HOST, handler);
    const fetchCard: typeof fetch = (url, init) => handler()(new Request(url, init));
    this.#client = clientOf(`${HOST}/desk/`, binding, this.connection.send, fetchCard);
  }

  say(text: string): Promise<void> {
    const taskId = this.#question === null ? "" : (this.#task?.id ?? "");
    return this.#send(sending([{ $case: "text", value: text }], { contextId: this.#chat, taskId }));
  }

  answer(value: object): Promise<void> {
    return this.#send(sending([{ $case: "data", value }], { contextId: this.#chat, taskId: this.#task?.id ?? "" }));
  }

  /** A2A has no words for it: the card names an extension. */
  async decline(reason: string): Promise<void> {
    const { capabilities } = await (await this.#client).getAgentCard();
    const uri = capabilities?.extensions.find(({ uri }) => uri.endsWith("#declining"))?.uri ?? "";
    const { contextId, id: taskId } = this.#task ?? { contextId: "", id: "" };
    const request = sending([{ $case: "text", value: reason }], { contextId, taskId, metadata: { [uri]: true } });
    return this.#send(request);
  }

  async #send(request: SendMessageRequest): Promise<void> {
    await this.#follow((await this.#client).sendMessageStream(request));
  }

  async #follow(items: AsyncIterable<StreamResponse>): Promise<void> {
    this.#error = null;
    try {
      for await (const item of items) {
        this.#take(item);
        // It follows a task that waits no further.
        if (this.#question !== null) break;
      }
    } catch (error) {
      const { message } = error as Error;
      if (message !== "network error") this.#error = message;
    }
  }

  #take({ payload }: StreamResponse): void {
    if (payload?.$case === "task") this.#show(payload.value);
    if (payload?.$case === "artifactUpdate") {
      const { artifact, append } = payload.value;
      const id = artifact?.artifactId ?? "";
      this.#texts.set(id, (append ? (this.#texts.get(id) ?? "") : "") + textOf(artifact?.parts));
    }
    if (payload?.$case === "statusUpdate" && this.#task)
      this.#show({ ...this.#task, status: payload.value.status }, false);
  }

  #show(task: Task, hasArtifacts = true): void {
    this.#task = task;
    if (hasArtifacts) {
      this.#texts.clear();
      for (const { artifactId, parts } of task.artifacts) this.#texts.set(artifactId, textOf(parts));
    }
    if (task.status?.state === TaskState.TASK_STATE_FAILED) this.#error = textOf(task.status.message?.parts);
  }

  async stop(): Promise<void> {
    await (await this.#client).cancelTask({ tenant: "", id: this.#task?.id ?? "", metadata: undefined });
    await this.#desk.clock.settle();
  }

  async disconnect(): Promise<void> {
    this.connection.breakOff();
    await this.#desk.clock.settle();
  }

  async open(): Promise<void> {
    const client = await this.#client;
    const query = { tenant: "", contextId: this.#chat, status: 0, pageToken: "", statusTimestampAfter: undefined };
    const { tasks } = await client.listTasks({ ...query, pageSize: 1, includeArtifacts: true });
    const [task] = tasks;
    if (task === undefined) return;
    this.#error = null;
    this.#show(task);
    const state = task.status?.state ?? 0;
    if (state === TaskState.TASK_STATE_WORKING) await this.#follow(client.resubscribeTask({ tenant: "", id: task.id }));
  }

  get #question(): string | null {
    const status = this.#task?.status;
    return status?.state === TaskState.TASK_STATE_INPUT_REQUIRED ? textOf(status.message?.parts.slice(0, 1)) : null;
  }

  get view(): View {
    return { text: [...this.#texts.values()].join(""), question: this.#question, error: this.#error };
  }
}
