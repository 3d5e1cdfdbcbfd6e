import { blockedError } from "../../core/blocked-error.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Growing, OfferedEntry } from "../../core/log.ts";
import type { RunKey, StoredRun } from "../../core/ports.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry } from "../../core/state.ts";
import type { Answer } from "../../runtime/agent/answer.ts";
import { replyCommand } from "../../runtime/agent/answer.ts";
import { foldAll } from "../../runtime/log/fold-log.ts";
import { closedError, refusalError, rejectedError, replyRefusedError } from "../../runtime/log/refusals.ts";
import type { Worker } from "./worker.ts";

/**
 * Replies to runs that this process cannot validate: another process executes the run, or has its code. The reply is
 * posted to the log of the run as an offer. The process that executes the run takes it or refuses it.
 */
export class Offers {
  readonly #worker: Worker;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** Resolves with the state of the run when it has the reply. See {@link RemoteRuns.post}. */
  async give(key: RunKey, answer: Answer): Promise<RunState> {
    const { runs, store, clock, settings } = this.#worker;
    const until = clock.now() + settings.answerTimeoutMs;
    let offerId = runs.ids.uuid();
    let awaitId = answer.await_id;
    for (;;) {
      const { stored, state } = await foldAll(store, key);
      // A later pass must not take the next question for this one.
      awaitId ??= state.question?.asked.await_id ?? null;
      const decision = decide(state, replyCommand({ ...answer, await_id: awaitId }, clock.now()));
      if (isRefusal(decision)) throw replyRefusedError(decision, state, awaitId);
      if (decision.length === 0 || awaitId === null) return state;
      this.#checkAnswerable(stored, state);
      const refused = state.mail?.refusals.get(offerId);
      if (refused !== undefined)
        throw refused.code === "answer_rejected"
          ? rejectedError(key.run_id, awaitId, refused.issues)
          : refusalError({ refused: refused.code }, key.run_id, awaitId);
      const open = state.mail?.offers.get(awaitId);
      if (open === undefined) {
        const entry = offerOf(offerId, awaitId, answer, clock.now());
        await store.post(key, { entries: [entry], due: "look" });
        this.#worker.onWake(key);
        continue;
      }
      // The same reply was offered before, and has no verdict yet.
      if (answer.idempotency_key !== null && open.idempotency_key === answer.idempotency_key) offerId = open.offer_id;
      if (clock.now() >= until) throw pendingError(key.run_id, awaitId, settings.answerTimeoutMs);
      await this.#moved(stored, until);
    }
  }

  #checkAnswerable({ key, head }: StoredRun, state: RunState): void {
    if (head.blocked !== null) throw blockedError(key.run_id, createdEntry(state).agent_name, head.blocked);
    if (this.#worker.isClosed) throw closedError();
  }

  /** Waits until the run has more entries or another owner, and no longer than `until`. */
  #moved({ key, head, position }: StoredRun, until: number): Promise<void> {
    const { clock, follower, onOver } = this.#worker;
    return new Promise((resolve) => {
      const end = (): void => {
        unfollow();
        clear();
        onOver.delete(end);
        resolve();
      };
      const unfollow = follower.follow({ known: { key, epoch: head.epoch, position }, onMoved: end });
      const clear = clock.setTimeout(end, Math.max(0, until - clock.now()));
      // A runtime that is closed ends the wait.
      onOver.add(end);
    });
  }
}

function offerOf(offer_id: string, await_id: string, { reply, idempotency_key, by }: Answer, at: number): OfferedEntry {
  const entry: Growing<OfferedEntry> = { type: "offered", at, offer_id, await_id, idempotency_key };
  if ("answer" in reply) entry.answer = reply.answer;
  else entry.decline = reply.decline;
  if (by !== undefined) entry.by = by;
  return entry;
}

function pendingError(runId: string, awaitId: string, waitedMs: number): CadenzaError {
  const message = `Run ${runId} has the answer to ${awaitId}, and no process has validated it within ${waitedMs} ms. Repeat it with the same idempotency key to learn what becomes of it.`;
  return new CadenzaError("answer_pending", message, { run_id: runId, await_id: awaitId });
}
