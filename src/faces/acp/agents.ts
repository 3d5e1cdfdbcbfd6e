import type { Caller } from "../../http/caller.ts";
import { queryNumber } from "../../http/service.ts";
import { checkAgent } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import type { AgentManifest } from "../../protocol/agent.ts";
import type { AcpCall } from "./options.ts";

/** `GET /agents`: all agents, or a page of them. */
export async function listAgents({ caller, query }: AcpCall): Promise<WireResponse> {
  const search = new URLSearchParams(query);
  const limit = queryNumber(search, "limit", 1, 1_000) ?? Number.POSITIVE_INFINITY;
  const offset = queryNumber(search, "offset", 0, Number.MAX_SAFE_INTEGER) ?? 0;
  const agents = (await caller.scope.listAgents()).filter(({ name }) => caller.sees?.(name) ?? true);
  return json(200, { agents: agents.slice(offset, offset + limit).map((agent) => shownTo(caller, agent)) });
}

/** `GET /agents/{name}`: the manifest of an agent. */
export async function getAgent({ caller, parameter }: AcpCall): Promise<WireResponse> {
  checkAgent(caller, parameter);
  return json(200, shownTo(caller, await caller.scope.getAgent(parameter)));
}

/** The manifest without the figures, which count the runs of all tenants, for a client whose rights the host has given. */
function shownTo({ ask }: Caller, { status, ...agent }: AgentManifest): AgentManifest {
  return ask === undefined && status !== undefined ? { ...agent, status } : agent;
}
