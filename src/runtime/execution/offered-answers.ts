import { inBackground } from "../../core/background.ts";
import { isRefusal } from "../../core/decide.ts";
import type { OfferedEntry } from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { replyCommand } from "../agent/answer.ts";
import type { Validated } from "../agent/standard-schema.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import { questionOf } from "./ask.ts";
import type { Execution } from "./execution.ts";
import { onceInLog } from "./once-committed.ts";

/** What validating an answer that declines gives. */
export const declined: Validated = { value: undefined };

/**
 * Gives the verdict on the answers that other processes have offered. An answer that is taken is handed to the agent
 * when it is committed.
 */
export function answerOffers(execution: Execution, shared: SharedByRuns): void {
  for (const offer of execution.log.state.mail?.offers.values() ?? []) {
    const question = questionOf(execution, offer.await_id);
    if (question === undefined || !question.examines(offer.offer_id)) continue;
    const reading: MaybePromise<Validated> = offer.answer === undefined ? declined : question.validate(offer.answer);
    if (isPromise(reading))
      inBackground(
        shared.logger,
        reading.then((later) => decideOffer(execution, shared, offer, later)),
      );
    else decideOffer(execution, shared, offer, reading);
  }
}

function decideOffer(execution: Execution, shared: SharedByRuns, offer: OfferedEntry, reading: Validated): void {
  const { log, clock } = execution;
  if (log.lost || execution.over || shared.isClosed) return;
  const { offer_id, await_id, answer, decline, idempotency_key, by } = offer;
  const at = clock.now();
  if ("issues" in reading) {
    const { issues } = reading;
    log.decide({ type: "refuse", entry: { type: "refused", at, offer_id, code: "answer_rejected", issues } });
    log.flush();
    return;
  }
  const reply = answer === undefined ? { decline: decline ?? {} } : { answer };
  const command = replyCommand({ await_id, reply, idempotency_key, by }, at, offer_id);
  const decision = log.decide(command);
  const entry = isRefusal(decision) ? undefined : decision[0];
  if (entry === undefined) return;
  onceInLog(log, entry, (committed) => {
    if (committed !== undefined) execution.withSlot(() => execution.deliver(committed, reading.value));
  });
}
