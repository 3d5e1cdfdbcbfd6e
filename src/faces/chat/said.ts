import { isNotFound } from "../../core/errors.ts";
import { sameJson } from "../../core/json.ts";
import type { RunSummary } from "../../core/record.ts";
import type { Call } from "../../http/service.ts";
import type { DetailEvent, OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { Message } from "../../protocol/message.ts";
import { questionOfCall } from "./call-ids.ts";
import { forEachEvent, runsOf } from "./chat.ts";
import { idOf } from "./parts.ts";
import { messageOf } from "./questions.ts";

/*
 * Where the messages of a page are in the logs of its chat. A page may send a message again because it has not got the
 * response, and it may take one back. What it says about the messages before that is not read.
 */

/** How many runs of a chat are listed. */
const LISTED = 50;
/** Of how many runs that have ended the logs are read for each new message: of those that ended last. */
const LOOKED_AT = 5;

/** A message of a page, in the run in which it was said. */
export interface Said {
  readonly run: RunSummary;
  readonly message: Message;
  /** What was said in the run before it. */
  readonly before: readonly Message[];
}

/**
 * The newest run of a chat in which a message was said. A message that a page sends again began or answered a run that is
 * open, or has ended a short while ago. `open` are the open runs, as they were listed before this call.
 */
export async function findSaid(
  call: Call,
  session_id: string,
  open: readonly RunSummary[],
  id: string,
): Promise<Said | undefined> {
  for (const run of await lateRuns(call, session_id, open)) {
    const said = await saidInRun(call, run, id);
    if (said !== undefined) return said;
  }
  return undefined;
}

/** The open runs of a chat, and those that ended last. */
export async function lateRuns(
  call: Call,
  session_id: string,
  open: readonly RunSummary[],
): Promise<readonly RunSummary[]> {
  const ended = await runsOf(call, session_id, { status: ["completed", "failed", "cancelled"], limit: LISTED });
  return [...open, ...ended.toSorted((a, b) => endOf(b) - endOf(a)).slice(0, LOOKED_AT)];
}

/** A message in a run. Undefined: it was not said there. */
export async function saidInRun(call: Call, run: RunSummary, id: string): Promise<Said | undefined> {
  return saidIn(await transcriptOf(call, run), run, id);
}

/** Whether a message says the same as one that was said under its id. */
export function saysTheSame(said: Said, { parts }: Message): boolean {
  return sameJson(said.message.parts, parts);
}

/** Whether the message has begun its run, and answered no question. */
export function hasBegun({ before }: Said): boolean {
  return before.every(({ role }) => role === "user");
}

/**
 * What a chat held before a message, of the user or of the assistant: what its session has before it or, if its run has
 * not completed, what the session had before the run, and the run before the message. Undefined: the chat never had it.
 */
export async function heldBefore(
  call: Call,
  session_id: string,
  history: readonly Message[],
  id: string,
): Promise<readonly Message[] | undefined> {
  const at = history.findLastIndex((message) => isSaid(message, id));
  if (at !== -1) return history.slice(0, at);
  let before = history;
  for (const run of await runsOf(call, session_id, { limit: LISTED })) {
    const transcript = await transcriptOf(call, run);
    if (endsWith(before, transcript)) before = before.slice(0, before.length - transcript.length);
    const begins = await beginOf(call, run, transcript, id);
    if (begins !== -1) return [...before, ...transcript.slice(0, begins)];
  }
  return undefined;
}

/**
 * Where a message begins in the transcript of a run; -1 if it is not there. The first message of the assistant in a run
 * has the run's id, and one that follows an answer in words has the id of the question.
 */
async function beginOf(call: Call, run: RunSummary, transcript: readonly Message[], id: string): Promise<number> {
  const { run_id } = run;
  if (id === run_id) {
    const begins = transcript.findIndex(({ role }) => role !== "user");
    return begins === -1 ? transcript.length : begins;
  }
  const question = questionOfCall(id);
  if (question?.run_id !== run_id) return transcript.findLastIndex((message) => isSaid(message, id));
  const past = (await pastQuestions(call, run_id)).find(({ settled }) => settled.await_id === question.await_id);
  const answer = messageOf(past?.settled.answer);
  const said = answer && idOf(answer);
  return said === undefined ? -1 : transcript.findLastIndex((message) => isSaid(message, said)) + 1 || -1;
}

/** Whether a session ends with what was said in a run. */
export function endsWith(history: readonly Message[], transcript: readonly Message[]): boolean {
  if (transcript.length === 0 || history.length < transcript.length) return false;
  return sameJson(history.slice(history.length - transcript.length), transcript);
}

type Settled = Extract<DetailEvent, { readonly type: "question.settled" }>;

/** A question that is not open any more. */
export interface PastQuestion {
  readonly question: OpenQuestionDetails;
  readonly settled: Settled;
  /** The number of the event before it was settled. */
  readonly after: number;
  /** The questions that were open by then. */
  readonly questions: readonly OpenQuestionDetails[];
}

/** The questions of a run that are not open any more, in the order in which they were settled. */
export async function pastQuestions(call: Call, run_id: string): Promise<readonly PastQuestion[]> {
  const open = new Map<string, OpenQuestionDetails>();
  const past: PastQuestion[] = [];
  let after = 0;
  await forEachEvent(call, run_id, (event) => {
    if (event.type === "question.asked") open.set(event.question.await_id, event.question);
    if (event.type === "question.settled") {
      const question = open.get(event.await_id);
      if (question !== undefined) past.push({ question, settled: event, after, questions: [...open.values()] });
      open.delete(event.await_id);
    }
    if (event.type !== "error" && "id" in event) after = event.id;
  });
  return past;
}

/** The question that a message of a page has answered. */
export async function answeredBy(call: Call, { run, message }: Said): Promise<PastQuestion | undefined> {
  const id = idOf(message);
  return (await pastQuestions(call, run.run_id)).findLast(({ settled }) => {
    const answer = messageOf(settled.answer);
    return answer !== undefined && idOf(answer) === id;
  });
}

function saidIn(transcript: readonly Message[], run: RunSummary, id: string): Said | undefined {
  const at = transcript.findLastIndex((message) => isSaid(message, id));
  const message = transcript[at];
  return message && { run, message, before: transcript.slice(0, at) };
}

function isSaid(message: Message, id: string): boolean {
  return message.role === "user" && idOf(message) === id;
}

async function transcriptOf({ caller }: Call, { run_id }: RunSummary): Promise<readonly Message[]> {
  try {
    return await caller.scope.transcript(run_id);
  } catch (error) {
    // It was deleted meanwhile.
    if (isNotFound(error)) return [];
    throw error;
  }
}

function endOf({ finished_at }: RunSummary): number {
  return finished_at === null ? 0 : Date.parse(finished_at);
}
