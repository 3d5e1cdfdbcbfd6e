import { CadenzaError } from "../../core/errors.ts";
import type { RunSummary } from "../../core/record.ts";
import { readJson } from "../../http/body.ts";
import { checkMayWrite } from "../../http/caller.ts";
import { createRunFor, resumeFor } from "../../http/claims.ts";
import { unfitAt } from "../../http/errors.ts";
import { streamHeaders } from "../../http/event-stream.ts";
import type { Call } from "../../http/service.ts";
import { takeBody } from "../../http/service.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { Run } from "../../protocol/run.ts";
import {
  admitTalk,
  cancelRuns,
  checkChat,
  detailsIn,
  inChat,
  keyOf,
  noContentHeaders,
  openRuns,
} from "../chat/chat.ts";
import { ItemFormat, itemText } from "../chat/item-format.ts";
import { idOf } from "../chat/parts.ts";
import { giveAll, isTooLate, toolOf } from "../chat/questions.ts";
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
export async function postRun(given: Call): Promise<WireResponse> {
  const { limits } = given.service.settings;
  const input = readRunInput(readJson(await takeBody(given), limits), limits);
  const session_id = await checkChat(given, input.threadId);
  const call = inChat(given, input.threadId, session_id);
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
  const query = new URLSearchParams(call.query);
  const runId = query.get("runId") ?? run_id ?? threadId;
  for (const run of runs) {
    thread.addSession(run.inputs, run.run_id);
    if (!run.isInSession) break;
    const segment = new Segment({ threadId, runId, run_id: run.run_id });
    for (const event of await seenEvents(call, run.run_id)) for (const item of segment.take(event)) thread.take(item);
    thread.state = segment.state ?? thread.state;
  }
  const start = {
    ...{ threadId, runId, run_id, before: thread.messages, state: thread.state },
    ...{ clientTools: new Set(query.getAll("tool")), isVersioned: query.has("protocolVersion") },
  };
  if (last === undefined || last.isInSession) return streamed(new Segment(start).end());
  return respond(call, async () => responseOf({ ...start, run_id: last.run_id }, false));
}

/** `DELETE /{name}?threadId=`: stops the open runs of a thread. */
export async function stopThread(call: Call): Promise<WireResponse> {
  const session_id = await checkChat(call, threadOf(call));
  checkMayWrite(call.caller);
  await cancelRuns(call, await openRuns(call, session_id));
  return { status: 204, headers: noContentHeaders, body: "" };
}

/** What the client is told in a stream. Anything else has a status of its own. */
const refusals: ReadonlySet<string> = new Set([
  ...["answer_rejected", "answer_conflict", "idempotency_conflict"],
  ...["not_awaiting", "run_cancelling", "run_finished"],
]);

/** A message that was sent before, under whatever `runId`, has begun its run already. */
async function beginRun(call: Call, session_id: string, input: RunInput): Promise<RunResponse | WireResponse> {
  const { threadId, runId, messages, handed, clientTools, isVersioned } = input;
  const { caller, parameter: agent_name } = call;
  const last = messages.at(-1);
  const idempotencyKey = keyOf(threadId, last?.id ?? "") ?? keyOf(threadId, "run", runId);
  const known = last && idempotencyKey && (await caller.scope.findRun({ idempotencyKey }));
  if (known) {
    const run_id = await repeated(call, session_id, known, last);
    return responseOf({ threadId, runId, run_id, clientTools, isVersioned }, true);
  }
  const runs = await openRuns(call, session_id);
  const [open] = runs;
  const { await_requests = [] } = open?.status === "awaiting" ? await caller.scope.details(open.run_id) : {};
  const replies = open === undefined ? [] : await repliesOf(call, open.run_id, await_requests, input);
  const resume = replies.length > 0 ? replies : await repliedBefore(call, session_id, runs, input);
  const begin = async (said: readonly GivenMessage[]): Promise<string> => {
    const input = await newMessages(call, session_id, said);
    const options = { sessionKey: threadId, metadata: handed, idempotencyKey };
    return (await createRunFor((await admitTalk(call)).caller, { agent_name, input, mode: "async" }, options)).run_id;
  };
  if (resume.length === 0) {
    if (await_requests.length > 0) return uncovered(input);
    return responseOf({ threadId, runId, run_id: await begin(messages), clientTools, isVersioned }, true);
  }
  const response = await resumeRun(call, session_id, { ...input, resume });
  const words = messages.filter(({ callId }) => callId === undefined);
  if (words.length === 0 || "status" in response) return response;
  const { run_id: resumed, segment } = response;
  // What the user says beside the results begins a run of its own, which has what comes of the results in its session.
  const goOn: RunResponse["goOn"] = async () => {
    if ((await caller.scope.getRun(resumed)).status === "awaiting") return undefined;
    const run_id = await begin(words);
    segment.goOn(run_id);
    return { run_id };
  };
  return { ...response, goOn };
}

