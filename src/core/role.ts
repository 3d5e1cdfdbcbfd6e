import type { Role } from "../protocol/message.ts";

/**
 * The role of what an agent says (ACP 1.0, Message). The last answer is kept, since many messages of one agent follow one
 * another: they share its text.
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
