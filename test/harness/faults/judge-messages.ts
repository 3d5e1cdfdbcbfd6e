import type { MailRecord, RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED } from "./acknowledged.ts";
import { nonceOf } from "./agents.ts";
import type { Known } from "./evidence.ts";
import { isForeign, isRefused } from "./judge-answers.ts";
import type { Complain } from "./judge-bodies.ts";

/*
 * Rules for messages: one that was acknowledged has arrived once, before those that were sent after that; one that was
 * refused has not arrived.
 */

/** Refusals that a message cannot get that has arrived before under its key. */
const LATE = ["run_finished", "run_cancelling", "idempotency_conflict", "run_not_found"];

/** What the client was told of its messages. */
export function judgeMessages({ mails }: RunRecord, known: Known, complain: Complain): void {
  const positions = new Map<MailRecord, number>();
  for (const mail of mails) {
    const { nonce, name, run_id, outcomes } = mail;
    const message = `${name} ${nonce} to ${run_id}`;
    const { log = [], inbox = [] } = known.runs.get(run_id) ?? {};
    // What the end of a run has overtaken stays in its inbox.
    const arrived = [...log, ...inbox];
    const received = arrived.filter((entry) => entry.type === "received").filter(({ data }) => nonceOf(data) === nonce);
    const acknowledged = outcomes.indexOf(ACKNOWLEDGED);
    if (acknowledged >= 0 && received.length === 0)
      complain("lost", `${message} was acknowledged, and has not arrived`);
    if (new Set(received.map(({ idempotency_key }) => idempotency_key)).size > 1)
      complain("doubled", `${message} has arrived under several keys`);
    if (received.some((entry) => entry.name !== name)) complain("changed", `${message} has arrived under another name`);
    if (isRefused(outcomes) && received.length > 0)
      complain("refused", `${message} was refused (${outcomes.join(", ")}) and has arrived`);
    if (acknowledged >= 0 && outcomes.slice(acknowledged).some((outcome) => LATE.includes(outcome)))
      complain("lost", `${message} was refused after it was acknowledged (${outcomes.join(", ")})`);
    if (isForeign(outcomes))
      complain("lost", `${message} was refused with an error that is none of the library's: ${outcomes.join(", ")}`);
    const [first] = received;
    if (first !== undefined) positions.set(mail, arrived.indexOf(first));
  }
  for (const [mail, position] of positions)
    for (const [later, other] of positions)
      if (mail.run_id === later.run_id && (mail.acknowledgedAt ?? later.sentAt) < later.sentAt && other < position)
        complain("changed", `${later.nonce} was sent after ${mail.nonce} was acknowledged, and has arrived before it`);
}
