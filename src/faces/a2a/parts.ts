import { unfitAt } from "../../http/errors.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import { jsonPart } from "../../protocol/message.ts";
import { isJsonPart, isWebAddress, joined, jsonOf, textPart, thoughtIn } from "../chat/parts.ts";
import { refusal } from "./errors.ts";
import type { A2aPart } from "./objects.ts";

/** A part as clients of A2A see it. */
export function shownPart(part: MessagePart): A2aPart {
  const { content_type: mediaType, name } = part;
  const metadata = metadataOf(part);
  return {
    ...contentOf(part),
    mediaType,
    ...(name !== undefined && { filename: name }),
    ...(metadata !== undefined && { metadata }),
  };
}

function contentOf(part: MessagePart): Pick<A2aPart, "text" | "raw" | "url" | "data"> {
  const { content = "", content_encoding, content_url } = part;
  if (content_url !== undefined) return { url: content_url };
  if (content_encoding === "base64") return { raw: content };
  return part.content !== undefined && isJsonPart(part) ? { data: jsonOf(content) } : { text: content };
}

function metadataOf(part: MessagePart): JsonObject | undefined {
  if (part.metadata === undefined) return undefined;
  const thought = thoughtIn(part);
  if (thought !== undefined) return { reasoning: thought };
  const { kind, ...rest } = part.metadata;
  return { [kind]: rest as JsonObject };
}

/** Parts as clients of A2A see them, of which neighbouring texts are one. Lists of parts are not empty. */
export function shownParts(parts: readonly MessagePart[]): readonly A2aPart[] {
  return (parts.length === 0 ? [textPart("")] : joined(parts)).map(shownPart);
}

type Path = readonly (string | number)[];

const contents = ["text", "raw", "url", "data"] as const;

/** Reads a part of a client. Refuses one that says two contents, or none. */
export function readPart(part: unknown, path: Path): MessagePart {
  if (!isJsonObject(part)) throw unfitAt(path, "expected a part");
  const said = contents.filter((name) => (part[name] ?? null) !== null);
  const [kind = "data" in part ? "data" : undefined] = said;
  if (said.length > 1 || kind === undefined) throw unfitAt(path, `expected one of ${contents.join(", ")}`);
  const { filename, mediaType } = part;
  const type = textAt(mediaType, [...path, "mediaType"]);
  const name = textAt(filename, [...path, "filename"]);
  return { ...read(kind, part[kind] ?? null, type, [...path, kind]), ...(name !== "" && { name }) };
}

function read(kind: (typeof contents)[number], value: JsonValue, type: string, path: Path): MessagePart {
  if (kind === "data") {
    const part = { ...jsonPart(value), content_type: type };
    return isJsonPart(part) ? part : jsonPart(value);
  }
  const content = textAt(value, path);
  if (kind === "text") return { content_type: type || "text/plain", content, content_encoding: "plain" };
  const content_type = type || "application/octet-stream";
  if (kind === "raw") return { content_type, content, content_encoding: "base64" };
  if (!isWebAddress(content)) throw unfitAt(path, "expected a web address");
  return { content_type, content_url: content, content_encoding: "plain" };
}

/** A text of a client; empty if it is missing. */
export function textAt(value: unknown, path: Path): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value;
  throw unfitAt(path, "expected a string");
}

/** Refuses a part whose media type the agent does not read. */
export function checkType({ content_type }: MessagePart, readable: readonly string[]): void {
  const [type = ""] = content_type.toLowerCase().split(";");
  const [main] = type.split("/");
  if (readable.some((one) => one === "*/*" || one === `${main}/*` || one.toLowerCase() === type.trim())) return;
  throw refusal("CONTENT_TYPE_NOT_SUPPORTED", `The agent does not read ${content_type}.`);
}
