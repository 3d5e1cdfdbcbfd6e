import type { AgentRuntime, Run } from "cadenza";
import { CadenzaError } from "cadenza";
import { licenceAudit } from "./agent.ts";
import type { Answers } from "./terminal.ts";

/** A run that was followed to its end, or to an interruption, and the statuses that it had meanwhile. */
export interface Followed {
  readonly run: Run;
  readonly statuses: readonly Run["status"][];
}

/** Prints a run, answers its questions, and may interrupt it. */
export interface Viewer {
  readonly answers: Answers;
  readonly print: (text: string) => void;
  /** Cancels the run. With {@link auditOn} the program only stops following it. */
  readonly signal: AbortSignal;
}

/** Audits a lock file: starts a run, prints its output, answers its questions, and follows it to its end. */
export async function audit(runtime: AgentRuntime, file: string, viewer: Viewer): Promise<Followed> {
  const { run_id } = await runtime.createRun({ agent_name: licenceAudit.name, input: file, mode: "async" });
  const cancel = (): void => void runtime.cancel(run_id).catch(ignoreFinished);
  return follow(runtime, run_id, 0, viewer, cancel);
}

/** As {@link audit}, but continues the last run if it has not ended. */
export async function auditOn(runtime: AgentRuntime, file: string, viewer: Viewer): Promise<Followed> {
  const [latest] = await runtime.listRuns({ agent_name: licenceAudit.name, limit: 1 });
  const isOpen = latest !== undefined && latest.finished_at === null;
  const { run_id } = isOpen
    ? latest
    : await runtime.createRun({ agent_name: licenceAudit.name, input: file, mode: "async" });
  viewer.print(isOpen ? `Going on with run ${run_id}.\n` : `Run ${run_id} has begun.\n`);
  return follow(runtime, run_id, await lastSeen(runtime, run_id), viewer);
}

/** The number of the run's last event. An open question does not count, so that it is asked again. */
async function lastSeen(runtime: AgentRuntime, run_id: string): Promise<number> {
  let last = 0;
  for await (const event of runtime.events(run_id, { until: "now" }))
    last = event.type === "run.awaiting" ? event.id - 1 : event.id;
  return last;
}

/** Follows a run after an event. Without `cancel` an interrupted viewer does not cancel it. */
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
    const statuses: Run["status"][] = [];
    for await (const event of events) {
      // A part with a name is an artifact. Here it is the report, which is printed at the end.
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

/** Answers the open question. If the run refuses an answer, the question is asked again. */
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

/** A run that has ended meanwhile needs no cancel. */
function ignoreFinished(error: unknown): void {
  if (!(CadenzaError.is(error) && error.code === "run_finished")) throw error;
}
