import { CadenzaError } from "../../core/errors.ts";
import { readJson } from "../../http/body.ts";
import { createRunFor, resumeFor } from "../../http/claims.ts";
import { unfitAt } from "../../http/errors.ts";
import { streamHeaders } from "../../http/event-stream.ts";
import type { Call } from "../../http/service.ts";
import { takeBody } from "../../http/service.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { cancelOpenRuns, checkChat, detailsIn, keyOf, noContentHeaders, openRun } from "../chat/chat.ts";
import { ItemFormat, itemText } from "../chat/item-format.ts";
import { replyOf, toolOf } from "../chat/questions.ts";
import type { RunResponse } from "../chat/run-response.ts";
import { respond } from "../chat/run-response.ts";
import { seenEvents, seenRuns } from "../chat/seen-runs.ts";
import type { AgUiEvent } from "./events.ts";
import type { ResumeEntry, RunInput } from "./run-input.ts";
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
  await cancelOpenRuns(call, await checkChat(call, threadOf(call)));
  return { status: 204, headers: noContentHeaders, body: "" };
}

/** What the client is told in a stream. Anything else has a status of its own. */
const refusals: ReadonlySet<string> = new Set([
  ...["answer_rejected", "answer_conflict", "idempotency_conflict"],
  ...["not_awaiting", "run_cancelling", "run_finished"],
]);

/** Why a question is not open any more. */
const tooLate: ReadonlySet<string> = new Set(["answer_conflict", "not_awaiting", "run_cancelling", "run_finished"]);

async function beginRun(call: Call, session_id: string, input: RunInput): Promise<RunResponse | WireResponse> {
  const { threadId, runId, messages, handed, clientTools } = input;
  const { caller, parameter: agent_name } = call;
  const open = await openRun(call, session_id);
  if (open?.status === "awaiting") {
    const { metadata, await_requests } = await caller.scope.details(open.run_id);
    // A client may send the same again.
    const isSame = isJsonObject(metadata) && metadata["runId"] === runId;
    const resume = isSame ? [] : repliesOf(input, open.run_id, await_requests);
    if (resume.length > 0) return resumeRun(call, session_id, { ...input, resume });
    if (!isSame && await_requests.length > 0) return uncovered(input);
  }
  const { run_id } = await createRunFor(
    caller,
    { agent_name, input: messages, mode: "async" },
    { sessionKey: threadId, metadata: handed, idempotencyKey: keyOf(threadId, runId) },
  );
  return responseOf({ threadId, runId, run_id, clientTools }, true);
}

/** The results of the client's tools, as replies to the questions for them. */
function repliesOf(
  { results }: RunInput,
  run_id: string,
  questions: readonly OpenQuestionDetails[],
): readonly ResumeEntry[] {
  return questions.flatMap((question): ResumeEntry[] => {
    const tool = question.kind === "input" ? toolOf(question) : undefined;
    const result = tool && results.get(tool.id);
    if (result === undefined) return [];
    return [{ run_id, await_id: question.await_id, isCancelled: false, reply: replyOf(result) }];
  });
}

async function resumeRun(call: Call, session_id: string, input: RunInput): Promise<RunResponse | WireResponse> {
  const { threadId, runId, resume, clientTools } = input;
  const [{ run_id }] = resume as readonly [ResumeEntry];
  if (resume.some((entry) => entry.run_id !== run_id)) throw unfitAt(["resume"], "expected interrupts of one run");
  const { await_requests } = await detailsIn(call, session_id, run_id);
  const resumed = new Set(resume.map(({ await_id }) => await_id));
  if (await_requests.some(({ await_id }) => !resumed.has(await_id))) return uncovered(input);
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
