import type { SlotLine } from "./ports.ts";
import { isoTime } from "./time.ts";

/** What waits for a slot. The key says what `slotOf` was given, or which limit it is. */
export function waitingLine({ key, max, rate, next_at, held, waiting, first }: SlotLine) {
  const { agent_name, version, due_at } = first;
  const { tenant, run_id } = first.key;
  return {
    ...{ agent_name, ...scopeOf(key, agent_name, tenant), max: max ?? null },
    rate: rate === undefined ? null : { count: rate.count, per_ms: rate.perMs },
    next_at: next_at === undefined ? null : isoTime(next_at),
    ...{ held, waiting, since: isoTime(due_at), next: { tenant, run_id, version } },
  };
}

/** What shares the slot: the runs of an agent, of one of its tenants or sessions, or all that have a limit. */
interface Scope {
  readonly per: "agent" | "tenant" | "session" | "limit";
  readonly tenant: string | null;
  readonly session_id: string | null;
  readonly limit: { readonly name: string; readonly key: string | null } | null;
}

function scopeOf(key: string, agentName: string, tenant: string): Scope {
  if (key.startsWith(":")) {
    const [name = ""] = key.slice(1).split("/", 1);
    const rest = key.slice(name.length + 2);
    const limit = { name, key: key.length === name.length + 1 ? null : rest };
    return { per: "limit", tenant: null, session_id: null, limit };
  }
  const scope = key.slice(agentName.length);
  if (scope === "") return { per: "agent", tenant: null, session_id: null, limit: null };
  const session_id = scope.slice(1, -tenant.length - 1);
  if (session_id === "") return { per: "tenant", tenant, session_id: null, limit: null };
  return { per: "session", tenant, session_id, limit: null };
}
