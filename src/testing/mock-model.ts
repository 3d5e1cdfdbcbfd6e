import { badArgument, checkAmount, checkKeys, checkObject } from "../runtime/agent/check.ts";
import { DriveError } from "./drive-error.ts";
import { realPause } from "./real-time.ts";

/* A model for `ai` 6 and 7, told structurally, since nothing here imports `ai`. */

/** A text, a call of a tool, or an error with which the answer ends. */
type MockPiece = string | MockToolCall | Error;

interface MockToolCall {
  /** The name of the tool. */
  readonly tool: string;
  /** Any JSON object. Default: `{}`. */
  readonly input?: object | undefined;
}

/** What the model says to a call: one piece, or several in their order. */
type MockAnswer = MockPiece | readonly MockPiece[];

/** A call of the model. */
interface MockCall {
  /** The text of the user's last message; empty if there is none. */
  readonly text: string;
  /** The results of tools at the end of the prompt: what the calls of the answer before have led to. */
  readonly results: readonly MockToolResult[];
  /** The whole prompt, as the AI SDK gives it to a model. */
  readonly prompt: readonly MockMessage[];
  /** 1 for the first call of this model. */
  readonly number: number;
  /** All that the AI SDK has given, such as `temperature`, `tools` and `responseFormat`. */
  readonly options: Readonly<Record<string, unknown>>;
}

interface MockMessage {
  readonly role: string;
  readonly content: unknown;
}

interface MockToolResult {
  /** The name of the tool. */
  readonly tool: string;
  /** The `type` is `execution-denied` where a person has refused the call. */
  readonly output: { readonly type: string; readonly value?: unknown; readonly reason?: string | undefined };
}

/** How a mock model answers. Every property may be left out. */
interface MockModelOptions {
  /** The pause before each word of a stream, and before an answer that is not streamed, in milliseconds. Default: 0. */
  readonly pauseMs?: number | undefined;
  /** The id of the model. Default: `mock`. */
  readonly modelId?: string | undefined;
}

/** A model for `ai` 6 and 7 that answers without a network: see {@link mockModel}. */
export interface MockModel {
  readonly specificationVersion: "v3";
  readonly provider: "cadenza";
  readonly modelId: string;
  /** None: the AI SDK loads what a prompt names by its address. */
  readonly supportedUrls: Record<string, RegExp[]>;
  /** The calls so far. */
  readonly calls: readonly MockCall[];
  /** Answers a call that does not stream, such as those of `generateText`. */
  doGenerate(options: CallOptions): Promise<Generated>;
  /** Answers a call that streams, such as those of `streamText`. */
  doStream(options: CallOptions): Promise<{ stream: ReadableStream<Chunk> }>;
}

/** What the AI SDK gives to a model, as far as it is used here. */
interface CallOptions {
  readonly prompt: readonly MockMessage[];
  readonly abortSignal?: AbortSignal | undefined;
}

interface Generated {
  content: ({ type: "text"; text: string } | ToolCallChunk)[];
  finishReason: FinishReason;
  usage: Usage;
  warnings: [];
}

type Chunk =
  | { type: "stream-start"; warnings: [] }
  | { type: "text-start"; id: string }
  | { type: "text-delta"; id: string; delta: string }
  | { type: "text-end"; id: string }
  | ToolCallChunk
  | { type: "error"; error: Error }
  | { type: "finish"; finishReason: FinishReason; usage: Usage };

interface ToolCallChunk {
  type: "tool-call";
  toolCallId: string;
  toolName: string;
  input: string;
}

interface FinishReason {
  unified: "stop" | "tool-calls";
  raw: undefined;
}

interface Usage {
  inputTokens: { total: number; noCache: number; cacheRead: number; cacheWrite: number };
  outputTokens: { total: number; text: number; reasoning: number };
}

const TOKENS_OF_A_MESSAGE = 10;

