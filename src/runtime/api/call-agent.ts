import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import { outcomeOf } from "../agent/agent-context.ts";
import type { CallableAgent } from "../agent/agent-schemas.ts";
import { inputFor } from "../agent/agent-schemas.ts";
import { resumeOf } from "../agent/answer.ts";
import { checkFunction, checkObject } from "../agent/check.ts";
import type { SchemaHost } from "../agent/standard-schema.ts";
import { unlessAborted } from "../execution/unless-aborted.ts";
import type { DetailedEvent } from "../log/event-stream.ts";
import type { CreateRunOptions, CreateRunRequest, EventsOptions, ResumeRequest, RunDetails } from "../runs/requests.ts";

/** The options of `call`: the options of `createRun`, and who answers. */
export interface CallOptions extends CreateRunOptions {
  /**
   * Called once for each question of the run, also for several that are open at once. It gives the answer as a JSON
   * value, `question.decline(reason)` to decline, or undefined to leave the question open. The call rejects with what it
   * throws, and with `answer_rejected` for an answer that does not match; the run then continues to wait. Default: the
   * call waits until the questions are answered elsewhere.
   */
  readonly onQuestion?: OnQuestion | undefined;
}

type OnQuestion = (question: AskedOfCaller) => MaybePromise<JsonValue | Declining | undefined>;

/** An open question of the run that is called. */
export interface AskedOfCaller extends OpenQuestionDetails {
  readonly run_id: string;
  /** Makes the reply that declines to answer. */
  readonly decline: (reason?: string) => Declining;
}

/** A reply that declines to answer. */
export class Declining {
  readonly reason: string | undefined;

  constructor(reason: string | undefined) {
    this.reason = reason;
  }
}

/** What a call needs from the scope in which it is made. */
export interface CallHost {
  createRun(request: CreateRunRequest & { readonly mode: "async" }, options: CreateRunOptions): Promise<Run>;
  getRun(run_id: string): Promise<Run>;
  details(run_id: string): Promise<RunDetails>;
  events(run_id: string, options: EventsOptions): AsyncIterableIterator<DetailedEvent>;
  resume(request: ResumeRequest & { readonly mode: "async" }): Promise<Run>;
}

/** Creates a run of an agent, and gives its output when it has completed. */
export async function callAgent(
  host: CallHost,
  agent: CallableAgent,
  input: unknown,
  { onQuestion, ...options }: CallOptions,
  schemaHost: SchemaHost,
): Promise<unknown> {
  checkObject("agent", agent);
  if (onQuestion !== undefined) checkFunction("options.onQuestion", onQuestion);
  const request = { agent_name: agent.name, input: inputFor(agent, input), mode: "async" } as const;
  const { run_id } = await host.createRun(request, options);
  // Questions are details. Where the caller answers none, nothing but the end is looked for.
  const events = host.events(run_id, { until: "end", detail: onQuestion !== undefined });
  try {
    await unlessAborted(answering(host, run_id, events, onQuestion), options.signal);
  } finally {
    if (events.return !== undefined) inBackground(schemaHost.logger, events.return());
  }
  return outcomeOf(agent, await host.getRun(run_id), schemaHost);
}

/** Answers the questions of a run until it has ended. Rejects if a question cannot be answered. */
function answering(
  host: CallHost,
  run_id: string,
  events: AsyncIterable<DetailedEvent>,
  onQuestion: OnQuestion | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const follow = async (): Promise<void> => {
      for await (const event of events)
        if (event.type === "question.asked" && onQuestion !== undefined)
          answer(host, run_id, event.question.await_id, onQuestion).catch(reject);
    };
    follow().then(resolve, reject);
  });
}

async function answer(host: CallHost, run_id: string, await_id: string, onQuestion: OnQuestion): Promise<void> {
  const { await_requests } = await host.details(run_id);
  const question = await_requests.find((open) => open.await_id === await_id);
  if (question === undefined) return;
  const reply = await onQuestion({ ...question, run_id, decline: (reason) => new Declining(reason) });
  if (reply === undefined) return;
  const given = reply instanceof Declining ? { decline: { reason: reply.reason } } : { await_resume: resumeOf(reply) };
  try {
    await host.resume({ run_id, await_id, mode: "async", ...given });
  } catch (error) {
    if (!CadenzaError.is(error) || !settled.includes(error.code)) throw error;
  }
}

/** The refusals of an answer to a question that was settled meanwhile. */
const settled: readonly string[] = ["not_awaiting", "answer_conflict", "run_cancelling", "run_finished"];
