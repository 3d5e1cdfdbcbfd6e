import type { Role } from "../protocol/message.ts";

/**
 * The role of an agent's messages (ACP 1.0, Message). The last result is cached, so that the messages of one agent
 * share one string.
 */
export function agentRole(agentName: string): Role {
  if (agentName !== lastName) {
    lastName = agentName;
    lastRole = `agent/${agentName}`;
  }
  return lastRole;
}

let lastName = "";
let lastRole: Role = "agent/";
