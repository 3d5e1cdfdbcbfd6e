import { ClientError } from "./client-error.ts";
import type { ClientRequest, ConnectionOptions, Reply } from "./connection.ts";
import { Connection } from "./connection.ts";
import { isRecord, parsedJson } from "./json.ts";
import type { LoadedMessage } from "./loaded-message.ts";
import { newKey } from "./machine.ts";
import type { ServerEvent } from "./server-events.ts";
import { away, Passing, unreadable } from "./tries.ts";

/** Which chat a page shows, and how it reaches its server. */
export interface ChatClientOptions extends ConnectionOptions {
  /** The address of an agent that is served by `cadenza/ai-sdk`, for example `/chat/desk`. */
  readonly api: string;
  /** The id of the chat. */
  readonly id: string;
  /** What is added to the body of each message. The agent gets it as `context.metadata`. Default: nothing. */
  readonly body?: Readonly<Record<string, unknown>> | undefined;
}

/** A part of a chat message, as far as the transport looks at it. */
interface Part {
  readonly type: string;
  readonly toolName?: string;
  readonly toolCallId?: string;
  readonly state?: string;
  readonly output?: unknown;
  readonly errorText?: string | undefined;
  readonly approval?: object | undefined;
  readonly providerExecuted?: boolean | undefined;
}

interface ChatMessage {
  readonly id: string;
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
  readonly headers?: Readonly<Record<string, string>> | Headers | undefined;
}

interface FollowOptions {
  readonly abortSignal?: AbortSignal | undefined;
  readonly metadata?: unknown;
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
  readonly resume: boolean;
  /** True when all questions of the last message are answered: then `useChat` sends the answers by itself. */
  readonly sendAutomaticallyWhen: (chat: { readonly messages: readonly ChatMessage[] }) => boolean;
  /** Makes ids, and shows the transport the chat that asks for one. */
  readonly generateId: () => string;
}

/**
 * Options for `useChat` of `@ai-sdk/react`: `stop` stops the run, a response goes on where the connection broke off, also
 * when the server is away, and an answer to a question is sent when it is given.
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
  return optionsOf(options, new ChatTransport(options));
}

function optionsOf({ id }: ChatClientOptions, transport: ChatTransport): UseChatOptions {
  return { id, transport, resume: true, sendAutomaticallyWhen: hasAnsweredAll, generateId };
}

/** What {@link loadChat} gives to `useChat`. */
export interface LoadedChat<UiMessage = LoadedMessage> extends UseChatOptions {
  readonly messages: UiMessage[];
}

/**
 * As {@link chatOptions}, with what has been said in the chat, for a page that is loaded again. `resume` says whether a
 * run is open, which the page then follows. Rejects with a `ClientError` if the server refuses.
 *
 * @example
 * ```ts
 * import { loadChat } from "cadenza/client";
 *
 * const fetch = () => Promise.resolve(Response.json({ messages: [], run_id: null }));
 * // const { messages, sendMessage } = useChat(await loadChat({ api: "/chat/desk", id: "chat-17" }));
 * const loaded = await loadChat({ api: "https://example.com/chat/desk", id: "chat-17", fetch });
 * console.log(loaded.messages); // → []
 * ```
 */
export async function loadChat<UiMessage = LoadedMessage>(options: ChatClientOptions): Promise<LoadedChat<UiMessage>> {
  const connection = new Connection(options.api, options);
  const request = { method: "GET", path: pathOf(options.id, "messages"), isPatient: true } as const;
  const loaded = await connection.json(request, isLoaded);
  const { messages, run_id } = loaded;
  const use = optionsOf(options, new ChatTransport(options, loaded));
  return { ...use, messages: messages as UiMessage[], resume: run_id !== null };
}

/** What the server has of a chat. */
interface Loaded {
  readonly messages: readonly { readonly id: string }[];
  /** The run that is open; null for none. */
  readonly run_id: string | null;
}

function isLoaded(value: unknown): value is Loaded {
  if (!isRecord(value)) return false;
  const { messages, run_id } = value;
  return Array.isArray(messages) && messages.every(isRecord) && (run_id === null || typeof run_id === "string");
}

