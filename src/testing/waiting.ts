import type { IntentEntry } from "../core/log.ts";
import { isReceive, nameIn } from "../core/operation-keys.ts";
import { describeDriveEvent, questionText, quote } from "./drive-event.ts";
import { writeDuration } from "./duration.ts";
import type { Stage } from "./stage.ts";

/** Why an agent does nothing more, and what a test can do about it. */
export function describeWaiting(stage: Stage): string {
  const { state } = stage;
  if (state?.question) {
    const { await_id, parts, deadline: at } = state.question.asked;
    const left = at === undefined ? undefined : at - clockNow(stage);
    const deadline = left === undefined ? "" : `, let its time pass with t.clock.advance("${writeDuration(left)}")`;
    return (
      `The agent waits for the answer to ${await_id} ${quote(questionText(parts))}. ` +
      `Answer it with t.answer(…)${deadline}, or stop the run with t.cancel().`
    );
  }
  const [wait] = state?.waits?.values() ?? [];
  if (wait !== undefined) return describeWait(stage, wait);
  const { patienceMs } = stage.settings;
  return (
    `The agent has shown no activity for ${writeDuration(patienceMs)}: it is ${status(stage)} and ${work(stage)}. ` +
    `${timers(stage)}If it waits for something real that takes longer, give drive a larger patienceMs.`
  );
}

function describeWait(stage: Stage, { key, until }: IntentEntry): string {
  const pass =
    until == null ? "" : `Let its time pass with t.clock.advance("${writeDuration(until - clockNow(stage))}"). `;
  const send = isReceive(key) ? `Send it with t.send(${quote(nameIn(key))}, …). ` : "";
  return `The agent waits for ${key}. ${send}${pass}Or stop the run with t.cancel().`;
}

/** The last thing that an agent did, for messages. */
export function describeLast(stage: Stage): string {
  const last = stage.view?.driveEvents.at(-1);
  return last === undefined ? "It has done nothing yet." : `The last thing it did: ${describeDriveEvent(last)}.`;
}

function status({ state }: Stage): string {
  return state?.status ?? "not created yet";
}

function work({ cast }: Stage): string {
  const open = cast.operations
    .filter(({ state }) => state === "pending")
    .map(({ kind, key }) => `${names[kind]}${key}`);
  return open.length === 0 ? "waits for something outside the runtime" : `at work on ${open.join(", ")}`;
}

const names = { step: "step ", ask: "question ", sleep: "", receive: "", run: "" } as const;

function timers(stage: Stage): string {
  const { nextDue } = stage.clock;
  if (nextDue === undefined) return "";
  const left = writeDuration(nextDue - clockNow(stage));
  return `A timer of the clock is due in ${left}: t.next({ within: "${left}" }) lets that time pass. `;
}

function clockNow({ clock }: Stage): number {
  return clock.now();
}
