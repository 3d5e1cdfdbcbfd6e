import { CadenzaError } from "../../core/errors.ts";
import type { RunSummary } from "../../core/record.ts";
import { readJson } from "../../http/body.ts";
import { createRunFor, resumeFor } from "../../http/claims.ts";
import { unfitAt } from "../../http/errors.ts";
import { streamHeaders } from "../../http/event-stream.ts";
import type { Call } from "../../http/service.ts";
import { takeBody } from "../../http/service.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { Run } from "../../protocol/run.ts";
import { cancelRuns, checkChat, detailsIn, keyOf, noContentHeaders, openRuns } from "../chat/chat.ts";
import { ItemFormat, itemText } from "../chat/item-format.ts";
import { replyOf, toolOf } from "../chat/questions.ts";
import type { RunResponse } from "../chat/run-response.ts";
import { respond } from "../chat/run-response.ts";
import { lateRuns, pastQuestions, saidInRun, saysTheSame } from "../chat/said.ts";
import { seenEvents, seenRuns } from "../chat/seen-runs.ts";
import type { AgUiEvent } from "./events.ts";
import { newMessages } from "./given-messages.ts";
import type { GivenMessage, ResumeEntry, RunInput } from "./run-input.ts";
import { readRunInput } from "./run-input.ts";
import type { SegmentStart } from "./segment.ts";
import { Segment, startOf } from "./segment.ts";
import { ThreadMessages } from "./snapshot.ts";

/** `POST /{name}`: messages of the user begin a run, and replies to interrupts let one go on. */
export async function postRun(call: Call): Promise<WireResponse> {
  const { limits } = call.service.settings;
  const input = readRunInput(readJson(await takeBody(call), limits), limits);
  const session_id = await checkChat(call, input.threadId);
  return respond(call, async () => {
    try {
      return await (input.resume.length > 0 ? resumeRun(call, session_id, input) : beginRun(call, session_id, input));
    } catch (error) {
      if (!CadenzaError.is(error) || !refusals.has(error.code)) throw error;
      return refused(input, error.message, error.code);
    }
  });
}

/** `GET /{name}?threadId=`: what was said in a thread, and its run that is open or has not completed, from its start. */
export async function followThread(call: Call): Promise<WireResponse> {
  const threadId = threadOf(call);
  const session_id = await checkChat(call, threadId);
  const { history, runs } = await seenRuns(call, session_id);
  const thread = new ThreadMessages();
  thread.addSession(history, session_id);
  const last = runs.at(-1);
  const run_id = last?.run_id;
  const runId = new URLSearchParams(call.query).get("runId") ?? run_id ?? threadId;
  for (const run of runs) {
    thread.addSession(run.inputs, run.run_id);
    if (!run.isInSession) break;
    const segment = new Segment({ threadId, runId, run_id: run.run_id });
    for (const event of await seenEvents(call, run.run_id)) for (const item of segment.take(event)) thread.take(item);
    thread.state = segment.state ?? thread.state;
  }
  const start = { threadId, runId, run_id, before: thread.messages, state: thread.state };
  if (last === undefined || last.isInSession) return streamed(new Segment(start).end());
  return respond(call, async () => responseOf({ ...start, run_id: last.run_id }, false));
}

/** `DELETE /{name}?threadId=`: stops the open runs of a thread. */
export async function stopThread(call: Call): Promise<WireResponse> {
  await cancelRuns(call, await openRuns(call, await checkChat(call, threadOf(call))));
  return { status: 204, headers: noContentHeaders, body: "" };
}

/** What the client is told in a stream. Anything else has a status of its own. */
const refusals: ReadonlySet<string> = new Set([
  ...["answer_rejected", "answer_conflict", "idempotency_conflict"],
  ...["not_awaiting", "run_cancelling", "run_finished"],
]);

/** Why a question is not open any more. */
const tooLate: ReadonlySet<string> = new Set(["answer_conflict", "not_awaiting", "run_cancelling", "run_finished"]);

