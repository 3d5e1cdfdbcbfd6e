import type { OpenQuestionDetails } from "../protocol/extensions.ts";
import type { Message } from "../protocol/message.ts";
import { jsonPart } from "../protocol/message.ts";
import type { AwaitRequest, AwaitResume, Run, RunStatus } from "../protocol/run.ts";
import { isMessageResume } from "../protocol/run.ts";
import type { AwaitedEntry, ContinuedEntry, CreatedEntry, ForkOrigin } from "./log.ts";
import { askingAgent } from "./operation-keys.ts";
import { agentRole } from "./role.ts";
import type { OutputMessage, RunState } from "./state.ts";
import { createdEntry, EARLIER, isOpen, openQuestions, replyTo } from "./state.ts";
import { isoTime } from "./time.ts";

/** What a fork is a fork of, and who has made it; null for no fork. */
export function originRecord({ origin }: CreatedEntry): Required<ForkOrigin> | null {
  return origin === undefined ? null : { ...origin, by: origin.by ?? null };
}

/** A run in a list: its record without the output. */
export type RunSummary = Omit<Run, "output">;

/** The run as the protocol shows it: a snapshot that later entries do not change. */
export function runRecord(state: RunState): Run {
  const created = createdEntry(state);
  // The status says which fields are null: `evolve` keeps it so.
  return {
    agent_name: created.agent_name,
    session_id: created.session_id,
    run_id: state.run_id,
    status: state.status,
    await_request: state.question === null ? null : awaitRequest(state, state.question.asked),
    output: outputRecord(state),
    error: state.ended?.error ?? null,
    created_at: isoTime(created.at),
    finished_at: state.ended === null ? null : isoTime(state.ended.at),
  } as Run;
}

/** The record of a run that waits for no answer and has not failed, without its output. */
export function runSummary(
  created: CreatedEntry,
  run_id: string,
  status: RunStatus,
  finishedAt: number | null,
): RunSummary {
  return {
    agent_name: created.agent_name,
    session_id: created.session_id,
    run_id,
    status,
    await_request: null,
    error: null,
    created_at: isoTime(created.at),
    finished_at: finishedAt === null ? null : isoTime(finishedAt),
  };
}

/** The record of a run directly after a reply: the run goes on before it shows the next open question. */
export function goingOn(record: Run): Run {
  return record.status === "awaiting" ? { ...record, status: "in-progress", await_request: null } : record;
}

/** A question as the protocol shows it. */
export function awaitRequest(state: RunState, asked: AwaitedEntry): AwaitRequest {
  const { at, await_id, parts, deadline } = asked;
  const time = isoTime(at);
  const role = agentRole(asked.of === undefined ? createdEntry(state).agent_name : askingAgent(await_id));
  const message: Message = { role, parts, created_at: time, completed_at: time };
  const request: AwaitRequest = { type: "message", message, await_id };
  return deadline === undefined ? request : { ...request, expires_at: isoTime(deadline) };
}

/** A question as the details of a run show it. */
export function questionRecord(state: RunState, asked: AwaitedEntry): OpenQuestionDetails {
  const { message, expires_at = null } = awaitRequest(state, asked);
  const { await_id, name = null, kind = "input", of = null } = asked;
  return { await_id, name, kind, message, expires_at, of };
}

/** A message of the output as it is now. A complete message is shared, since nothing changes it any more. */
export function messageRecord(message: OutputMessage): Message {
  if (message.completed_at !== null) return message as Message;
  return { role: message.role, parts: [...message.parts], created_at: message.created_at, completed_at: null };
}

/**
 * What was said in a run so far: the input, questions, answers and output, in order of time. A run that completes adds
 * this to its session. A caller's message without a time gets the time at which it arrived. Of a later generation: what was
 * said in it.
 */
export function transcript(state: RunState): Message[] {
  const { input, at } = createdEntry(state);
  const messages = state.generation === null ? input.map((message) => stamped(message, at)) : [];
  // Questions that were open side by side may have been settled in another order than that in which they were asked.
  const exchanges = [...(state.exchanges ?? []), ...openQuestions(state)]
    .filter(({ after }) => after !== EARLIER)
    .sort((a, b) => a.position - b.position);
  let next = 0;
  for (let index = 0; index <= state.output.length; index++) {
    for (
      let exchange = exchanges[next];
      exchange !== undefined && exchange.after === index;
      exchange = exchanges[++next]
    ) {
      messages.push(awaitRequest(state, exchange.asked).message);
      const reply = replyTo(exchange);
      if (reply !== undefined && "answer" in reply)
        messages.push(stamped(answerMessage(reply.answer), exchange.settled?.at ?? exchange.asked.at));
    }
    const message = state.output[index];
    if (message !== undefined) messages.push(messageRecord(message));
  }
  return messages;
}

/** What was said in a generation up to its end. The message that is open then is completed. */
export function saidUntil(state: RunState, { at }: ContinuedEntry): readonly Message[] {
  const completed_at = isoTime(at);
  return transcript(state).map((message) => (message.completed_at === null ? { ...message, completed_at } : message));
}

/** An answer as a message. An answer that is an object of its own becomes a JSON part. */
export function answerMessage(answer: AwaitResume): Message {
  if (isMessageResume(answer)) return answer.message;
  return { role: "user", parts: [jsonPart(answer)] };
}

function stamped(message: Message, at: number): Message {
  const { created_at, completed_at } = message;
  if (created_at !== undefined && completed_at != null) return message;
  const time = isoTime(at);
  return { ...message, created_at: created_at ?? completed_at ?? time, completed_at: completed_at ?? time };
}

function outputRecord(state: RunState): readonly Message[] {
  if (!isOpen(state)) return state.output.slice() as Message[];
  return state.output.map(messageRecord);
}
