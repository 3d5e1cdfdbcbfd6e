import type { AbstractChat, ChatState, ChatStatus, DynamicToolUIPart, UIMessage } from "ai";
import * as six from "ai";
import { createChatHandler } from "cadenza/ai-sdk";
import { chatOptions } from "cadenza/client";
import { Connection } from "./connection.ts";
import type { Desk } from "./desk.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

/** The official client of one major version of `ai`. */
export interface ChatModule {
  readonly AbstractChat: typeof AbstractChat;
  readonly DefaultChatTransport: typeof import("ai").DefaultChatTransport;
  readonly lastAssistantMessageIsCompleteWithToolCalls: typeof import("ai").lastAssistantMessageIsCompleteWithToolCalls;
}

/** The chat page of a version of `ai`, with the stock transport or with `chatOptions`. */
export function chatPage(name: string, module: ChatModule, transport: "stock" | "own" = "stock"): FaceUnderTest {
  return {
    kind: transport === "own" ? "chatOptions" : "page",
    name,
    visit: (desk, chat) => new ChatVisitor(module, desk, chat, transport),
  };
}

/** Where its page does not replace what it has of a response by the one that it follows, the page is loaded again. */
const reloads = (module: ChatModule): boolean => !("DirectChatTransport" in module);

class PlainState implements ChatState<UIMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined = undefined;
  messages: UIMessage[] = [];

  readonly pushMessage = (message: UIMessage): void => {
    this.messages = [...this.messages, message];
  };
  readonly popMessage = (): void => {
    this.messages = this.messages.slice(0, -1);
  };
  readonly replaceMessage = (index: number, message: UIMessage): void => {
    this.messages = this.messages.map((other, at) => (at === index ? structuredClone(message) : other));
  };
  readonly snapshot = <T>(thing: T): T => structuredClone(thing);
}

/** A page of `ai` 6 with options of `useChat`. */
export function chatWith(options: ReturnType<typeof chatOptions>): AbstractChat<UIMessage> {
  class Chat extends six.AbstractChat<UIMessage> {}
  return new Chat({ ...options, state: new PlainState() });
}

/** A page with the official client and the stock transport. */
class ChatVisitor implements Visitor {
  readonly connection: Connection;
  page: AbstractChat<UIMessage>;
  readonly #module: ChatModule;
  readonly #desk: Desk;
  readonly #chat: string;
  readonly #own: boolean;

  constructor(module: ChatModule, desk: Desk, chat: string, transport: "stock" | "own") {
    this.#module = module;
    this.#own = transport === "own";
    this.#desk = desk;
    this.#chat = chat;
    this.connection = new Connection(HOST, () => createChatHandler(desk.runtime, { basePath: "/chat", ...desk.host }));
    this.page = this.#load();
  }

  #load(): AbstractChat<UIMessage> {
    const module = this.#module;
    const chat = this.#chat;
    class Chat extends module.AbstractChat<UIMessage> {}
    let next = 0;
    return new Chat({
      state: new PlainState(),
      ...(this.#own
        ? chatOptions({ api: `${HOST}/desk`, id: chat, fetch: this.connection.send })
        : {
            id: chat,
            generateId: () => `${chat}-${++next}`,
            transport: new module.DefaultChatTransport<UIMessage>({ api: `${HOST}/desk`, fetch: this.connection.send }),
            sendAutomaticallyWhen: module.lastAssistantMessageIsCompleteWithToolCalls,
          }),
    } as ConstructorParameters<typeof Chat>[0]);
  }

  say(text: string): Promise<void> {
    return this.page.sendMessage({ text });
  }

  async answer(output: object): Promise<void> {
    await this.page.addToolOutput({ tool: "ask", toolCallId: this.#question?.toolCallId ?? "", output });
    await this.#rested();
  }

  async decline(errorText: string): Promise<void> {
    const toolCallId = this.#question?.toolCallId ?? "";
    await this.page.addToolOutput({ state: "output-error", tool: "ask", toolCallId, errorText });
    await this.#rested();
  }

  /** The stock transport has no stop. */
  async stop(): Promise<void> {
    if (this.#own) {
      await this.page.stop();
      return this.#rested();
    }
    await this.connection.send(`${HOST}/desk/${encodeURIComponent(this.#chat)}/stream`, { method: "DELETE" });
    await this.#rested();
  }

  async disconnect(): Promise<void> {
    this.connection.breakOff();
    await this.#rested();
  }

  async open(): Promise<void> {
    const response = await this.connection.send(`${HOST}/desk/${encodeURIComponent(this.#chat)}/messages`);
    if (this.#own || reloads(this.#module)) this.page = this.#load();
    this.page.messages = ((await response.json()) as { messages: UIMessage[] }).messages;
    await this.page.resumeStream();
  }

  async #rested(): Promise<void> {
    await this.#desk.clock.settle();
    await this.#desk.clock.settle();
  }

  get #question(): DynamicToolUIPart | undefined {
    return this.page.messages
      .at(-1)
      ?.parts.find(
        (part): part is DynamicToolUIPart => part.type === "dynamic-tool" && part.state === "input-available",
      );
  }

  get view(): View {
    const parts = this.page.messages.flatMap(({ role, parts }) => (role === "assistant" ? parts : []));
    const { question = null } = (this.#question?.input ?? {}) as { readonly question?: string };
    return {
      text: parts.map((part) => (part.type === "text" ? part.text : "")).join(""),
      question,
      error: this.page.error?.message ?? null,
    };
  }
}

const HOST = "http://localhost/chat";
