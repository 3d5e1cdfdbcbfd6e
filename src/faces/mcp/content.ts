import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import { isJsonPart, joined, jsonOf, shownText } from "../chat/parts.ts";
import type { Peer } from "./options.ts";

/** The result of a call whose run has ended. Before `2026-07-28` only an object is structured content. */
export function resultOf(run: Run, { isModern }: Peer): JsonObject {
  if (run.status === "failed") return failure(run.error.message);
  if (run.status === "cancelled") return failure("The run was cancelled.");
  const content = contentOf(run.output);
  const structured = structuredIn(run.output);
  const isShown = structured !== undefined && (isModern || isJsonObject(structured));
  return { content, ...(isShown && { structuredContent: structured }) };
}

/** The result of a call that has failed, in words that a model can read. */
export function failure(text: string): JsonObject {
  return { content: [{ type: "text", text }], isError: true };
}

/** The value of the last JSON part that has a name. The output of an agent with a schema is one. */
function structuredIn(output: readonly Message[]): JsonValue | undefined {
  const part = output.flatMap(({ parts }) => parts).findLast((one) => one.name !== undefined && isJsonPart(one));
  return part?.content === undefined ? undefined : jsonOf(part.content);
}

/** Neighbouring texts are one, whatever is said about them. */
function contentOf(output: readonly Message[]): readonly JsonObject[] {
  const parts = output.flatMap((message) => message.parts.map(bare)).filter((part) => shownText(part) !== "");
  return joined(parts)
    .map(blockOf)
    .filter((block) => block !== undefined);
}

function bare({ metadata: _, ...part }: MessagePart): MessagePart {
  return part;
}

/** The content of a part. Undefined: it has none. */
function blockOf({
  name,
  content_type: mimeType,
  content,
  content_encoding,
  content_url,
}: MessagePart): JsonObject | undefined {
  if (content_url !== undefined)
    return { type: "resource_link", uri: content_url, name: name ?? content_url, mimeType };
  if (content === undefined) return undefined;
  if (content_encoding === "plain") return { type: "text", text: content };
  const media = /^(image|audio)\//.exec(mimeType)?.[1];
  if (media !== undefined) return { type: media, data: content, mimeType };
  // An address has no halves of characters.
  const named = encodeURIComponent((name ?? "output").replace(/\p{Surrogate}/gu, "\ufffd"));
  return { type: "resource", resource: { uri: `part:${named}`, mimeType, blob: content } };
}