/** A message that was sent before, under whatever `runId`, has begun its run already. */
async function beginRun(call: Call, session_id: string, input: RunInput): Promise<RunResponse | WireResponse> {
  const { threadId, runId, messages, handed, clientTools } = input;
  const { caller, parameter: agent_name } = call;
  const last = messages.at(-1) as GivenMessage;
  const idempotencyKey = keyOf(threadId, last.id) ?? keyOf(threadId, "run", runId);
  const known = idempotencyKey && (await caller.scope.findRun({ idempotencyKey }));
  if (known) {
    const run_id = await repeated(call, session_id, known, last);
    return responseOf({ threadId, runId, run_id, clientTools }, true);
  }
  const runs = await openRuns(call, session_id);
  const [open] = runs;
  const { await_requests = [] } = open?.status === "awaiting" ? await caller.scope.details(open.run_id) : {};
  const replies = repliesOf(input, open?.run_id ?? "", await_requests);
  const resume = replies.length > 0 ? replies : await repliedBefore(call, session_id, runs, input);
  if (resume.length > 0) return resumeRun(call, session_id, { ...input, resume });
  if (await_requests.length > 0) return uncovered(input);
  const { run_id } = await createRunFor(
    caller,
    { agent_name, input: await newMessages(call, session_id, messages), mode: "async" },
    { sessionKey: threadId, metadata: handed, idempotencyKey },
  );
  return responseOf({ threadId, runId, run_id, clientTools }, true);
}

/** The results of the client's tools, as replies to the questions for them. */
function repliesOf(
  { messages }: RunInput,
  run_id: string,
  questions: readonly OpenQuestionDetails[],
): readonly ResumeEntry[] {
  return questions.flatMap((question): ResumeEntry[] => {
    const tool = question.kind === "input" ? toolOf(question) : undefined;
    const given = messages.findLast(({ callId, result }) => callId === tool?.id && result !== undefined);
    const result = given?.result;
    if (tool === undefined || result === undefined) return [];
    return [{ run_id, await_id: question.await_id, isCancelled: false, reply: replyOf(result) }];
  });
}

/** The results of the client's tools that were sent before, as the replies that they were then. */
async function repliedBefore(
  call: Call,
  session_id: string,
  open: readonly RunSummary[],
  input: RunInput,
): Promise<readonly ResumeEntry[]> {
  if (input.messages.at(-1)?.callId === undefined) return [];
  for (const { run_id } of await lateRuns(call, session_id, open)) {
    const questions = (await pastQuestions(call, run_id)).map(({ question }) => question);
    const replies = repliesOf(input, run_id, questions);
    if (replies.length > 0) return replies;
  }
  return [];
}

/** The id of the run that a message has begun. Refuses another message under the same id. */
async function repeated(call: Call, session_id: string, run: Run, { id, message }: GivenMessage): Promise<string> {
  const { run_id } = run;
  const isHere = run.session_id === session_id && run.agent_name === call.parameter;
  const said = isHere ? await saidInRun(call, run, id) : undefined;
  if (said !== undefined && saysTheSame(said, message)) return run_id;
  throw new CadenzaError("idempotency_conflict", "Another message was sent under this id before.", { run_id });
}

async function resumeRun(call: Call, session_id: string, input: RunInput): Promise<RunResponse | WireResponse> {
  const { threadId, runId, resume, clientTools } = input;
  const [{ run_id }] = resume as readonly [ResumeEntry];
  if (resume.some((entry) => entry.run_id !== run_id)) throw unfitAt(["resume"], "expected interrupts of one run");
  const { await_requests } = await detailsIn(call, session_id, run_id);
  const resumed = new Set(resume.map(({ await_id }) => await_id));
  // Replies to questions that are not open any more were sent before, and are followed.
  const covered = await_requests.filter(({ await_id }) => resumed.has(await_id));
  if (covered.length > 0 && covered.length < await_requests.length) return uncovered(input);
  for (const { await_id, reply, isCancelled } of resume) {
    try {
      await resumeFor(call.caller, { ...reply, run_id, await_id, mode: "async" });
    } catch (error) {
      // What a client cancels may have expired. It is told what became of the run.
      if (!isCancelled || !CadenzaError.is(error) || !tooLate.has(error.code)) throw error;
    }
  }
  return responseOf({ threadId, runId, run_id, resumed, clientTools }, true);
}

function responseOf(start: SegmentStart & { readonly run_id: string }, isMine: boolean): RunResponse {
  const format = new ItemFormat(new Segment(start), "");
  return { run_id: start.run_id, after: 0, format, headers: {}, isMine };
}

function uncovered(input: RunInput): WireResponse {
  return refused(input, "The thread waits for answers: resume has to cover all of its interrupts.", "interrupts_open");
}

function refused({ threadId, runId }: RunInput, message: string, code: string): WireResponse {
  return streamed([startOf({ threadId, runId, run_id: undefined }), { type: "RUN_ERROR", message, code }]);
}

function streamed(events: readonly AgUiEvent[]): WireResponse {
  return { status: 200, headers: streamHeaders, body: itemText(events) };
}

function threadOf({ query }: Call): string {
  const threadId = new URLSearchParams(query).get("threadId");
  if (threadId === null) throw unfitAt(["threadId"], "expected the id of the thread");
  return threadId;
}
