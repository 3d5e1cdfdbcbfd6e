import { baseUrl } from "../../http/service.ts";
import { checkAgent } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import { jsonText } from "../../http/wire.ts";
import type { AgentManifest } from "../../protocol/agent.ts";
import { namedUuid } from "../../runtime/agent/uuid.ts";
import { noTask } from "./errors.ts";
import type { A2aCall } from "./options.ts";

/** The version of the protocol, as cards and requests name it. */
export const VERSION = "1.0";

/** The extension by which a message declines a question: the address of its description, and a key of the message's metadata. */
export const DECLINING = "https://github.com/cadenza-agents/cadenza/blob/main/docs/guides/a2a.md#declining";

const BINDINGS = ["JSONRPC", "HTTP+JSON"] as const;
/** The namespace of the tags of cards: the UUID of no thing. */
const CARDS = "00000000-0000-0000-0000-000000000000";
const MAX_AGE_SECONDS = 300;

/** `GET /{name}/.well-known/agent-card.json`: the card of an agent. Without a name, that of the agent that is the root. */
export async function getCard(call: A2aCall): Promise<WireResponse> {
  const { caller, request, service } = call;
  const name = call.parameter || service.settings.root;
  if (name === undefined) throw noTask();
  checkAgent(caller, name);
  const manifest = await caller.scope.getAgent(name);
  const text = JSON.stringify({ ...cardFrom(manifest, `${baseUrl(call)}/${name}`), ...service.settings.card });
  const etag = `"${namedUuid(CARDS, text)}"`;
  const whose = service.settings.authorize === undefined ? "public" : "private";
  const headers = {
    "cache-control": `${whose}, max-age=${MAX_AGE_SECONDS}`,
    // Agents may be registered and replaced at any time.
    "last-modified": new Date(service.clock.now()).toUTCString(),
    etag,
  };
  // The tag is quoted, so that it is part of no other one in a list.
  const isKnown = request.header("if-none-match")?.includes(etag);
  return isKnown === true ? { status: 304, headers, body: "" } : jsonText(200, text, headers);
}

function cardFrom(
  { name, description, input_content_types, output_content_types, metadata }: AgentManifest,
  url: string,
) {
  const { links = [], tags = [] } = metadata ?? {};
  const link = links.find(({ type }) => type === "documentation") ?? links.find(({ type }) => type === "homepage");
  const about = description === "" ? name : description;
  return {
    name,
    description: about,
    version: "1.0.0",
    supportedInterfaces: BINDINGS.map((protocolBinding) => ({ url, protocolBinding, protocolVersion: VERSION })),
    capabilities: {
      streaming: true,
      pushNotifications: false,
      extendedAgentCard: false,
      extensions: [{ uri: DECLINING }],
    },
    defaultInputModes: modes(input_content_types),
    defaultOutputModes: modes(output_content_types),
    skills: [{ id: name, name, description: about, tags: tags.length > 0 ? tags : [name] }],
    ...(link && { documentationUrl: link.url }),
  };
}

function modes(types: readonly string[]): readonly string[] {
  return types.includes("*/*") ? ["text/plain", "application/json"] : types;
}
