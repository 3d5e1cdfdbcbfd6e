import type { LanguageModel } from "ai";

type Model = Exclude<LanguageModel, string> & { readonly specificationVersion: "v3" };
type Chunk = Record<string, unknown> & { readonly type: string };

/** What a model is called with, as far as the tests look at it. */
export interface Call {
  readonly prompt: readonly { readonly role: string; readonly content: unknown }[];
  readonly abortSignal?: AbortSignal;
  readonly responseFormat?: { readonly type: string };
}

const usage = {
  inputTokens: { total: 10, noCache: 10, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 4, text: 4, reasoning: 0 },
};

/** A text and tool calls as a model answers them: each word is a delta. */
export function answer(text: string, ...calls: readonly { id: string; name: string; input: object }[]): Chunk[] {
  const words = text === "" ? [] : text.split(/(?<= )/);
  return [
    { type: "stream-start", warnings: [] },
    { type: "response-metadata", id: "r1", timestamp: new Date(0), modelId: "pretend" },
    ...(words.length === 0 ? [] : [{ type: "text-start", id: "t" }]),
    ...words.map((delta) => ({ type: "text-delta", id: "t", delta })),
    ...(words.length === 0 ? [] : [{ type: "text-end", id: "t" }]),
    ...calls.map(({ id, name, input }) => ({
      type: "tool-call",
      toolCallId: id,
      toolName: name,
      input: JSON.stringify(input),
    })),
    { type: "finish", finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined }, usage },
  ];
}

/** A stream that gives chunks, and then breaks. */
export class Broken {
  readonly chunks: readonly Chunk[];
  readonly error: unknown;

  constructor(chunks: readonly Chunk[], error: unknown = new TypeError("terminated")) {
    this.chunks = chunks;
    this.error = error;
  }
}

/** A model that answers without a network. `reply` gives the chunks, or throws. Calls that do not stream get the same. */
export function pretend(version: "v2" | "v3" | "v4", reply: (call: Call) => readonly Chunk[] | Broken): Model {
  return {
    specificationVersion: version,
    provider: "pretend",
    modelId: "pretend-1",
    supportedUrls: {},
    doStream: async (call: Call) => {
      const given = reply(call);
      const chunks = [...(given instanceof Broken ? given.chunks : given)];
      const stream = new ReadableStream({
        pull: (controller) => {
          const next = chunks.shift();
          if (next !== undefined) controller.enqueue(next);
          else if (given instanceof Broken) controller.error(given.error);
          else controller.close();
        },
      });
      return { stream };
    },
    doGenerate: async (call: Call) => {
      const given = reply(call);
      if (given instanceof Broken) throw given.error;
      const finish = given.find(({ type }) => type === "finish");
      const text = given.flatMap(({ type, delta }) => (type === "text-delta" ? [delta] : [])).join("");
      const content = [
        ...(text === "" ? [] : [{ type: "text", text }]),
        ...given.filter(({ type }) => type === "tool-call"),
      ];
      return { content, finishReason: finish?.["finishReason"], usage, warnings: [] };
    },
  } as unknown as Model;
}
