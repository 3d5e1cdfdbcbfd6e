import type { ChatTransport } from "ai";
import { parseJsonEventStream } from "ai";
import type { MessagePartInput, RunEvent } from "cadenza";
import * as z from "zod";
import type { AgentMessage, Question } from "./chunks.ts";
import { Chunks } from "./chunks.ts";

/** Lets `useChat` talk to an agent of the service: the chat's id is the session's, and a message answers the question that is open. */
export const agentTransport = (agent_name: string, url = "/api/agents"): ChatTransport<AgentMessage> => ({
  // A page that is loaded again has lost its messages. One that keeps them reads on with GET /runs/{run_id}/events.
  reconnectToStream: async () => null,
  async sendMessages({ chatId: session_id, messages, abortSignal }) {
    const message = { parts: messages.at(-1)?.parts.flatMap(partsOf) ?? [] };
    const asked = openQuestion(messages);
    const answered = asked === undefined ? undefined : await answer(url, asked, message);
    const response =
      answered ?? (await post(`${url}/runs`, { agent_name, session_id, mode: "stream", input: [message] }));
    if (!response.ok || response.body === null) throw await errorOf(response);
    const stop = (): void => void fetch(`${url}/runs/${response.headers.get("run-id")}/cancel`, { method: "POST" });
    // The signal is not given to fetch: a client that leaves does not stop its run.
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

/** What the agent asked last, if it has said nothing since. */
function openQuestion(messages: readonly AgentMessage[]): Question | undefined {
  const last = messages.findLast(({ role }) => role === "assistant")?.parts.at(-1);
  return last?.type === "data-question" ? last.data : undefined;
}

/** Undefined: the question is not open any more. */
async function answer(url: string, { run_id, await_id }: Question, message: object): Promise<Response | undefined> {
  const await_resume = { type: "message", message };
  const response = await post(`${url}/runs/${run_id}`, { run_id, await_id, await_resume, mode: "stream" });
  return [403, 404, 409].includes(response.status) ? undefined : response;
}

function post(url: string, body: object): Promise<Response> {
  return fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

/** The service says in JSON what is wrong; a proxy says it in its own way. */
async function errorOf(response: Response): Promise<Error> {
  const said = (await response.json().catch(() => undefined)) as { readonly message?: string } | undefined;
  return new Error(said?.message ?? `The service answered ${response.status}.`);
}
