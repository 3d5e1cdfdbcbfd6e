import type { AgentSubscriber, ResumeEntry } from "@ag-ui/client";
import { HttpAgent } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";
import { createAgUiHandler } from "cadenza/ag-ui";
import { Connection } from "./connection.ts";
import type { Desk } from "./desk.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

const HOST = "http://localhost/ag-ui";

/** The client rejects without a handler on any other error of a body. */
const LOST = new DOMException("network error", "AbortError");

/** The official client of AG-UI, with its verifier. */
export const agUiHost: FaceUnderTest = {
  kind: "agUi",
  name: "the official client of AG-UI",
  visit: (desk, chat) => new AgUiVisitor(desk, chat),
};

/** The official client, which can also open a thread: it then gets what it posts nothing for. */
export class ThreadAgent extends HttpAgent {
  /** Whether the next run opens the thread. */
  isOpening = false;

  protected override requestInit(input: Parameters<HttpAgent["requestInit"]>[0]): RequestInit {
    const init = super.requestInit(input);
    this.url = this.url.replace(/\?.*/, "");
    if (!this.isOpening) return init;
    this.isOpening = false;
    this.url += `?threadId=${encodeURIComponent(this.threadId)}&runId=${input.runId}`;
    const { body: _, ...rest } = init;
    return { ...rest, method: "GET" };
  }
}

class AgUiVisitor implements Visitor {
  readonly #desk: Desk;
  readonly #chat: string;
  readonly connection: Connection;
  #agent: ThreadAgent;
  #error: string | null = null;
  #serial = 0;

  constructor(desk: Desk, chat: string) {
    this.#desk = desk;
    this.#chat = chat;
    this.connection = new Connection(
      HOST,
      () => createAgUiHandler(desk.runtime, { basePath: "/ag-ui", ...desk.host }),
      LOST,
    );
    this.#agent = this.#load();
  }

  #load(): ThreadAgent {
    const fetch = this.connection.send;
    const agent = new ThreadAgent({ url: `${HOST}/desk`, threadId: this.#chat, fetch });
    // The client reads the address before it asks for the request.
    agent.fetch = (_url, init) => fetch(agent.url, init);
    return agent;
  }

  async #run(parameters: { resume?: ResumeEntry[] } = {}): Promise<void> {
    this.#error = null;
    const subscriber: AgentSubscriber = {
      onRunErrorEvent: ({ event }) => {
        this.#error = event.message;
      },
      // A lost connection is none of the run's errors.
      onRunFailed: ({ error }) => {
        if (error.message !== "network error") this.#error = error.message;
        const handled: object = { stopPropagation: true };
        return handled;
      },
    };
    await this.#agent.runAgent(parameters, subscriber);
    for (const item of this.connection.items) EventSchemas.parse(item);
  }

  say(text: string): Promise<void> {
    if (this.#question !== undefined) return this.#reply({ status: "resolved", payload: text });
    this.#agent.addMessage({ id: `m${++this.#serial}`, role: "user", content: text });
    return this.#run();
  }

  answer(payload: object): Promise<void> {
    return this.#reply({ status: "resolved", payload });
  }

  /** AG-UI has no words for the reason. */
  decline(): Promise<void> {
    return this.#reply({ status: "cancelled" });
  }

  #reply(entry: Omit<ResumeEntry, "interruptId">): Promise<void> {
    return this.#run({ resume: this.#agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, ...entry })) });
  }

  async stop(): Promise<void> {
    await this.connection.send(`${HOST}/desk?threadId=${encodeURIComponent(this.#chat)}`, { method: "DELETE" });
    await this.#desk.clock.settle();
  }

  async disconnect(): Promise<void> {
    this.connection.breakOff();
    await this.#desk.clock.settle();
  }

  open(): Promise<void> {
    this.#agent = this.#load();
    this.#agent.isOpening = true;
    return this.#run();
  }

  get #question() {
    return this.#agent.pendingInterrupts[0];
  }

  get view(): View {
    const said = this.#agent.messages.filter(({ role }) => role === "assistant");
    return {
      text: said.map(({ content }) => (typeof content === "string" ? content : "")).join(""),
      question: this.#question?.message ?? null,
      error: this.#error,
    };
  }
}