/** Whether the last step asks, and all of its questions are answered. */
function hasAnsweredAll({ messages }: { readonly messages: readonly ChatMessage[] }): boolean {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return false;
  const step = last.parts.slice(last.parts.findLastIndex(({ type }) => type === "step-start") + 1);
  const questions = step.filter((part) => isCall(part) && part.providerExecuted !== true);
  return questions.length > 0 && questions.every(({ state = "" }) => answered.has(state));
}

const answered: ReadonlySet<string> = new Set(["output-available", "output-error", "approval-responded"]);

function isCall({ type }: Part): boolean {
  return type === "dynamic-tool" || type.startsWith("tool-");
}

/** The object behind `useChat`: `Chat` of any version of the AI SDK. */
interface PageChat {
  readonly id: string;
  readonly messages: readonly ChatMessage[];
  readonly status: string;
  readonly error: Error | undefined;
  resumeStream(options: { readonly metadata: object }): Promise<void>;
}

/** The chat that has asked for an id last. Each one does so directly before it reads a response. */
let lastChat: WeakRef<PageChat> | undefined;

/**
 * Makes an id. A transport is handed the messages of a chat, and not the chat: but a chat calls its own `generateId`. A
 * version that calls it otherwise is not noted, and does without what needs the chat.
 */
function generateId(this: unknown): string {
  if (isRecord(this) && typeof this["resumeStream"] === "function") lastChat = new WeakRef(this as unknown as PageChat);
  return newKey();
}

/** The chat with this id that is about to read a response. */
function readingChat(id: string): PageChat | undefined {
  const chat = lastChat?.deref();
  return chat?.id === id ? chat : undefined;
}

/** How often a page has followed a response. */
let follows = 0;

/** The pages' requests to follow a chat that have no answer yet, by its address. A message replaces them. */
const pendingFollows = new Map<string, Set<Follow>>();

/** A request for a response that a message of the page may replace. */
interface Follow {
  /** Resolves when the chat has read the response of the message without an error. */
  replaced: Promise<void> | undefined;
}

/** With this a transport asks a chat to read a response from its start: what was read of it is partly torn. */
class Again {
  /** What was read so far. */
  readonly response: ChatResponse;
  /** Whether the chat reads it again. */
  isRead = false;

  constructor(response: ChatResponse) {
    this.response = response;
  }
}

function pathOf(chatId: string, what: "stream" | "messages"): string {
  return `/${encodeURIComponent(chatId)}/${what}`;
}

/** The messages that a page has shown and the server has, by their ids and in their order. */
class Shown {
  #ids: readonly string[];

  constructor(ids: readonly string[]) {
    this.#ids = ids;
  }

