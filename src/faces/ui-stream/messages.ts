import { questionCallId } from "../chat/call-ids.ts";
import type { SeenRun } from "../chat/seen-runs.ts";
import { seenEvents, seenRuns } from "../chat/seen-runs.ts";
import type { ChatMessage } from "./chat-request.ts";
import type { ChatCall } from "./options.ts";
import { Response } from "./response.ts";
import { pageMessages, UiMessages } from "./ui-message.ts";

/** What a page shows of a chat. */
export interface ChatMessages {
  readonly messages: readonly ChatMessage[];
  /** The run that has not ended; null for none. */
  readonly run_id: string | null;
}

/** What has been said in a chat: its session, and its last run if that has not completed. */
export async function chatMessages(call: ChatCall, session_id: string): Promise<ChatMessages> {
  const { history, runs } = await seenRuns(call, session_id);
  const shown: (readonly ChatMessage[])[] = [pageMessages(history, session_id)];
  for (const run of runs) shown.push(await messagesOfRun(call, run));
  const last = runs.at(-1);
  return { messages: shown.flat(), run_id: last?.isOpen === true ? last.run_id : null };
}

/** A run as a page has seen it: the messages of the user, and those of the assistant. */
async function messagesOfRun(call: ChatCall, { run_id, inputs }: SeenRun): Promise<readonly ChatMessage[]> {
  const page = new UiMessages(pageMessages(inputs, run_id));
  const response = new Response({ run_id, messageId: run_id }, call.service.settings.approvals);
  for (const event of await seenEvents(call, run_id)) {
    if (event.type === "question.settled") page.say(event.answer);
    const filename = event.type === "message.part" ? event.part.name : undefined;
    for (const chunk of response.take(event)) page.take(chunk, filename);
    if (event.type === "question.settled") page.approve(questionCallId(run_id, event.await_id));
  }
  page.describe(response.metadata);
  return page.messages;
}
