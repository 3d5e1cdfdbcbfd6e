import type { SlotLine } from "./ports.ts";
import { isoTime } from "./time.ts";

/** What waits for a slot: the key says what `slotOf` was given. */
export function waitingLine({ key, max, held, waiting, first }: SlotLine) {
  const { agent_name, version, due_at } = first;
  const { tenant, run_id } = first.key;
  const scope = key.slice(agent_name.length);
  const session_id = scope.slice(1, -tenant.length - 1);
  const per: "agent" | "tenant" | "session" = scope === "" ? "agent" : session_id === "" ? "tenant" : "session";
  return {
    ...{ agent_name, per, tenant: per === "agent" ? null : tenant, session_id: per === "session" ? session_id : null },
    ...{ max, held, waiting, since: isoTime(due_at), next: { tenant, run_id, version } },
  };
}
