import type { OpenQuestionDetails } from "../protocol/extensions.ts";
import type { AwaitResume, Run } from "../protocol/run.ts";
import type { CallableAgent } from "../runtime/agent-schemas.ts";
import { ClientError } from "./client-error.ts";
import type { Connection } from "./connection.ts";
import { outputIn } from "./input.ts";
import type { ClientEvent, RunView } from "./run-view.ts";
import { emptyView, viewAfter } from "./run-view.ts";
import type { ServerEvent } from "./server-events.ts";
import type { AnswerTo, OutputOf, QuestionOf } from "./types.ts";

/** A question by its name, or by its id where several with the name are open. */
export type QuestionChoice<Name extends string> = Name | { readonly await_id: string };

/** The options of a call that waits. */
export interface WaitingOptions {
  /** Ends the wait: the call rejects with the signal's reason. The run goes on. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** Which events to read. */
export interface ClientEventsOptions extends WaitingOptions {
  /** The id of the last event to skip. Default: 0, which skips none. */
  readonly after?: number | undefined;
  /**
   * Whether to give steps, sleeps, messages, sub-runs, all questions and usage too. The server needs `extensions: true`
   * for it. Default: false.
   */
  readonly detail?: boolean | undefined;
}

/**
 * A run on a server. `answer` and `decline` by name, and `view`, need a server with `extensions: true`.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createClient } from "cadenza/client";
 * import { createHandler } from "cadenza/http";
 *
 * const runtime = new AgentRuntime().register("booking", async (_input, { ask }) => ask("Book it?", { name: "ok" }));
 * const handler = createHandler(runtime, { extensions: true });
 * const fetch: typeof globalThis.fetch = (url, init) => handler(new Request(url, init));
 * const client = createClient({ url: "http://localhost", fetch });
 * const run = await client.run("booking", "Berlin to Paris");
 * for await (const event of run.events({ detail: true })) {
 *   if (event.type === "question.asked") await run.answer("ok", { ok: true });
 *   if (event.type === "run.completed") console.log(event.run.status); // → completed
 * }
 * ```
 */
export class ClientRun<Called extends CallableAgent = CallableAgent> {
  readonly run_id: string;
  readonly #connection: Connection;
  #view = emptyView;
  readonly #watchers = new Set<() => void>();
  #stop: AbortController | undefined;
  /** What the view has taken: the number of the last event, and the position of the last detail. */
  readonly #taken = { id: 0, position: 0 };

  constructor(connection: Connection, run_id: string) {
    this.#connection = connection;
    this.run_id = run_id;
  }

  /** The run as it is now. */
  async record({ signal }: WaitingOptions = {}): Promise<Run> {
    return this.#connection.json<Run>({ method: "GET", path: this.#path(), signal });
  }

  /** Its events, until it ends. Where the connection breaks off, they go on after the last one. */
  events(options: ClientEventsOptions & { readonly detail: true }): AsyncGenerator<ClientEvent, void>;
  events(options?: ClientEventsOptions): AsyncGenerator<Extract<ClientEvent, { readonly id: number }>, void>;
  async *events({ after = 0, detail = false, signal }: ClientEventsOptions = {}): AsyncGenerator<ClientEvent, void> {
    const path = this.#path(`/events?until=end${detail ? "&detail=true" : ""}`);
    let position = 0;
    const stream = this.#connection.stream({ method: "GET", path, signal }, after > 0 ? `${after}` : undefined, isEnd);
    for await (const { id, data } of stream) {
      const event = JSON.parse(data) as ClientEvent;
      if (event.type === "error") {
        if (event.error.data?.["reason"] === "runtime_closed") continue;
        throw new ClientError(String(event.error.data?.["reason"] ?? event.error.code), event.error.message);
      }
      if ("position" in event) {
        // After a new connection those behind the last event come again.
        if (event.position <= position) continue;
        position = event.position;
        yield event;
      } else yield { ...event, id: Number(id) };
    }
  }

  /**
   * What it has given when it has completed: the value that the agent has returned, or without an `output` schema its
   * messages. Rejects with `run_failed` or `run_cancelled` if it ends so, each with the run.
   */
  async result(options: WaitingOptions = {}): Promise<OutputOf<Called>> {
    for await (const event of this.events(options)) if ("run" in event && event.run.finished_at !== null) break;
    const run = await this.record(options);
    if (run.status === "failed") throw new ClientError("run_failed", run.error.message, { run });
    if (run.status !== "completed") throw new ClientError("run_cancelled", "The run was cancelled.", { run });
    return outputIn(run) as OutputOf<Called>;
  }

