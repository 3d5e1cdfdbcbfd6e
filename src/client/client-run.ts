import type { OpenQuestionDetails } from "../protocol/extensions.ts";
import type { AwaitResume, Run } from "../protocol/run.ts";
import type { CallableAgent } from "../runtime/agent/agent-schemas.ts";
import { ClientError } from "./client-error.ts";
import type { Connection } from "./connection.ts";
import { outputIn } from "./input.ts";
import type { ClientEvent, RunView } from "./run-view.ts";
import { ViewFold } from "./run-view.ts";
import type { AnswerTo, OutputOf, QuestionOf } from "./types.ts";
import { isDetails, isEnd, isEnded, isRun, readEvent } from "./wire.ts";

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
 * import { createAcpHandler } from "cadenza/http";
 *
 * const runtime = new AgentRuntime().register("booking", async (_input, { ask }) => ask("Book it?", { name: "ok" }));
 * const handler = createAcpHandler(runtime, { extensions: true });
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
  readonly #fold = new ViewFold();
  readonly #watchers = new Set<Watcher>();
  /** Ends the reading of events for the watchers; undefined while nothing is read. */
  #stop: AbortController | undefined;
  /** What the view has taken: the number of the last event, and the position of the last detail. */
  readonly #taken = { id: 0, position: 0 };

  constructor(connection: Connection, run_id: string) {
    this.#connection = connection;
    this.run_id = run_id;
  }

  /** The run as it is now. */
  async record({ signal }: WaitingOptions = {}): Promise<Run> {
    return this.#connection.json({ method: "GET", path: this.#path(), signal }, isRun);
  }

  /**
   * Its events, until it ends. Where the connection breaks off, they go on after the last one: also when the server is
   * away, for as long as it takes.
   */
  events(options: ClientEventsOptions & { readonly detail: true }): AsyncGenerator<ClientEvent, void>;
  events(options?: ClientEventsOptions): AsyncGenerator<Extract<ClientEvent, { readonly id: number }>, void>;
  async *events({ after = 0, detail = false, signal }: ClientEventsOptions = {}): AsyncGenerator<ClientEvent, void> {
    const path = this.#path(`/events?until=end${detail ? "&detail=true" : ""}`);
    const request = { method: "GET", path, signal, isPatient: true } as const;
    let position = 0;
    for await (const event of this.#connection.stream(request, after > 0 ? `${after}` : undefined, readEvent, isEnd)) {
      if ("position" in event) {
        // After a new connection those behind the last event come again.
        if (event.position <= position) continue;
        position = event.position;
      }
      yield event;
    }
  }

  /**
   * What it has given when it has completed: the value that the agent has returned, or without an `output` schema its
   * messages. Rejects with `run_failed` or `run_cancelled` if it ends so, each with the run.
   */
  async result({ signal }: WaitingOptions = {}): Promise<OutputOf<Called>> {
    for await (const event of this.events({ signal })) if (isEnd(event)) break;
    const request = { method: "GET", path: this.#path(), signal, isPatient: true } as const;
    const run = await this.#connection.json(request, isEnded);
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
      await this.#connection.json({ method: "POST", path: this.#path("/cancel"), signal }, isRun);
    } catch (error) {
      if (!(error instanceof ClientError) || error.code !== "run_finished") throw error;
    }
  }

  /** The open questions, in the order in which they were asked. The server needs `extensions: true`. */
  async questions({ signal }: WaitingOptions = {}): Promise<readonly OpenQuestionDetails[]> {
    const path = this.#path("/details");
    return (await this.#connection.json({ method: "GET", path, signal }, isDetails)).await_requests;
  }

  /** What a page shows of the run. It is kept up to date while there are watchers. */
  get view(): RunView {
    return this.#fold.view;
  }

  /**
   * Calls back after each change of the view, until the returned function is called. `onError`: it cannot be read
   * further, and a later call of `watch` tries again.
   */
  watch(callback: () => void, onError?: (error: unknown) => void): () => void {
    const watcher: Watcher = { callback, onError };
    this.#watchers.add(watcher);
    if (this.#stop === undefined) {
      this.#stop = new AbortController();
      this.#follow(this.#stop).catch(ignore);
    }
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size > 0) return;
      this.#stop?.abort();
      this.#stop = undefined;
    };
  }

  async #follow(stop: AbortController): Promise<void> {
    const { signal } = stop;
    try {
      for await (const event of this.events({ after: this.#taken.id, detail: true, signal })) {
        if (signal.aborted) return;
        if ("position" in event) {
          if (event.position <= this.#taken.position) continue;
          this.#taken.position = event.position;
        } else this.#taken.id = event.id;
        this.#fold.take(event);
        for (const { callback } of this.#watchers) callback();
      }
    } catch (error) {
      if (signal.aborted) return;
      this.#stop = undefined;
      for (const { onError } of this.#watchers) onError?.(error);
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
    await this.#connection.json({ method: "POST", path: this.#path(), body, headers, signal }, isRun);
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

/** Who looks at the view of a run. */
interface Watcher {
  readonly callback: () => void;
  readonly onError: ((error: unknown) => void) | undefined;
}

/** A text answers as a message, and an object is the answer itself. */
function resumeOf(value: unknown): AwaitResume {
  if (typeof value !== "string") return value as AwaitResume;
  const part = { content_type: "text/plain", content: value, content_encoding: "plain" } as const;
  return { type: "message", message: { role: "user", parts: [part] } };
}

function ignore(): void {
  // The watchers have been told.
}
