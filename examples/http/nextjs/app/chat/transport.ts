import type { ChatTransport } from "ai";
import { parseJsonEventStream } from "ai";
import type { MessagePartInput, RunEvent } from "cadenza";
import * as z from "zod";
import type { AgentMessage, Question } from "./chunks.ts";
import { Chunks } from "./chunks.ts";

/** Connects `useChat` with an agent. The chat's id is the session id. A message answers the open question. */
export const agentTransport = (agent_name: string, url = "/api/agents"): ChatTransport<AgentMessage> => ({
  // A reloaded page has lost its messages. A page that keeps them reconnects with GET /runs/{run_id}/events.
  reconnectToStream: async () => null,
  async sendMessages({ chatId: session_id, messages, abortSignal }) {
    const message = { parts: messages.at(-1)?.parts.flatMap(partsOf) ?? [] };
    const asked = openQuestion(messages);
    const answered = asked === undefined ? undefined : await answer(url, asked, message);
    const response =
      answered ?? (await post(`${url}/runs`, { agent_name, session_id, mode: "stream", input: [message] }));
    if (!response.ok || response.body === null) throw await errorOf(response);
    const stop = (): void => void fetch(`${url}/runs/${response.headers.get("run-id")}/cancel`, { method: "POST" });
    // The signal is not passed to fetch: a closed connection would not cancel the run.
    if (abortSignal?.aborted === true) stop();
    else abortSignal?.addEventListener("abort", stop, { once: true });
    return parseJsonEventStream({ stream: response.body, schema: z.custom<RunEvent>() }).pipeThrough(new Chunks());
  },
});

function partsOf(part: AgentMessage["parts"][number]): MessagePartInput[] {
  if (part.type === "text") return [{ content: part.text }];
  if (part.type === "file") return [{ content_type: part.mediaType, content_url: part.url, name: part.filename }];
  return [];
}

/** The agent's last question, if no other output follows it. */
function openQuestion(messages: readonly AgentMessage[]): Question | undefined {
  const last = messages.findLast(({ role }) => role === "assistant")?.parts.at(-1);
  return last?.type === "data-question" ? last.data : undefined;
}

/** Sends an answer. Undefined: the question is no longer open. */
async function answer(url: string, { run_id, await_id }: Question, message: object): Promise<Response | undefined> {
  const await_resume = { type: "message", message };
  const response = await post(`${url}/runs/${run_id}`, { run_id, await_id, await_resume, mode: "stream" });
  return [403, 404, 409].includes(response.status) ? undefined : response;
}

function post(url: string, body: object): Promise<Response> {
  return fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

/** The error of a response: the service's JSON message, or the status for the body of a proxy. */
async function errorOf(response: Response): Promise<Error> {
  const said = (await response.json().catch(() => undefined)) as { readonly message?: string } | undefined;
  return new Error(said?.message ?? `The service answered ${response.status}.`);
}
