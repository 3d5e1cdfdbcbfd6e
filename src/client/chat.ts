import type { ConnectionOptions } from "./connection.ts";
import { Connection } from "./connection.ts";
import { serverEvents } from "./server-events.ts";

/** Which chat a page shows, and how it reaches its server. */
export interface ChatClientOptions extends ConnectionOptions {
  /** The address of an agent that is served by `cadenza/ai-sdk`, for example `/chat/desk`. */
  readonly api: string;
  /** The id of the chat. */
  readonly id: string;
  /** What is added to the body of each message. The agent gets it as `context.metadata`. Default: nothing. */
  readonly body?: Readonly<Record<string, unknown>> | undefined;
}

/** A part of a chat message, as far as automatic answers need it. */
interface Part {
  readonly type: string;
  readonly toolName?: string;
  readonly state?: string;
  readonly providerExecuted?: boolean;
}

interface ChatMessage {
  readonly role: string;
  readonly parts: readonly Part[];
}

interface SendOptions {
  readonly chatId: string;
  readonly messages: readonly ChatMessage[];
  readonly trigger: string;
  readonly messageId: string | undefined;
  readonly abortSignal: AbortSignal | undefined;
  readonly body?: object | undefined;
}

interface FollowOptions {
  readonly abortSignal?: AbortSignal | undefined;
}

/** The chunks of a response. Their types are those of the AI SDK, which this part does not need. */
type Chunks = ReadableStream<never>;

/** What `useChat` sends its messages with. */
export interface CadenzaChatTransport {
  readonly resumeStreamIsReplay: true;
  sendMessages(options: SendOptions): Promise<Chunks>;
  reconnectToStream(options: FollowOptions): Promise<Chunks | null>;
}

/** What {@link chatOptions} gives to `useChat`. */
export interface UseChatOptions {
  readonly id: string;
  readonly transport: CadenzaChatTransport;
  /** Follows the run that is open when the page is loaded. */
  readonly resume: true;
  readonly sendAutomaticallyWhen: (chat: { readonly messages: readonly ChatMessage[] }) => boolean;
}

/**
 * Options for `useChat` of `@ai-sdk/react`: `stop` stops the run, a response goes on where the connection broke off, and
 * an answer to a question is sent when it is given.
 *
 * @example
 * ```ts
 * import { chatOptions } from "cadenza/client";
 *
 * // const { messages, sendMessage, stop } = useChat(chatOptions({ api: "/chat/desk", id: "chat-17" }));
 * const options = chatOptions({ api: "/chat/desk", id: "chat-17" });
 * console.log(options.id); // → chat-17
 * ```
 */
export function chatOptions(options: ChatClientOptions): UseChatOptions {
  return {
    id: options.id,
    transport: new ChatTransport(options),
    resume: true,
    sendAutomaticallyWhen: hasAnsweredAll,
  };
}

/** What {@link loadChat} gives to `useChat`. */
export interface LoadedChat<UiMessage> extends Omit<UseChatOptions, "resume"> {
  readonly messages: UiMessage[];
  /** Whether a run is open, which the page then follows. */
  readonly resume: boolean;
}

/**
 * As {@link chatOptions}, with what has been said in the chat, for a page that is loaded again. Rejects with a
 * `ClientError` if the server refuses, or cannot be reached.
 */
export async function loadChat<UiMessage>(options: ChatClientOptions): Promise<LoadedChat<UiMessage>> {
  const connection = new Connection(options.api, options);
  const path = pathOf(options.id, "messages");
  const loaded = await connection.json<Loaded<UiMessage>>({ method: "GET", path });
  const { messages, run_id } = loaded;
  return { ...chatOptions(options), transport: new ChatTransport(options, run_id), messages, resume: run_id !== null };
}

interface Loaded<UiMessage> {
  readonly messages: UiMessage[];
  readonly run_id: string | null;
}

/** Whether the last step asks, and all of its questions are answered. */
function hasAnsweredAll({ messages }: { readonly messages: readonly ChatMessage[] }): boolean {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return false;
  const step = last.parts.slice(last.parts.findLastIndex(({ type }) => type === "step-start") + 1);
  const questions = step.filter(
    ({ type, providerExecuted }) => (type === "dynamic-tool" || type.startsWith("tool-")) && providerExecuted !== true,
  );
  return questions.length > 0 && questions.every(({ state = "" }) => answered.has(state));
}

const answered: ReadonlySet<string> = new Set(["output-available", "output-error", "approval-responded"]);

function pathOf(chatId: string, what: "stream" | "messages"): string {
  return `/${encodeURIComponent(chatId)}/${what}`;
}

