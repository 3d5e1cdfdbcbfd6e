import { visibleEvents } from "../../../http/event-stream.ts";
import { findVisibleSession } from "../../../http/visibility.ts";
import type { Message } from "../../../protocol/message.ts";
import type { DetailedEvent, EventStream } from "../../../runtime/events.ts";
import type { ChatMessage } from "./chat-request.ts";
import type { ChatCall } from "./options.ts";
import { Response } from "./response.ts";
import { pageMessages, UiMessages } from "./ui-message.ts";

/** How many runs are shown as they were seen. What was said before them is shown as the session has it. */
const RUNS_SHOWN = 50;

/** What a page shows of a chat. */
export interface ChatMessages {
  readonly messages: readonly ChatMessage[];
  /** The run that has not ended; null for none. */
  readonly run_id: string | null;
}

/** What has been said in a chat: its session, and its last run if that has not completed. */
export async function chatMessages(call: ChatCall, session_id: string): Promise<ChatMessages> {
  const { caller, parameter: agent_name } = call;
  let history = (await findVisibleSession(caller, session_id))?.history ?? [];
  const runs = await caller.scope.listRuns({ session_id, agent_name, roots: true, limit: RUNS_SHOWN });
  const shown: (readonly ChatMessage[])[] = [];
  for (const [index, { run_id, status }] of runs.entries()) {
    const transcript = await caller.scope.transcript(run_id);
    // A run that the user has taken back is in the session no more.
    if (status === "completed" ? !endsWith(history, transcript) : index > 0) continue;
    if (status === "completed") history = history.slice(0, history.length - transcript.length);
    shown.unshift(await messagesOfRun(call, run_id, transcript));
  }
  const [last] = runs;
  return {
    messages: [...pageMessages(history, session_id), ...shown.flat()],
    run_id: last === undefined || last.finished_at !== null ? null : last.run_id,
  };
}

/** A run as a page has seen it: the messages of the user, and those of the assistant. */
async function messagesOfRun(
  { caller, service }: ChatCall,
  run_id: string,
  transcript: readonly Message[],
): Promise<readonly ChatMessage[]> {
  const inputs = transcript.findIndex(({ role }) => role !== "user");
  const page = new UiMessages(pageMessages(transcript.slice(0, inputs === -1 ? undefined : inputs), run_id));
  const response = new Response({ run_id, messageId: run_id }, service.settings.approvals);
  const events = visibleEvents(caller, caller.scope.events(run_id, { until: "now", detail: true }) as EventStream);
  const all: DetailedEvent[] = [];
  for (let next = await events.poll(); next.done !== true; next = await events.poll()) all.push(next.value);
  const { output } = await caller.scope.getRun(run_id);
  for (const event of withoutTorn(all, output)) {
    if (event.type === "question.settled") page.say(event.answer);
    for (const chunk of response.take(event)) page.take(chunk);
  }
  return page.messages;
}

/**
 * The events without the parts that are not in the output: those of attempts at a step that were interrupted. What an
 * interrupted attempt has emitted comes before what the next one does, so that the last parts are compared first.
 */
function withoutTorn(events: readonly DetailedEvent[], output: readonly Message[]): readonly DetailedEvent[] {
  const parts = output.flatMap((message) => message.parts);
  const kept: DetailedEvent[] = [];
  for (const event of events.toReversed()) {
    const isPart = event.type === "message.part";
    if (isPart && JSON.stringify(event.part) !== JSON.stringify(parts.at(-1))) continue;
    if (isPart) parts.pop();
    kept.push(event);
  }
  return kept.reverse();
}

function endsWith(history: readonly Message[], transcript: readonly Message[]): boolean {
  if (history.length < transcript.length) return false;
  return JSON.stringify(history.slice(history.length - transcript.length)) === JSON.stringify(transcript);
}
