import type { Message } from "../protocol/message.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import { readInput } from "../runtime/agent/input.ts";
import type { CreateRunOptions, CreateRunRequest } from "../runtime/runs/requests.ts";
import type { MemoryStore } from "../stores/memory/memory.ts";
import type { DriveSettings } from "./drive-options.ts";

const SESSION_ID = "00000000-0000-4000-8000-0000005e5510";

/** Puts the session into the store before the run. */
export function seedSession(store: Pick<MemoryStore, "putSession">, settings: DriveSettings, at: number): void {
  const { session } = settings;
  const session_id = sessionIdOf(settings);
  if (session === undefined || session_id === undefined) return;
  const history = session.history === undefined ? [] : readInput(session.history);
  store.putSession({ tenant: "", session_id }, { history, state: session.state ?? null }, at);
}

/** The request that creates the run. */
export function createRequest(
  agent: Agent,
  input: readonly Message[],
  settings: DriveSettings,
): [CreateRunRequest & { readonly mode: "async" }, CreateRunOptions] {
  const { timeoutMs, budget, metadata, labels } = settings;
  const request = { agent_name: agent.name, input, session_id: sessionIdOf(settings), mode: "async" } as const;
  return [request, { timeoutMs, budget, metadata, labels }];
}

function sessionIdOf({ session }: DriveSettings): string | undefined {
  return session === undefined ? undefined : (session.id ?? SESSION_ID);
}
