import type { AgentRuntime, Run, RunStatus } from "cadenza";
import { CadenzaError } from "cadenza";
import { licenceAudit } from "./agent.ts";
import type { Answers } from "./terminal.ts";

/** A run that has ended, or was left to go on another time, and the statuses that it went through meanwhile. */
export interface Followed {
  readonly run: Run;
  readonly statuses: readonly RunStatus[];
}

/** Where a run is shown, and what can end it before its time. */
export interface Viewer {
  readonly answers: Answers;
  readonly print: (text: string) => void;
  /** Cancels the run; one that is kept is left alone instead. */
  readonly signal: AbortSignal;
}

/** Audits a lock file: starts a run, prints what it says, answers what it asks, and follows it to its end. */
export async function audit(runtime: AgentRuntime, file: string, viewer: Viewer): Promise<Followed> {
  const { run_id } = await runtime.createRun({ agent_name: licenceAudit.name, input: file, mode: "async" });
  const cancel = (): void => void runtime.cancel(run_id).catch(ignoreFinished);
  return follow(runtime, run_id, 0, viewer, cancel);
}

/** As {@link audit}, where runs are kept: goes on with the last one, if it has not ended. */
export async function auditOn(runtime: AgentRuntime, file: string, viewer: Viewer): Promise<Followed> {
  const [latest] = await runtime.listRuns({ agent_name: licenceAudit.name, limit: 1 });
  const isOpen = latest !== undefined && latest.finished_at === null;
  const { run_id } = isOpen
    ? latest
    : await runtime.createRun({ agent_name: licenceAudit.name, input: file, mode: "async" });
  viewer.print(isOpen ? `Going on with run ${run_id}.\n` : `Run ${run_id} has begun.\n`);
  return follow(runtime, run_id, await lastSeen(runtime, run_id), viewer);
}

/** The number of the last event of a run so far, without the question that it may show. */
async function lastSeen(runtime: AgentRuntime, run_id: string): Promise<number> {
  let last = 0;
  for await (const event of runtime.events(run_id, { until: "now" }))
    last = event.type === "run.awaiting" ? event.id - 1 : event.id;
  return last;
}

/** Follows a run from an event on. Without `cancel` it is left alone when the viewer is interrupted. */
async function follow(
  runtime: AgentRuntime,
  run_id: string,
  after: number,
  viewer: Viewer,
  cancel?: () => void,
): Promise<Followed> {
  const events = runtime.events(run_id, { after, until: "end" });
  const stop = cancel ?? ((): void => void events.return?.());
  if (viewer.signal.aborted) stop();
  viewer.signal.addEventListener("abort", stop, { once: true });
  try {
    const statuses: RunStatus[] = [];
    for await (const event of events) {
      // A part with a name is an artifact: here the report, which is shown when the run is over.
      if (event.type === "message.part" && event.part.name === undefined) viewer.print(event.part.content ?? "");
      if (!("run" in event)) continue;
      statuses.push(event.run.status);
      if (event.type === "run.awaiting") await answer(runtime, event.run, viewer);
    }
    return { run: await runtime.getRun(run_id), statuses };
  } finally {
    viewer.signal.removeEventListener("abort", stop);
  }
}

/** Answers what the run asks. An answer that does not fit is refused, and the run goes on waiting for one that does. */
async function answer(runtime: AgentRuntime, { run_id, await_request }: Run, viewer: Viewer): Promise<void> {
  if (await_request === null) return;
  const { message, await_id } = await_request;
  const text = message.parts.find(({ content_type }) => content_type === "text/plain")?.content ?? "";
  const question = `The run is awaiting (${await_id}): ${text}`;
  for (let answered = false; !answered && !viewer.signal.aborted; ) {
    try {
      const await_resume = await viewer.answers.next(question, viewer.signal);
      await runtime.resume({ run_id, await_id, await_resume, mode: "async" });
      answered = true;
    } catch (error) {
      if (CadenzaError.is(error) && error.code === "answer_rejected") viewer.print(`${error.message}\n`);
      else if (!viewer.signal.aborted) throw error;
    }
  }
}

/** A run that ended in the meantime needs no cancelling. */
function ignoreFinished(error: unknown): void {
  if (!(CadenzaError.is(error) && error.code === "run_finished")) throw error;
}