/** The results of the client's tools that were given since a run began, as replies to its questions for them. */
async function repliesOf(
  { caller }: Call,
  run_id: string,
  questions: readonly OpenQuestionDetails[],
  { results, places, messages }: RunInput,
): Promise<readonly ResumeEntry[]> {
  if (results.length === 0 || questions.length === 0) return [];
  const transcript = await caller.scope.transcript(run_id);
  const answered = transcript.findIndex(({ role }) => role !== "user");
  const inputs = answered === -1 ? transcript : transcript.slice(0, answered);
  // An earlier run may have called a tool under the same id.
  const begun = Math.max(-1, ...inputs.map((message) => places.get(idOf(message) ?? "") ?? -1));
  const hasWords = messages.some(({ callId }) => callId === undefined);
  return questions.flatMap((question): ResumeEntry[] => {
    const tool = question.kind === "input" ? toolOf(question) : undefined;
    const given = results.findLast(({ callId, place }) => callId === tool?.id && place > begun);
    if (given === undefined) return [];
    const { reply, refusal, isError } = given;
    // A user who goes on expects no other result.
    const otherwise = isError || hasWords ? refusal : undefined;
    return [{ run_id, await_id: question.await_id, isCancelled: false, reply, otherwise }];
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
    const replies = await repliesOf(call, run_id, questions, input);
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

async function resumeRun(call: Call, session_id: string, input: RunInput): Promise<SegmentResponse | WireResponse> {
  const { threadId, runId, resume, clientTools, isVersioned } = input;
  const [{ run_id }] = resume as readonly [ResumeEntry];
  if (resume.some((entry) => entry.run_id !== run_id)) throw unfitAt(["resume"], "expected interrupts of one run");
  const { await_requests } = await detailsIn(call, session_id, run_id);
  const resumed = new Set(resume.map(({ await_id }) => await_id));
  // Replies to questions that are not open any more were sent before, and are followed.
  const covered = await_requests.filter(({ await_id }) => resumed.has(await_id));
  if (covered.length > 0 && covered.length < await_requests.length) return uncovered(input);
  await giveAll(resume, async (entry) => {
    try {
      await give(call, entry);
    } catch (error) {
      // What a client cancels may have expired. It is told what became of the run.
      if (!entry.isCancelled || !isTooLate(error)) throw error;
    }
  });
  return responseOf({ threadId, runId, run_id, resumed, clientTools, isVersioned }, true);
}

async function give({ caller }: Call, { run_id, await_id, reply, otherwise }: ResumeEntry): Promise<void> {
  try {
    await resumeFor(caller, { ...reply, run_id, await_id, mode: "async" });
  } catch (error) {
    if (otherwise === undefined || !CadenzaError.is(error) || !unfit.has(error.code)) throw error;
    await resumeFor(caller, { ...otherwise, run_id, await_id, mode: "async" });
  }
}

/** The reply is no answer to the question, or not the one that it has got. */
const unfit: ReadonlySet<string> = new Set(["answer_rejected", "answer_conflict"]);

type SegmentResponse = RunResponse & { readonly segment: Segment };

function responseOf(start: SegmentStart & { readonly run_id: string }, isMine: boolean): SegmentResponse {
  const segment = new Segment(start);
  return { run_id: start.run_id, after: 0, format: new ItemFormat(segment, ""), headers: {}, isMine, segment };
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
