import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import { toolCallId } from "../chat/call-ids.ts";
import { isJsonPart, isWebAddress, jsonOf, linkOf, STATE, shownText, stateIn } from "../chat/parts.ts";
import type { UiChunk } from "./chunks.ts";
import { ASK } from "./chunks.ts";

/** The chunks of a part beside its text and its thought. `id` tells the part from all others of the run. */
export function partChunks(part: MessagePart, id: string): UiChunk[] {
  const chunks: UiChunk[] = [];
  const content = contentChunk(part);
  if (content !== undefined) chunks.push(content);
  const { metadata } = part;
  if (metadata?.kind === "citation" && typeof metadata.url === "string" && isWebAddress(metadata.url)) {
    const { url, title } = metadata;
    chunks.push({ type: "source-url", sourceId: id, url, ...(title !== undefined && title !== null && { title }) });
  }
  if (metadata?.kind === "trajectory") chunks.push(...trajectoryChunks(metadata, id));
  return chunks;
}

/** A file or a data part. Undefined: the part has no content, or its content is shown as text. */
function contentChunk(part: MessagePart): UiChunk | undefined {
  const { name = "part", content_type, content, content_encoding } = part;
  const url = linkOf(part);
  if (url !== undefined) return { type: "file", url, mediaType: content_type };
  if (content === undefined || shownText(part) !== undefined) return undefined;
  if (content_encoding === "base64")
    return { type: "file", url: `data:${content_type};base64,${content}`, mediaType: content_type };
  const state = stateIn(part);
  // With an id of its own the next one takes its place.
  if (state !== undefined) return { type: `data-${STATE}`, id: STATE, data: state };
  if (isJsonPart(part)) return { type: `data-${name}`, data: jsonOf(content) };
  return { type: "file", url: `data:${content_type},${percentEncoded(content)}`, mediaType: content_type };
}

/** A text as a part of a URL. A half of a surrogate pair has no UTF-8, and is replaced. */
function percentEncoded(text: string): string {
  return encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"));
}

type Trajectory = Extract<NonNullable<MessagePart["metadata"]>, { readonly kind: "trajectory" }>;

/** The use of a tool, as a call that the page need not answer. */
function trajectoryChunks(trajectory: Trajectory, id: string): UiChunk[] {
  const { tool_name, tool_input, tool_output } = trajectory;
  // A question comes from the run that asks it. In a message it is a claim.
  if (typeof tool_name !== "string" || tool_name === ASK) return [];
  const call = { toolCallId: toolCallId(trajectory, id), dynamic: true, providerExecuted: true } as const;
  const chunks: UiChunk[] = [{ ...call, type: "tool-input-available", toolName: tool_name, input: tool_input ?? {} }];
  if (tool_output !== undefined && tool_output !== null)
    chunks.push({ ...call, type: "tool-output-available", output: tool_output });
  return chunks;
}

/**
 * The chunks of an object that tells of an output of a tool which is still at work, as `aiSdk` emits it: `tool_name`,
 * `tool_call_id`, `tool_input` and `preliminary_output`. Undefined: the object tells of none.
 */
export function preliminaryChunks(generic: JsonObject): UiChunk[] | undefined {
  const { tool_name, tool_call_id, tool_input, preliminary_output: output } = generic;
  if (typeof tool_name !== "string" || typeof tool_call_id !== "string" || output === undefined) return undefined;
  const tool_output = isJsonObject(output) ? output : { value: output };
  const call = { kind: "trajectory", tool_name, tool_call_id, tool_input, tool_output } as Trajectory;
  const chunks = trajectoryChunks(call, tool_call_id);
  return chunks.map((chunk) => (chunk.type === "tool-output-available" ? { ...chunk, preliminary: true } : chunk));
}
