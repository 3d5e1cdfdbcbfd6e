import type { Run, StreamedEvent } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { Connection } from "./connection.ts";
import type { Desk } from "./desk.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

const HOST = "http://localhost/acp";

/** A client of ACP that knows the session of the chat. */
export const acpClient: FaceUnderTest = {
  kind: "acp",
  name: "a client of ACP",
  visit: (desk, chat) => new AcpVisitor(desk, chat),
};

/** Whether a chat is named by the id of its session. */
function isUuid(chat: string): boolean {
  return /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/.test(chat);
}

class AcpVisitor implements Visitor {
  readonly #desk: Desk;
  readonly #session: string;
  readonly connection: Connection;
  #run: Run | undefined;
  #text = "";
  #error: string | null = null;

  constructor(desk: Desk, chat: string) {
    this.#desk = desk;
    this.#session = isUuid(chat) ? chat : desk.runtime.sessionId(chat);
    this.connection = new Connection(HOST, () =>
      createAcpHandler(desk.runtime, { basePath: "/acp", extensions: true, ...desk.host }),
    );
  }

  #post(path: string, body: object): Promise<Response> {
    const headers = { "content-type": "application/json" };
    return this.connection.send(`${HOST}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  }

  /** Takes the events of a stream until it ends, or breaks off. */
  async #follow(response: Response): Promise<void> {
    this.#error = null;
    if (!response.ok) {
      this.#error = ((await response.json()) as { readonly message: string }).message;
      return;
    }
    const { items } = this.connection;
    let taken = items.length;
    const reader = response.body?.getReader();
    for (;;) {
      const next = await reader?.read().catch(() => undefined);
      for (; taken < items.length; taken++) this.#take(items[taken] as StreamedEvent);
      if (next === undefined || next.done) return;
    }
  }

  #take(event: StreamedEvent): void {
    if ("run" in event) this.#run = event.run as Run;
    if (event.type === "message.part") this.#text += event.part.content ?? "";
    if (event.type === "run.failed") this.#error = event.run.error?.message ?? "";
  }

  async say(text: string): Promise<void> {
    const message = { role: "user", parts: [{ content: text }] };
    if (this.#question !== null) return this.#reply({ await_resume: { type: "message", message } });
    const input = { agent_name: "desk", input: [message], session_id: this.#session, mode: "stream" };
    return this.#follow(await this.#post("/runs", input));
  }

  answer(value: object): Promise<void> {
    return this.#reply({ await_resume: value });
  }

  decline(reason: string): Promise<void> {
    return this.#reply({ decline: { reason } });
  }

  async #reply(reply: object): Promise<void> {
    return this.#follow(await this.#post(`/runs/${this.#run?.run_id}`, { ...reply, mode: "stream" }));
  }

  async stop(): Promise<void> {
    await this.#post(`/runs/${this.#run?.run_id}/cancel`, {});
    await this.#desk.clock.settle();
  }

  async disconnect(): Promise<void> {
    this.connection.breakOff();
    await this.#desk.clock.settle();
  }

  async open(): Promise<void> {
    const found = await this.connection.send(`${HOST}/runs?session_id=${this.#session}&limit=1`);
    [this.#run] = ((await found.json()) as { readonly runs: readonly Run[] }).runs;
    this.#text = "";
    const headers = { accept: "text/event-stream" };
    await this.#follow(await this.connection.send(`${HOST}/runs/${this.#run?.run_id}/events`, { headers }));
  }

  get #question(): string | null {
    if (this.#run?.status !== "awaiting") return null;
    return this.#run.await_request?.message.parts[0]?.content ?? null;
  }

  get view(): View {
    return { text: this.#text, question: this.#question, error: this.#error };
  }
}
