import { inBackground } from "../../core/background.ts";
import { DetailFold } from "../../core/detail.ts";
import { isNotFound } from "../../core/errors.ts";
import type { RunKey } from "../../core/ports.ts";
import type { StreamedEvent } from "../../core/project.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { RunSummary } from "../../core/record.ts";
import type { RunQuery } from "../../core/run-query.ts";
import { agentStatus, noCounters } from "../../core/statistics.ts";
import type { AgentManifest } from "../../protocol/agent.ts";
import type { Message } from "../../protocol/message.ts";
import type { Run, RunStatus } from "../../protocol/run.ts";
import { runStatusSchema } from "../../protocol/run.ts";
import {
  badArgument,
  checkCount,
  checkKey,
  checkKeys,
  checkObject,
  checkText,
  maxLengths,
  read,
  readId,
  readTime,
} from "../agent/check.ts";
import { readLabels } from "../agent/labels.ts";
import type { Registry } from "../agent/registry.ts";
import { manifestOf } from "../agent/registry.ts";
import { unlessAborted } from "../execution/unless-aborted.ts";
import type { DetailedEvent, StreamStart } from "../log/event-stream.ts";
import { EventStream } from "../log/event-stream.ts";
import { silentLogger } from "../log/system.ts";
import type { Watch, WatchedType, WatchOptions } from "../log/watch.ts";
import { ofAllUsersError } from "../log/watch.ts";
import type { Settings } from "../runs/options.ts";
import type { AgentName, EventsOptions, ListRunsQuery, RunDetails, Session } from "../runs/requests.ts";
import type { RunReader } from "../runs/run-reader.ts";
import type { Runs } from "../runs/runs.ts";
import { readSessionKey } from "./read-new-run.ts";

/** What the runs of one tenant share with all others. */
export interface ScopeParts {
  readonly settings: Settings;
  readonly registry: Registry;
  readonly runs: Runs;
  /**
   * Where forks begin. `anywhere`: of the runtime's own scopes. In a store that processes share they wait until one has room, and
   * their keys may be reserved ones. Default: `here`.
   */
  readonly forks?: "here" | "anywhere";
}

/** What can be read of the agents, and of the runs and sessions of one tenant. */
export class ScopeReads<Names extends string = never> {
  readonly #parts: ScopeParts;
  readonly #tenant: string;
  readonly #reader: RunReader;

  constructor(parts: ScopeParts, tenant: string, reader: RunReader) {
    this.#parts = parts;
    this.#tenant = tenant;
    this.#reader = reader;
  }

