import assert from "node:assert/strict";
import type { RuntimeOptions } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import type { Authorize } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";

/** What an application is opened with. */
export interface Setting {
  readonly runtime?: RuntimeOptions;
  /** Default: 1,000. */
  readonly maxReaders?: number;
}

export interface Application {
  readonly runtime: AgentRuntime;
  customer(tenant: string): Customer;
  close(): Promise<void>;
}

type Face = "acp" | "chat" | "agUi" | "inspector";
type Faces = Readonly<Record<Face, (request: Request) => Promise<Response>>>;
export type Json = Readonly<Record<string, unknown>>;

const EVENTS = { accept: "text/event-stream" };

/** Opens an application with every face, whose customers are tenants. */
export function openApplication({ runtime: options = {}, maxReaders = 1_000 }: Setting): Application {
  const runtime = new AgentRuntime({ cancelGraceMs: 1, ...options });
  runtime.register("echo", (input) => input);
  runtime.register("asks", async (_input, { ask }) => JSON.stringify(await ask("Well?")));
  runtime.register("works", { concurrency: { max: 1, per: "tenant" } }, (_input, { signal }) => {
    return new Promise<string>((resolve) => signal.addEventListener("abort", () => resolve("stopped")));
  });
  const authorize: Authorize = ({ headers }) => ({ tenant: headers["x-tenant"] ?? "" });
  const served = { authorize, limits: { maxReaders } };
  const faces: Faces = {
    acp: createAcpHandler(runtime, { ...served, extensions: true }),
    chat: createChatHandler(runtime, served),
    agUi: createAgUiHandler(runtime, served),
    inspector: createInspectorHandler(runtime, {
      limits: { maxReaders },
      authorize: ({ headers }) => ({ tenant: headers["x-tenant"] ?? "" }),
    }),
  };
  const streams: Response[] = [];
  return {
    runtime,
    customer: (tenant) => new Customer(faces, tenant, streams),
    async close() {
      for (const { body } of streams) await body?.cancel().catch(() => undefined);
      await runtime.close({ drainMs: 0 });
    },
  };
}

/** A customer of the application, who has a tenant. */
export class Customer {
  readonly #faces: Faces;
  readonly #tenant: string;
  readonly #streams: Response[];

  /** `streams` gets each stream that is opened, to be closed at the end. */
  constructor(faces: Faces, tenant: string, streams: Response[]) {
    this.#faces = faces;
    this.#tenant = tenant;
    this.#streams = streams;
  }

  send(face: Face, path: string, body?: object, headers: object = {}): Promise<Response> {
    const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const all = { "content-type": "application/json", "x-tenant": this.#tenant, ...headers };
    return this.#faces[face](new Request(`http://localhost${path}`, { ...init, headers: all }));
  }

  create(agent_name: string, more: object = {}, headers: object = {}): Promise<Response> {
    const input = [{ role: "user", parts: [{ content: "hello" }] }];
    return this.send("acp", "/runs", { agent_name, input, ...more }, headers);
  }

  /** The run that is created. Throws if it is refused. */
  async run(agent_name: string, more: object = {}, headers: object = {}): Promise<Json> {
    const response = await this.create(agent_name, more, headers);
    const text = await response.text();
    assert(response.ok, `A run was refused with ${response.status}: ${text}`);
    return JSON.parse(text) as Json;
  }

  /** Answers the question of a run, which is `completed` then. */
  async answer(run_id: unknown): Promise<Json> {
    const response = await this.send("acp", `/runs/${run_id}`, { await_resume: { ok: true } });
    return (await response.json()) as Json;
  }

  /** A stream of a run that stays open. */
  async follow(run_id: unknown): Promise<Response> {
    const response = await this.send("acp", `/runs/${run_id}/events?until=end`, undefined, EVENTS);
    this.#streams.push(response);
    return response;
  }

  /** A view of the inspector that stays open. */
  async view(): Promise<Response> {
    const response = await this.send("inspector", "/api/feed/runs");
    this.#streams.push(response);
    return response;
  }

  /** How many of its runs it finds. */
  async count(): Promise<number> {
    const { runs } = (await (await this.send("acp", "/runs?limit=100")).json()) as { runs: unknown[] };
    return runs.length;
  }

  chat(face: "chat" | "agUi", id: string): Promise<Response> {
    const message = { id: "m", role: "user", content: "hi", parts: [{ type: "text", text: "hi" }] };
    const more = { threadId: id, runId: "r", state: {}, tools: [], context: [], forwardedProps: {} };
    return this.send(face, "/echo", { id, messages: [message], ...more });
  }
}

/** The session of a customer who has something. */
const SESSION = "00000000-0000-4000-8000-00000000feed";

/** What a customer has before another one exhausts its limits: a run with a key, a session, and a run that waits. */
export interface Belongings {
  readonly keyed: Json;
  readonly waiting: Json;
}

export async function begin(one: Customer): Promise<Belongings> {
  return { keyed: await order(one), waiting: await one.run("asks") };
}

/** A run with a key, in a session. */
export function order(one: Customer): Promise<Json> {
  return one.run("echo", { session_id: SESSION }, { "idempotency-key": "order 17" });
}

/** A customer finds what it had, and gets everything it asks for. Throws otherwise. */
export async function loseNothing(one: Customer, { keyed, waiting }: Belongings): Promise<void> {
  assert.equal((await order(one))["run_id"], keyed["run_id"], "the run with a key");
  assert.equal((await one.send("acp", `/runs/${keyed["run_id"]}`)).status, 200, "a run that has ended");
  const session = (await (await one.send("acp", `/sessions/${SESSION}`)).json()) as { history?: unknown[] };
  assert((session.history?.length ?? 0) >= 2, "the session has its messages");

  assert.equal((await one.run("echo"))["status"], "completed");
  assert.match(await (await one.create("echo", { mode: "stream" })).text(), /run\.completed/);
  assert.equal((await one.answer(waiting["run_id"]))["status"], "completed", "the run that was answered");
  const works = await one.run("works", { mode: "async" });
  const queued = await one.run("works", { mode: "async" });
  for (const { run_id } of [works, queued]) {
    assert.equal((await one.follow(run_id)).status, 200, "a stream");
    assert.equal((await one.send("acp", `/runs/${run_id}/cancel`, {})).status, 202, "a cancel");
  }
  for (const face of ["chat", "agUi"] as const) assert.equal((await one.chat(face, "chat-1")).status, 200, face);
  assert.equal((await one.view()).status, 200, "a view of the inspector");
}

/** What a refusal says about the limit. */
export interface Refusal {
  readonly status: number;
  readonly again: string | null;
  readonly reason: unknown;
  readonly limit: unknown;
}

export async function refused(response: Response): Promise<Refusal> {
  const { data = {} } = (await response.json()) as { data?: Json };
  const again = response.headers.get("retry-after");
  return { status: response.status, again, reason: data["reason"], limit: data["limit"] };
}

/** A refusal by a limit. */
export function refusal(limit: string): Refusal {
  return { status: 503, again: "1", reason: "limit_reached", limit };
}