/**
 * Makes a model for the functions of the AI SDK (`ai` 6 and 7), such as `streamText` and `generateText`, that answers
 * without a network and a key. A streamed answer comes word by word.
 *
 * An answer is a text, a call of a tool (`{ tool, input }`), an `Error`, or a list of these. A call ends with the first
 * error. An error at the beginning rejects the call, one behind other pieces breaks the stream there.
 *
 * @param answers What the model says: a text to each call; a list with an answer for each call, in their order; or a
 * function of the call, which may return a promise. Agents that begin again, as in `everyInterruption`, use up a list.
 * Give them a function.
 * @returns The model. Its `calls` are what it was called with. It counts 10 tokens for each message of a prompt and one for
 * each word and each tool call of an answer. The ids of tool calls are made of the length of the prompt, so that a
 * process that continues a run does not repeat one.
 * @throws A call that has no answer in a list rejects with a `DriveError`. An aborted call rejects with the reason of its
 * signal. `invalid_argument` for answers and options of other types.
 *
 * @example
 * ```ts
 * import { generateText } from "ai";
 * import { mockModel } from "cadenza/testing";
 *
 * const model = mockModel([[{ tool: "refund", input: { euros: 40 } }], "The 40 € are on their way."]);
 * const first = await generateText({ model, prompt: "My train was late." });
 * console.log(first.finishReason, model.calls[0]?.text); // → tool-calls My train was late.
 *
 * const echo = mockModel(({ text }) => `You said: ${text}`);
 * console.log((await generateText({ model: echo, prompt: "Hello." })).text); // → You said: Hello.
 * ```
 */
export function mockModel(
  answers: string | readonly MockAnswer[] | ((call: MockCall) => MockAnswer | Promise<MockAnswer>),
  options: MockModelOptions = {},
): MockModel {
  if (typeof answers !== "string" && typeof answers !== "function" && !Array.isArray(answers))
    throw badArgument("answers", "a text, a list or a function", answers);
  checkObject("options", options);
  checkKeys("options", options, ["pauseMs", "modelId"]);
  const { pauseMs = 0, modelId = "mock" } = options;
  checkAmount("options.pauseMs", pauseMs);
  const calls: MockCall[] = [];

  /** The pieces of the answer to the next call. */
  const answerTo = async (given: CallOptions): Promise<readonly MockPiece[]> => {
    given.abortSignal?.throwIfAborted();
    const call = callOf(given, calls.length + 1);
    calls.push(call);
    const answer =
      typeof answers === "function" ? await unlessAborted(answers(call), given.abortSignal) : next(answers, call);
    const pieces = readPieces(answer);
    await paused(pauseMs, given.abortSignal);
    if (pieces[0] instanceof Error) throw pieces[0];
    return pieces;
  };

  return {
    specificationVersion: "v3",
    provider: "cadenza",
    modelId,
    supportedUrls: {},
    calls,
    doGenerate: async (given) => {
      const chunks = chunksOf(await answerTo(given), given);
      const content: Generated["content"] = [];
      for (const chunk of chunks) {
        if (chunk.type === "error") throw chunk.error;
        if (chunk.type === "tool-call") content.push(chunk);
        if (chunk.type === "text-start") content.push({ type: "text", text: "" });
        const last = content.at(-1);
        if (chunk.type === "text-delta" && last?.type === "text") last.text += chunk.delta;
      }
      return { content, ...endOf(chunks, given), warnings: [] };
    },
    doStream: async (given) => {
      const chunks = chunksOf(await answerTo(given), given);
      return { stream: streamOf(chunks, pauseMs, given.abortSignal) };
    },
  };
}

function next(answers: string | readonly MockAnswer[], { number }: MockCall): MockAnswer {
  if (typeof answers === "string") return answers;
  const answer = answers[number - 1];
  if (answer !== undefined) return answer;
  throw new DriveError(
    `The mock model was called ${number} times, and its list has ${answers.length} answers. Add one, or give a function.`,
  );
}

