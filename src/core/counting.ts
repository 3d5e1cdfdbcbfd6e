import type { Entry } from "./log.ts";
import { subRunIn } from "./operation-keys.ts";
import type { RunState } from "./state.ts";
import { hasSeen, hasSettled, isOfAnother, isStopped, openQuestion } from "./state.ts";

/**
 * Whether the next entry of a log counts. A post that several processes have made counts once, and one that comes too
 * late does not count at all. `evolve` skips an entry that does not count, and so does every view of the log.
 */
export function counts(state: RunState, entry: Entry): boolean {
  switch (entry.type) {
    case "received":
      // A message that was sent twice with the same idempotency key arrives once.
      return state.mail?.keys.get(entry.idempotency_key) === undefined;
    case "awaited":
      if (entry.of === undefined) return true;
      return !(isStopped(state) || hasSeen(state, entry.await_id) || isOfAnother(state, subRunIn(entry.await_id)));
    case "settled":
      if (isOfAnother(state, subRunIn(entry.await_id))) return false;
      // A question may be settled before it is shown.
      return openQuestion(state, entry.await_id) !== undefined || !hasSettled(state, entry.await_id);
    case "offered":
      // A second offer waits for the verdict on the first, and is made again.
      return (
        openQuestion(state, entry.await_id) !== undefined &&
        state.mail?.offers.has(entry.await_id) !== true &&
        state.mail?.refusals.has(entry.offer_id) !== true
      );
    case "cancel-requested":
      return state.status !== "cancelling";
    default:
      return true;
  }
}