  add(id: unknown): void {
    if (typeof id === "string" && !this.#ids.includes(id)) this.#ids = [...this.#ids, id];
  }

  /** The first message that the page has taken back. Undefined: the page has taken none back. Throws if it has kept later messages. */
  takenBack(messages: readonly ChatMessage[]): string | undefined {
    const kept = new Set(messages.map(({ id }) => id));
    const at = this.#ids.findIndex((id) => !kept.has(id));
    const id = this.#ids[at];
    if (id === undefined || !this.#ids.slice(at).some((later) => kept.has(later))) return id;
    throw new ClientError("invalid_argument", IN_THE_MIDDLE);
  }

  /** Forgets what the page does not show. */
  keep(messages: readonly ChatMessage[]): void {
    const kept = new Set(messages.map(({ id }) => id));
    this.#ids = this.#ids.filter((id) => kept.has(id));
  }
}

const IN_THE_MIDDLE =
  "The page has taken back messages in the middle of the chat, and the agent has them still. Take back all that follows them too. A page that only shows less leaves its messages as they are.";

class ChatTransport implements CadenzaChatTransport {
  readonly resumeStreamIsReplay = true;
  readonly #options: ChatClientOptions;
  readonly #connection: Connection;
  readonly #loaded: readonly string[];
  /** By chat: several pages of one program may have the same options. */
  readonly #shown = new WeakMap<object, Shown>();
  /** The run that was open when the page was loaded, and may have ended since. A message makes it the past. */
  #loadedRun: string | undefined;

  constructor(options: ChatClientOptions, loaded?: Loaded) {
    this.#options = options;
    this.#loadedRun = loaded?.run_id ?? undefined;
    this.#loaded = loaded?.messages.map(({ id }) => id) ?? [];
    this.#connection = new Connection(options.api, options);
  }

  /** Sends the last message: the server has those before it. */
  async sendMessages({ messages, trigger, messageId, abortSignal, body, headers }: SendOptions): Promise<Chunks> {
    const { id } = this.#options;
    const chat = readingChat(id);
    const last = messages.at(-1);
    // Another chat may have asked for an id last. The chat that sends has the last message.
    const shown = this.#shownBy(chat !== undefined && chat.messages.at(-1)?.id === last?.id ? chat : undefined);
    // An answer is for a run that has its history already.
    const takenBack = last?.role === "user" ? shown.takenBack(messages) : undefined;
    this.#loadedRun = undefined;
    let onRead = nothing;
    const read = new Promise<void>((resolve) => {
      onRead = resolve;
    });
    for (const follow of pendingFollows.get(this.#key) ?? []) follow.replaced = read;
    const message: ClientRequest = {
      method: "POST",
      path: "",
      // However often it is sent, it is one message or answer.
      headers: { ...entriesOf(headers), accept: ACCEPT, "idempotency-key": this.#connection.machine.key() },
      body: {
        ...this.#options.body,
        ...body,
        ...{ id, messages: last === undefined ? [] : [sent(last)], trigger },
        // A message that is sent another time takes all that followed it back.
        messageId: messageId ?? (trigger === "submit-message" ? takenBack : undefined),
      },
      signal: abortSignal,
      isPatient: true,
    };
    const response = new ChatResponse(this.#connection, id, abortSignal, message);
    const onAbort = (): void => this.#stop(response);
    abortSignal?.addEventListener("abort", onAbort, { once: true });
    const onEnd = (isWell: boolean): void => {
      abortSignal?.removeEventListener("abort", onAbort);
      if (isWell) onRead();
    };
    try {
      await response.open();
      if (last?.role === "user") shown.keep(messages);
      shown.add(last?.id);
      return streamOf(
        response.chunks(
          () => chat,
          () => shown,
        ),
        onEnd,
      );
    } catch (error) {
      onEnd(false);
      throw error;
    }
  }

  async reconnectToStream({ abortSignal, metadata }: FollowOptions): Promise<Chunks | null> {
    follows += 1;
    const { id } = this.#options;
    const again = metadata instanceof Again ? metadata : undefined;
    const response = new ChatResponse(this.#connection, id, abortSignal);
    response.runId = again?.response.runId ?? this.#loadedRun;
    const follow: Follow = { replaced: undefined };
    const pending = pendingFollows.get(this.#key) ?? new Set();
    pendingFollows.set(this.#key, pending.add(follow));
    let hasResponse = false;
    try {
      hasResponse = await response.open();
    } catch (error) {
      if (follow.replaced === undefined) throw error;
    } finally {
      pending.delete(follow);
      if (pending.size === 0) pendingFollows.delete(this.#key);
    }
    if (follow.replaced !== undefined) {
      response.close();
      // At null `useChat` sets the status to "ready" and removes the error, while the response comes and after it has failed.
      await unlessAborted(follow.replaced, abortSignal);
      return null;
    }
    if (!hasResponse) return null;
    if (again !== undefined) {
      again.isRead = true;
      again.response.close();
    }
    const onAbort = (): void => {
      // A chat that follows again aborts what it followed before, which is no stop. It does both in one turn.
      const before = follows;
      queueMicrotask(() => (before === follows ? this.#stop(response) : undefined));
    };
    abortSignal?.addEventListener("abort", onAbort, { once: true });
    const onEnd = (): void => abortSignal?.removeEventListener("abort", onAbort);
    return streamOf(
      response.chunks(
        () => readingChat(id),
        (chat) => this.#shownBy(chat),
      ),
      onEnd,
    );
  }

  #shownBy(chat: PageChat | undefined): Shown {
    const shown = this.#shown.get(chat ?? this) ?? new Shown(this.#loaded);
    this.#shown.set(chat ?? this, shown);
    return shown;
  }

  get #key(): string {
    return JSON.stringify([this.#options.api, this.#options.id]);
  }

  /** Stops the run, as soon as the server is there. Without the run's id: what the chat has open, now or not at all. */
  #stop({ runId }: ChatResponse): void {
    const path = streamPath(this.#options.id, runId);
    const request = { method: "DELETE", path, isPatient: runId !== undefined } as const;
    this.#connection.ask(request, (reply) => reply.close()).catch(nothing);
  }
}

/** The response to a message of the page, or the response of a run that the page follows. */
class ChatResponse {
  /** The run; undefined until the server has told. */
  runId: string | undefined;
  readonly #connection: Connection;
  readonly #chatId: string;
  readonly #signal: AbortSignal | undefined;
  readonly #message: ClientRequest | undefined;
  #reply: Reply | undefined;

  constructor(connection: Connection, chatId: string, signal: AbortSignal | undefined, message?: ClientRequest) {
    this.#connection = connection;
    this.#chatId = chatId;
    this.#signal = signal;
    this.#message = message;
  }

  /** Sends the message, or follows the run behind the event `known`. Resolves with whether there is a response. */
  async open(known?: string): Promise<boolean> {
    // The id of the run comes with the first chunk. Before it, the message may be sent again.
    const request = (this.runId === undefined ? this.#message : undefined) ?? {
      method: "GET",
      path: streamPath(this.#chatId, this.runId),
      headers: { accept: ACCEPT, ...(known !== undefined && { "last-event-id": known }) },
      signal: this.#signal,
      isPatient: true,
    };
    const reply = await this.#connection.ask(request, (came) => {
      if (came.type === "text/event-stream" || (came.status === 204 && request.method === "GET")) return came;
      came.close();
      throw unreadable(came.found, came);
    });
    if (reply.status === 204) return false;
    this.#reply = reply;
    // A page of another origin may not see the header.
    this.runId ??= reply.headers.get("run-id") ?? undefined;
    return true;
  }

  close(): void {
    this.#reply?.close();
  }

  /**
   * The chunks to the end. After a broken connection the chunk behind the last one follows. `chat`: who reads them.
   * `shownBy`: what a chat has shown.
   */
  async *chunks(
    chat: () => PageChat | undefined,
    shownBy: (chat: PageChat | undefined) => Shown,
  ): AsyncGenerator<Chunk, void> {
    let reader = chat();
    const shown = shownBy(reader);
    const tries = this.#connection.tries({ method: "GET", path: "", signal: this.#signal, isPatient: true });
    /** The last event that was read, and how many chunks came after it that must not come twice. */
    let known: string | undefined;
    let behind = 0;
    let message: unknown;
    for (;;) {
      let skip = behind;
      try {
        for await (const event of this.#reply?.events(tries) ?? []) {
          if (event.data === "[DONE]") return;
          const chunk = readChunk(event);
          tries.succeed();
          if (chunk.type === "start") {
            this.runId ??= runIdIn(chunk.messageId);
            shown.add(chunk.messageId);
          }
          if (isTorn(chunk)) {
            if (reader !== undefined) await this.#showAgain(reader);
            reader = undefined;
            continue;
          }
          const isStart = chunk.type === "start";
          const isAgain = isStart ? chunk.messageId === message : skip > 0 && isOnce(chunk);
          if (isStart) message = chunk.messageId;
          else if (isAgain) skip -= 1;
          if (event.id !== undefined && event.id !== known) [known, behind] = [event.id, 0];
          else if (!isAgain && isOnce(chunk)) behind += 1;
          if (!isAgain) yield chunk;
        }
        throw away(new TypeError("The response has ended before the run rested."));
      } catch (failure) {
        await tries.again(failure);
      }
      if (!(await this.open(known))) {
        const message = "The response has ended while the connection was broken. Load the chat again.";
        throw new ClientError("bad_response", message);
      }
    }
  }

  /**
   * Has the chat read the response from its start, without what is torn. Nothing else takes a part out of a message that
   * is being read. Resolves only if the chat does not read it: then what is torn stays.
   */
  async #showAgain(chat: PageChat): Promise<void> {
    const again = new Again(this);
    await chat.resumeStream({ metadata: again });
    if (!again.isRead) return;
    // What the chat has read meanwhile takes the place of this response.
    if (chat.status === "error" && chat.error !== undefined) throw chat.error;
    throw new DOMException("The response was read again.", "AbortError");
  }
}

/** A chunk of a response, as far as the transport looks at it. */
interface Chunk {
  readonly type: string;
  readonly messageId?: unknown;
  readonly transient?: unknown;
}

/** The chunk in a server-sent event. Throws {@link Passing} for one after which the response is read again. */
function readChunk({ data, retryMs }: ServerEvent): Chunk {
  const chunk = parsedJson(data);
  if (!isChunk(chunk)) throw unreadable("a chunk that is broken", { status: 200 });
  // The server is closing, and another server continues the response.
  if (retryMs !== undefined)
    throw new Passing("away", new ClientError("unreachable", "The server is closing."), retryMs);
  return chunk;
}

function isChunk(value: unknown): value is Chunk {
  return (
    isRecord(value) &&
    /^(?:start|finish|abort|error|text|reasoning|tool|file|source|data|message)(?:$|-)/.test(String(value["type"]))
  );
}

/** Whether a chunk adds something each time that it comes. Calls and their results replace what they were. */
function isOnce({ type }: Chunk): boolean {
  return !type.startsWith("tool-") && !type.endsWith("-step") && type !== "start";
}

/** Whether a chunk says that what was shown of an attempt at a step does not count. */
function isTorn({ type, transient }: Chunk): boolean {
  return type === "data-torn" && transient === true;
}

/** The run in the id of a message: the message is its response, or a part of it. */
function runIdIn(messageId: unknown): string | undefined {
  return /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=$|\/)/.exec(String(messageId))?.[0];
}

/**
 * Chunks as a stream that reads no chunk before it is asked for one: by then its chat is known. Calls `onEnd` once the
 * stream is over, with whether it held no error.
 */
function streamOf(chunks: AsyncGenerator<Chunk, void>, onEnd: (isWell: boolean) => void): Chunks {
  let isWell = true;
  const pull = async (controller: ReadableStreamDefaultController<unknown>): Promise<void> => {
    try {
      const { done, value } = await chunks.next();
      if (done !== true) {
        if (value.type === "error") isWell = false;
        return controller.enqueue(value);
      }
      onEnd(isWell);
      controller.close();
    } catch (error) {
      onEnd(false);
      controller.error(error);
    }
    return undefined;
  };
  const cancel = async (): Promise<void> => {
    onEnd(isWell);
    await chunks.return();
  };
  return new ReadableStream<unknown>({ pull, cancel }, { highWaterMark: 0 }) as Chunks;
}

/** The server writes a refusal as JSON, which has the reason. */
const ACCEPT = "text/event-stream, application/json";

/** The path of the response of a run, also if it has ended; without one, of the run that is open. */
function streamPath(chatId: string, runId: string | undefined): string {
  return `${pathOf(chatId, "stream")}${runId === undefined ? "" : `?run_id=${encodeURIComponent(runId)}`}`;
}

function entriesOf(headers: SendOptions["headers"]): Readonly<Record<string, string>> {
  return headers instanceof Headers ? Object.fromEntries(headers) : { ...headers };
}

/** A message as it is sent. Of one of the assistant the server needs the replies, and which calls the page shows. */
function sent(message: ChatMessage): object {
  return message.role === "assistant" ? { ...message, parts: message.parts.filter(isCall).map(callOf) } : message;
}

function callOf({ type, toolName, toolCallId, state, output, errorText, approval, providerExecuted }: Part): object {
  const call = { type, toolName, toolCallId, state, providerExecuted };
  return providerExecuted === true ? call : { ...call, output, errorText, approval };
}

/** Resolves when the promise does, or the page has stopped. */
async function unlessAborted(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  const aborted = new Promise<void>((resolve) => {
    if (signal?.aborted === true) resolve();
    signal?.addEventListener("abort", () => resolve(), { once: true });
  });
  await Promise.race([promise, aborted]);
}

function nothing(): void {
  // The page has stopped, and shows no error.
}