function readPieces(answer: MockAnswer): readonly MockPiece[] {
  const pieces: readonly MockPiece[] = Array.isArray(answer) ? answer : [answer];
  for (const piece of pieces) {
    if (typeof piece === "string" || piece instanceof Error || typeof piece?.tool === "string") continue;
    throw badArgument(
      "answer",
      "a text, a call of a tool such as { tool, input }, an Error, or a list of these",
      piece,
    );
  }
  return pieces;
}

function callOf(options: CallOptions, number: number): MockCall {
  const { prompt } = options;
  const isOfTools = prompt.map(({ role }) => role === "tool");
  const messages = prompt.slice(isOfTools.lastIndexOf(false) + 1);
  const results = messages.flatMap((message) =>
    partsOf(message).flatMap((part) =>
      part.type === "tool-result" && part.output !== undefined
        ? [{ tool: part.toolName ?? "", output: part.output }]
        : [],
    ),
  );
  const user = prompt.findLast(({ role }) => role === "user");
  const text = user === undefined ? [] : partsOf(user).flatMap((part) => (part.type === "text" ? [part.text] : []));
  return { text: text.join("\n"), results, prompt, number, options: { ...options } };
}

interface PromptPart {
  readonly type: string;
  readonly text?: string;
  readonly toolName?: string;
  readonly output?: MockToolResult["output"];
}

function partsOf({ content }: MockMessage): readonly PromptPart[] {
  return Array.isArray(content) ? content : [];
}

/** The chunks of an answer, up to its first error. */
function chunksOf(pieces: readonly MockPiece[], given: CallOptions): readonly Chunk[] {
  const chunks: Chunk[] = [{ type: "stream-start", warnings: [] }];
  for (const [index, piece] of pieces.entries()) {
    const id = `${given.prompt.length}-${index + 1}`;
    if (piece instanceof Error) return [...chunks, { type: "error", error: piece }];
    if (typeof piece === "string") {
      const words = piece === "" ? [] : piece.split(/(?<=\s)(?=\S)/);
      const deltas = words.map((delta) => ({ type: "text-delta" as const, id, delta }));
      chunks.push({ type: "text-start", id }, ...deltas, { type: "text-end", id });
    } else {
      const input = JSON.stringify(piece.input ?? {});
      chunks.push({ type: "tool-call", toolCallId: `call-${id}`, toolName: piece.tool, input });
    }
  }
  return [...chunks, { type: "finish", ...endOf(chunks, given) }];
}

function endOf(chunks: readonly Chunk[], { prompt }: CallOptions): { finishReason: FinishReason; usage: Usage } {
  const count = (type: Chunk["type"]): number => chunks.filter((chunk) => chunk.type === type).length;
  const input = prompt.length * TOKENS_OF_A_MESSAGE;
  const output = count("text-delta") + count("tool-call");
  return {
    finishReason: { unified: count("tool-call") > 0 ? "tool-calls" : "stop", raw: undefined },
    usage: {
      inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: output, text: output, reasoning: 0 },
    },
  };
}

/** Gives a chunk when one is asked for, with a pause before each word after the first. */
function streamOf(chunks: readonly Chunk[], pauseMs: number, signal: AbortSignal | undefined): ReadableStream<Chunk> {
  const left = [...chunks];
  let isFirst = true;
  return new ReadableStream<Chunk>(
    {
      pull: async (controller) => {
        const chunk = left.shift();
        if (chunk === undefined) return controller.close();
        const isWord = chunk.type === "text-delta";
        await paused(isWord && !isFirst ? pauseMs : 0, signal);
        if (isWord) isFirst = false;
        controller.enqueue(chunk);
      },
    },
    // Nothing is made ahead of its reader.
    { highWaterMark: 0 },
  );
}

async function paused(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  if (milliseconds > 0) await realPause(milliseconds, signal);
}

/** The value, or the reason of the signal if it aborts before. */
function unlessAborted<T>(value: T | Promise<T>, signal: AbortSignal | undefined): T | Promise<T> {
  if (signal === undefined || !(value instanceof Promise)) return value;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    value.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
