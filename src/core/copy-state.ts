import type { Draft, Emitters, Mail, OutputMessage, Question, RunState } from "./state.ts";
import { Inbox, MessageKeys } from "./state.ts";

/**
 * A copy of a state, on which more entries can be folded while the other stays as it is. What no entry changes is
 * shared: entries, complete messages and parts.
 */
export function copyState(state: RunState): RunState {
  const open = state.output.at(-1);
  const copied: OutputMessage | undefined =
    open === undefined || open.completed_at !== null ? open : { ...open, parts: [...open.parts] };
  const messageOf = (message: OutputMessage): OutputMessage =>
    message === open && copied !== undefined ? copied : message;
  return {
    ...state,
    output: state.output.map(messageOf),
    emitters: state.emitters && copyEmitters(state.emitters, messageOf),
    question: state.question && copyQuestion(state.question),
    more_questions: state.more_questions?.map(copyQuestion) ?? null,
    exchanges: state.exchanges?.map(copyQuestion) ?? null,
    waits: state.waits && new Map(state.waits),
    mail: state.mail && copyMail(state.mail),
  };
}

function copyEmitters(
  { source, copied, drafts }: Emitters,
  messageOf: (message: OutputMessage) => OutputMessage,
): Emitters {
  const copiesOf = ({ attempt, messages }: Draft): Draft => ({ attempt, messages: messages.map(messageOf) });
  return {
    source,
    copied: new Map(copied),
    drafts: new Map([...drafts].map(([key, draft]) => [key, copiesOf(draft)])),
  };
}

function copyQuestion(question: Question): Question {
  return { ...question };
}

function copyMail({ inbox, bytes, keys, offers, refusals, settled }: Mail): Mail {
  return {
    inbox: new Inbox(inbox),
    bytes,
    keys: new MessageKeys(keys),
    offers: new Map(offers),
    refusals: new Map(refusals),
    settled: new Set(settled),
  };
}