class ChatTransport implements CadenzaChatTransport {
  readonly resumeStreamIsReplay = true;
  readonly #options: ChatClientOptions;
  readonly #connection: Connection;
  /** How often the page has asked for a response. Only the last request counts: a message replaces a pending follow. */
  #followed = 0;
  /** The run that was open when the page was loaded, and may have ended since; null for none. */
  readonly #loaded: string | null;

  constructor(options: ChatClientOptions, loaded: string | null = null) {
    this.#options = options;
    this.#loaded = loaded;
    this.#connection = new Connection(options.api, options);
  }

  async sendMessages({ messages, trigger, messageId, abortSignal, body }: SendOptions): Promise<Chunks> {
    const { id } = this.#options;
    this.#followed += 1;
    const stop = (): void => this.#stop();
    abortSignal?.addEventListener("abort", stop, { once: true });
    try {
      const response = await this.#connection.send({
        method: "POST",
        path: "",
        body: { ...this.#options.body, ...body, id, messages, trigger, messageId },
        // However often it is sent, the user has done it once.
        headers: { "idempotency-key": this.#connection.machine.key() },
        signal: abortSignal,
      });
      return this.#chunksOf(response, abortSignal, () => abortSignal?.removeEventListener("abort", stop));
    } catch (error) {
      abortSignal?.removeEventListener("abort", stop);
      throw error;
    }
  }

  async reconnectToStream({ abortSignal }: FollowOptions): Promise<Chunks | null> {
    const followed = ++this.#followed;
    // A page that follows again aborts what it followed before, which is no stop.
    const stop = (): void => {
      const { sleep } = this.#connection.machine;
      sleep(0).then(() => (this.#followed === followed ? this.#stop() : undefined), nothing);
    };
    const path = this.#pathOf(this.#loaded);
    const response = await this.#connection.send({ method: "GET", path, signal: abortSignal });
    if (response.status === 204) return null;
    if (this.#followed !== followed) {
      response.body?.cancel().catch(nothing);
      return null;
    }
    abortSignal?.addEventListener("abort", stop, { once: true });
    return this.#chunksOf(response, abortSignal, () => abortSignal?.removeEventListener("abort", stop));
  }

  /** The path of the response of a run, also if it has ended; without one, of the run that is open. */
  #pathOf(runId: string | null): string {
    return `${pathOf(this.#options.id, "stream")}${runId === null ? "" : `?run_id=${runId}`}`;
  }

  #stop(): void {
    this.#connection.send({ method: "DELETE", path: this.#pathOf(null) }).catch(nothing);
  }

  /** The chunks of a response to its end. Where it breaks off, it is followed behind the last chunk. */
  #chunksOf(first: Response, signal: AbortSignal | undefined, onEnd: () => void): Chunks {
    const chunks = this.#chunks(first, signal);
    return new ReadableStream<unknown>({
      pull: async (controller) => {
        try {
          const { done, value } = await chunks.next();
          if (!done) return controller.enqueue(value);
          onEnd();
          controller.close();
        } catch (error) {
          onEnd();
          controller.error(error);
        }
        return undefined;
      },
      cancel: async () => {
        onEnd();
        await chunks.return();
      },
    }) as Chunks;
  }

  async *#chunks(first: Response, signal: AbortSignal | undefined): AsyncGenerator<unknown, void> {
    const connection = this.#connection;
    let response = first;
    /** The event behind which the response goes on. */
    let known = first.headers.get("last-event-id") ?? undefined;
    /** How many chunks came after it that must not come twice. */
    let behind = 0;
    for (let failures = 1; ; failures++) {
      let skip = behind;
      try {
        if (response.body === null) return;
        for await (const { id, data } of serverEvents(response.body)) {
          if (data === "[DONE]") return;
          const chunk = JSON.parse(data) as { readonly type: string };
          const isAgain = response !== first && (chunk.type === "start" || (skip > 0 && isOnce(chunk)));
          if (isAgain && chunk.type !== "start") skip -= 1;
          if (id !== undefined && id !== known) [known, behind] = [id, 0];
          else if (!isAgain && isOnce(chunk)) behind += 1;
          failures = 1;
          if (!isAgain) yield chunk;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof SyntaxError) throw error;
      }
      await connection.pause(failures, signal);
      const headers = known === undefined ? undefined : { "last-event-id": known };
      response = await connection.send({
        method: "GET",
        path: this.#pathOf(first.headers.get("run-id")),
        headers,
        signal,
      });
    }
  }
}

/** Whether a chunk adds something each time that it comes. Calls and their results replace what they were. */
function isOnce({ type }: { readonly type: string }): boolean {
  return !type.startsWith("tool-") && !type.endsWith("-step") && type !== "start";
}

function nothing(): void {
  // The page has stopped, and shows no error.
}
