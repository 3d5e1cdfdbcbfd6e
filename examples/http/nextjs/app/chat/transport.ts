import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { parseJsonEventStream } from "ai";
import * as z from "zod";

const event = z.object({ part: z.object({ content: z.string() }).optional() });

/** Lets `useChat` talk to an agent of the service. */
export const agentTransport = (agent_name: string, url = "/api/agents/runs"): ChatTransport<UIMessage> => ({
  reconnectToStream: async () => null,
  async sendMessages({ chatId: session_id, messages, abortSignal }) {
    const parts = messages.at(-1)?.parts.map((part) => ({ content: part.type === "text" ? part.text : "" }));
    const body = JSON.stringify({ agent_name, session_id, mode: "stream", input: [{ parts }] });
    const headers = { "content-type": "application/json" };
    const response = await fetch(url, { method: "POST", headers, body, signal: abortSignal ?? null });
    if (!response.ok || response.body === null) throw new Error(await response.text());
    const chunks = new TransformStream<{ success: boolean; value?: z.infer<typeof event> }, UIMessageChunk>({
      start: (out) => out.enqueue({ type: "text-start", id: "1" }),
      transform: ({ value: { part } = {} }, out) =>
        part && out.enqueue({ type: "text-delta", id: "1", delta: part.content }),
      flush: (out) => out.enqueue({ type: "text-end", id: "1" }),
    });
    return parseJsonEventStream({ stream: response.body, schema: event }).pipeThrough(chunks);
  },
});