  /** The run as it is now. Refused with `run_not_found`. */
  async getRun(run_id: string): Promise<Run> {
    const key = keyOf(this.#tenant, run_id);
    return this.#reader.ifSeen(key, () => this.#reader.current(key));
  }

  /**
   * The facts about a run that its record has no field for, all of one moment. Refused with `run_not_found`.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const { run_id } = await runtime.createRun({ agent_name: "echo", input: "Hello", mode: "async" });
   * const { status, usage, last_event_id } = await runtime.details(run_id);
   * console.log(status, usage, last_event_id); // → created null 1
   * for await (const event of runtime.events(run_id, { after: last_event_id })) {
   *   if (event.id === last_event_id + 1) console.log(event.type); // → run.in-progress
   * }
   * ```
   */
  async details(run_id: string): Promise<RunDetails> {
    const key = keyOf(this.#tenant, run_id);
    return this.#reader.ifSeen(key, () => this.#reader.details(key));
  }

  /**
   * What was said in a run so far, in order: its input, questions, answers and output. A run need not have completed.
   * Refused with `run_not_found`. A run that completes adds the same messages to its session.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("booking", (_input, { ask }) => ask("Book it?"));
   * const { run_id } = await runtime.createRun({ agent_name: "booking", input: "Berlin to Paris" });
   * const messages = await runtime.transcript(run_id);
   * console.log(messages.map(({ parts }) => parts[0]?.content)); // → [ 'Berlin to Paris', 'Book it?' ]
   * ```
   */
  async transcript(run_id: string): Promise<readonly Message[]> {
    const key = keyOf(this.#tenant, run_id);
    return this.#reader.ifSeen(key, () => this.#reader.transcript(key));
  }

  /**
   * A page of runs, the newest first: their records without the output, or with `output: true` the whole records. The
   * next page follows `after` the last run of this one. Runs that the store cannot read are left out.
   *
   * A persistent store finds runs by their session, parent, labels, creator, status (but `completed`) and time of creation.
   * Other conditions are checked run by run: rejects with `limit_reached` where more than `limits.maxExaminedRuns` have to
   * be looked at for the page.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("refund", (_input, { ask }) => ask("Refund 40 €?"));
   * await runtime.createRun({ agent_name: "refund", input: "" }, { labels: { order: "O-17" } });
   * const [run] = await runtime.listRuns({ labels: { order: "O-17" }, status: ["in-progress", "awaiting"] });
   * console.log(run?.status); // → awaiting
   * ```
   */
  listRuns(query: ListRunsQuery & { readonly output: true }): Promise<readonly Run[]>;
  listRuns(query?: ListRunsQuery): Promise<readonly RunSummary[]>;
  async listRuns(query: ListRunsQuery = {}): Promise<readonly RunSummary[]> {
    const { store, limits } = this.#parts.settings;
    const read = { ...readRunQuery(query, this.#tenant, this.#reader.onlyOf), most: limits.maxExaminedRuns };
    await this.#parts.runs.settled(this.#tenant);
    if (read.after !== undefined && !(await this.#isSeen(read.after))) return [];
    const found = await store.list(read);
    return query.output === true ? this.#reader.records(found) : this.#reader.summaries(found);
  }

  /**
   * The run that was created with an idempotency key; undefined if no run was.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("refund", () => "Refunded.");
   * await runtime.createRun({ agent_name: "refund", input: "40 €" }, { idempotencyKey: "refund-17" });
   * const run = await runtime.findRun({ idempotencyKey: "refund-17" });
   * console.log(run?.status); // → completed
   * ```
   */
  async findRun(by: { readonly idempotencyKey: string }): Promise<Run | undefined> {
    checkObject("by", by);
    checkKeys("by", by, ["idempotencyKey"]);
    checkKey("by.idempotencyKey", by.idempotencyKey, maxLengths.idempotencyKey);
    await this.#parts.runs.settled(this.#tenant);
    const found = await this.#parts.settings.store.findByIdempotencyKey(this.#tenant, by.idempotencyKey);
    return found && (await this.#isSeen(found.key.run_id)) ? this.#reader.record(found) : undefined;
  }

  /** Whether a run exists for the user of the scope. True in a scope for which all runs of the tenant exist. */
  async #isSeen(run_id: string): Promise<boolean> {
    try {
      return await this.#reader.ifSeen({ tenant: this.#tenant, run_id }, () => true);
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  /**
   * What happened in a run: everything so far, then live, by default until the run rests. Leaving the loop detaches. The
   * first `next` rejects with `run_not_found`, and any `next` with `run_blocked`, `lost_ownership` or `runtime_closed`
   * if no event can follow here. If the store has deleted events before they are read, an `error` event ends the
   * stream.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const { run_id } = await runtime.createRun({ agent_name: "echo", input: "Hello", mode: "async" });
   * for await (const event of runtime.events(run_id, { until: "end" })) {
   *   console.log(event.id, event.type); // the ids are 1, 2, 3 and so on
   * }
   * for await (const event of runtime.events(run_id, { detail: true })) {
   *   if (event.type === "step.failed") console.log(event.name, event.attempt, event.error.message);
   * }
   * ```
   */
  events(run_id: string, options: EventsOptions & { readonly detail: true }): AsyncIterableIterator<DetailedEvent>;
  events(
    run_id: string,
    options?: EventsOptions & { readonly detail?: false | undefined },
  ): AsyncIterableIterator<StreamedEvent>;
  events(run_id: string, options?: EventsOptions): AsyncIterableIterator<DetailedEvent>;
  events(run_id: string, options: EventsOptions = {}): AsyncIterableIterator<DetailedEvent> {
    return streamOf(async () => {
      checkObject("options", options);
      checkKeys("options", options, ["after", "until", "detail"]);
      const { after = 0, until = "rest", detail = false } = options;
      checkCount("options.after", after);
      if (until !== "now" && until !== "rest" && until !== "end")
        throw badArgument("options.until", '"now", "rest" or "end"', until);
      if (typeof detail !== "boolean") throw badArgument("options.detail", "true or false", detail);
      const key = keyOf(this.#tenant, run_id);
      const source = await this.#reader.ifSeen(key, () => this.#reader.source(key));
      const details = detail ? new DetailFold(this.#parts.settings.exposeErrors) : undefined;
      // A snapshot does not hold what the details tell of open operations.
      const state = detail ? undefined : await this.#reader.stateBefore(source, after);
      return { source, after, until, details, state };
    }, this.#reader);
  }

  /**
   * What happens to all runs of the tenant, whichever process executes them: questions, their ends, and the ends of runs. Each event comes
   * at least once, also if no process watched when it was written, and the events of a run come in their order. A loop that is begun again with
   * `from`, the `position` of the last event that it has dealt with, begins behind that event, also in another process. The loop ends when the
   * `signal` is aborted or the runtime is closed, and survives failures of the store. The store has to keep a feed: see its option
   * `feed`. A first `next` rejects with `invalid_argument` if it keeps none, and any `next` with `events_lost` if the store has
   * deleted events behind `from`.
   *
   * @example
   * ```ts
   * import { AgentRuntime, MemoryStore } from "cadenza";
   *
   * const store = new MemoryStore({ feed: { keepMs: 86_400_000 } });
   * const runtime = new AgentRuntime({ store }).register("refund", (_input, { ask }) => ask("Refund 40 €?"));
   * await runtime.createRun({ agent_name: "refund", input: "" });
   * for await (const { event, run_id, position } of runtime.watch({ types: ["run.awaiting"] })) {
   *   const { await_requests } = await runtime.details(run_id);
   *   console.log(event.await_id, await_requests[0]?.message?.parts[0]?.content); // → ask#1 Refund 40 €?
   *   console.log(typeof position); // → string
   *   break;
   * }
   * ```
   */
  watch<const Type extends WatchedType = WatchedType>(options: WatchOptions<Type> = {}): Watch<Type> {
    const refusal = this.#reader.onlyOf === undefined ? undefined : ofAllUsersError();
    return this.#parts.settings.feed.watch(options, this.#tenant, refusal);
  }

  /** An agent's manifest with its live statistics. Refused with `agent_not_found`. */
  async getAgent(name: AgentName<Names>): Promise<AgentManifest> {
    checkText("name", name);
    const agent = this.#parts.registry.get(name);
    const counters = await this.#parts.settings.store.counters(name);
    return manifestOf(agent, agentStatus(counters ?? noCounters));
  }

  /** The manifests of all registered agents, with their live statistics. */
  async listAgents(): Promise<readonly AgentManifest[]> {
    return Promise.all(this.#parts.registry.all().map(({ name }) => this.getAgent(name)));
  }

  /** A session with its messages and its state. Refused with `session_not_found`. */
  async getSession(session_id: string): Promise<Session> {
    const id = readId("session_id", session_id);
    return this.#reader.session(this.#tenant, id);
  }

  /**
   * The id of the session that a `sessionKey` names, whether there is a run in it or not. Throws `invalid_argument` for an
   * invalid key.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * await runtime.createRun({ agent_name: "echo", input: "Hello" }, { sessionKey: "chat-17" });
   * const session = await runtime.getSession(runtime.sessionId("chat-17"));
   * console.log(session.id === runtime.sessionId("chat-17")); // → true
   * ```
   */
  sessionId(sessionKey: string): string {
    return readSessionKey(this.#tenant, "sessionKey", sessionKey);
  }
}

/** A stream of a run's events. If it cannot be opened, its first `next` rejects. `signal`: ends the reader's wait. */
export function streamOf(
  open: () => MaybePromise<StreamStart>,
  { streams }: RunReader,
  options: { readonly signal?: AbortSignal | undefined } = {},
): AsyncIterableIterator<StreamedEvent> {
  let opening: MaybePromise<StreamStart>;
  let signal: AbortSignal | undefined;
  try {
    opening = open();
    ({ signal } = options);
  } catch (error) {
    opening = Promise.reject(error);
  }
  // Without `details` a stream has the events of the protocol only. With them `events` says so.
  const stream = new EventStream(opening, streams) as AsyncIterableIterator<StreamedEvent> & EventStream;
  return signal === undefined ? stream : endedBy(signal, stream);
}

/** The stream until a signal says to stop reading: then `next` rejects once, with the signal's reason. */
function endedBy(
  signal: AbortSignal,
  stream: Pick<Required<AsyncIterableIterator<StreamedEvent>>, "next" | "return">,
): AsyncIterableIterator<StreamedEvent> {
  let isRead = true;
  const ended: AsyncIterableIterator<StreamedEvent> = {
    next: async () => {
      const next = stream.next();
      if (!isRead) return next;
      try {
        return await unlessAborted(next, signal);
      } catch (error) {
        isRead = false;
        inBackground(silentLogger, stream.return());
        throw error;
      }
    },
    return: () => stream.return(),
    [Symbol.asyncIterator]: () => ended,
  };
  return ended;
}

/** The key of a tenant's run. Throws `invalid_argument`. */
export function keyOf(tenant: string, runId: string): RunKey {
  return { tenant, run_id: readId("run_id", runId) };
}

const known: readonly (keyof ListRunsQuery)[] = [
  "agent_name",
  "session_id",
  "status",
  "labels",
  "parent",
  "roots",
  "after",
  "createdAfter",
  "createdBefore",
  "output",
  "limit",
  "offset",
];

/** Reads which runs to list. Throws `invalid_argument`. */
function readRunQuery(query: ListRunsQuery, tenant: string, creator: string | undefined): RunQuery {
  checkObject("query", query);
  checkKeys("query", query, known);
  const { agent_name, session_id, status, labels, parent, after, output, limit = 100, offset = 0 } = query;
  const { createdAfter, createdBefore } = query;
  const statuses = readStatuses(status);
  const isInbox = statuses !== undefined && statuses.length > 0 && statuses.every((one) => one === "awaiting");
  const { roots = isInbox && parent === undefined } = query;
  if (agent_name !== undefined) checkText("query.agent_name", agent_name);
  if (output !== undefined && typeof output !== "boolean") throw badArgument("query.output", "true or false", output);
  if (typeof roots !== "boolean") throw badArgument("query.roots", "true or false", roots);
  checkCount("query.limit", limit);
  checkCount("query.offset", offset);
  return {
    tenant,
    agent_name,
    session_id: session_id === undefined ? undefined : readId("query.session_id", session_id),
    creator,
    statuses,
    labels: readLabels("query.labels", labels),
    parents: parent === undefined ? undefined : [readId("query.parent", parent)],
    roots,
    after: after === undefined ? undefined : readId("query.after", after),
    createdAfter: createdAfter === undefined ? undefined : readTime("query.createdAfter", createdAfter),
    createdBefore: createdBefore === undefined ? undefined : readTime("query.createdBefore", createdBefore),
    limit,
    offset,
  };
}

function readStatuses(status: ListRunsQuery["status"]): readonly RunStatus[] | undefined {
  if (status === undefined) return undefined;
  if (!Array.isArray(status)) return [read("query.status", runStatusSchema, status)];
  return Array.from<unknown, RunStatus>(status, (one, index) => read(`query.status.${index}`, runStatusSchema, one));
}