  /**
   * Answers a question: the first open one with this name, or the one with this id. Rejects with `not_awaiting` if there is
   * none, with `answer_rejected` and the `issues` if the answer does not match the question's schema, and with
   * `answer_conflict` if it has another answer already.
   */
  async answer<Name extends QuestionOf<Called>>(
    question: QuestionChoice<Name>,
    value: AnswerTo<Called, Name>,
    options: WaitingOptions = {},
  ): Promise<void> {
    await this.#reply(question, { await_resume: resumeOf(value) }, options);
  }

  /** Declines to answer. The agent gets `answer_declined`. The server needs `extensions: true`. */
  async decline<Name extends QuestionOf<Called>>(
    question: QuestionChoice<Name>,
    { reason, ...options }: WaitingOptions & { readonly reason?: string | undefined } = {},
  ): Promise<void> {
    await this.#reply(question, { decline: reason === undefined ? {} : { reason } }, options);
  }

  /** Stops the run. Resolves when the server has the cancel, also for a run that has ended. */
  async cancel({ signal }: WaitingOptions = {}): Promise<void> {
    try {
      await this.#connection.send({ method: "POST", path: this.#path("/cancel"), signal });
    } catch (error) {
      if (!(error instanceof ClientError) || error.code !== "run_finished") throw error;
    }
  }

  /** The open questions, in the order in which they were asked. The server needs `extensions: true`. */
  async questions({ signal }: WaitingOptions = {}): Promise<readonly OpenQuestionDetails[]> {
    interface Details {
      readonly await_requests: readonly OpenQuestionDetails[];
    }
    const details = await this.#connection.json<Details>({ method: "GET", path: this.#path("/details"), signal });
    return details.await_requests;
  }

  /** What a page shows of the run. It is kept up to date while there are watchers. */
  get view(): RunView {
    return this.#view;
  }

  /** Calls back after each change of the view, until the returned function is called. `onError`: it cannot be read further. */
  watch(callback: () => void, onError?: (error: unknown) => void): () => void {
    this.#watchers.add(callback);
    if (this.#stop === undefined) {
      this.#stop = new AbortController();
      this.#follow(this.#stop.signal).catch((error: unknown) => onError?.(error));
    }
    return () => {
      this.#watchers.delete(callback);
      if (this.#watchers.size > 0) return;
      this.#stop?.abort();
      this.#stop = undefined;
    };
  }

  async #follow(signal: AbortSignal): Promise<void> {
    try {
      for await (const event of this.events({ after: this.#taken.id, detail: true, signal })) {
        if (signal.aborted) return;
        if ("position" in event) {
          if (event.position <= this.#taken.position) continue;
          this.#taken.position = event.position;
        } else this.#taken.id = event.id;
        this.#view = viewAfter(this.#view, event);
        for (const callback of this.#watchers) callback();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #reply(
    question: QuestionChoice<string>,
    reply: { readonly await_resume: AwaitResume } | { readonly decline: object },
    { signal }: WaitingOptions,
  ): Promise<void> {
    const await_id = typeof question === "string" ? await this.#idOf(question, signal) : question.await_id;
    const headers = { "idempotency-key": this.#connection.machine.key() };
    const body = { ...reply, await_id, mode: "async" };
    await this.#connection.send({ method: "POST", path: this.#path(), body, headers, signal });
  }

  async #idOf(name: string, signal: AbortSignal | undefined): Promise<string> {
    const found = (await this.questions({ signal })).find((question) => question.name === name);
    if (found === undefined)
      throw new ClientError("not_awaiting", `The run has no open question ${JSON.stringify(name)}.`);
    return found.await_id;
  }

  #path(below = ""): string {
    return `/runs/${encodeURIComponent(this.run_id)}${below}`;
  }
}

/** Whether nothing follows. A server that closes says so too, and another one goes on. */
function isEnd({ data }: ServerEvent): boolean {
  return /^\{"type":"run\.(?:completed|failed|cancelled)"/.test(data);
}

/** A text answers as a message, and an object is the answer itself. */
function resumeOf(value: unknown): AwaitResume {
  if (typeof value !== "string") return value as AwaitResume;
  const part = { content_type: "text/plain", content: value, content_encoding: "plain" } as const;
  return { type: "message", message: { role: "user", parts: [part] } };
}
