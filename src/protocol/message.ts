import * as z from "zod";
import { given, omitAbsent, withDefault } from "./absent.ts";
import type { JsonValue } from "./json.ts";
import { jsonObjectSchema, listOf } from "./json.ts";
import { deferred } from "./registry.ts";
import { timestampSchema } from "./timestamp.ts";
import { absoluteUrlSchema } from "./url.ts";

const citationObject = deferred(
  { id: "CitationMetadata", description: "Where the content of a message part comes from." },
  () =>
    z
      .looseObject({
        kind: z.literal("citation"),
        /** First character of the cited range, counted over the text parts of the message. */
        start_index: z.int().nullish(),
        /** End of the cited range. */
        end_index: z.int().nullish(),
        url: z.string().nullish(),
        title: z.string().nullish(),
        description: z.string().nullish(),
      })
      .transform(omitAbsent("start_index", "end_index", "url", "title", "description")),
);

/** Metadata of a part that cites a source (ACP 1.0, CitationMetadata). Further keys are kept. */
export interface CitationMetadata extends Readonly<z.output<typeof citationObject>> {}

const trajectoryObject = deferred(
  { id: "TrajectoryMetadata", description: "A step of the agent on its way: a thought, or the use of a tool." },
  () =>
    z
      .looseObject({
        kind: z.literal("trajectory"),
        /** A thought. */
        message: z.string().nullish(),
        tool_name: z.string().nullish(),
        tool_input: jsonObjectSchema.nullish(),
        tool_output: jsonObjectSchema.nullish(),
      })
      .transform(omitAbsent("message", "tool_name", "tool_input", "tool_output")),
);

/** Metadata of a part that describes a step of the agent (ACP 1.0, TrajectoryMetadata). Further keys are kept. */
export interface TrajectoryMetadata extends Readonly<z.output<typeof trajectoryObject>> {}

/** Metadata of a part, told apart by `kind`. */
export type MessagePartMetadata = CitationMetadata | TrajectoryMetadata;

type MessagePartMetadataInput = Readonly<z.input<typeof citationObject> | z.input<typeof trajectoryObject>>;

const partMetadataSchema: z.ZodType<MessagePartMetadata, MessagePartMetadataInput> = deferred({}, () =>
  z.discriminatedUnion("kind", [citationObject, trajectoryObject]),
);

const partObject = deferred(
  {
    id: "MessagePart",
    description: "A part of a message with inline `content` or a `content_url`, or with neither, but not with both.",
    not: {
      properties: { content: { type: "string" }, content_url: { type: "string" } },
      required: ["content", "content_url"],
    },
  },
  () =>
    z
      .looseObject({
        /** A part with a name is an artifact. */
        name: z.string().nullish(),
        /** Media type of the content; default `text/plain`. */
        content_type: withDefault(z.string(), "text/plain"),
        /** Inline content; excludes `content_url`. */
        content: z.string().nullish(),
        /** How `content` is written; default `plain`. */
        content_encoding: withDefault(z.enum(["plain", "base64"]), "plain"),
        /** Absolute URL of the content; excludes `content`. */
        content_url: absoluteUrlSchema.nullish(),
        /** A citation or a trajectory. */
        metadata: partMetadataSchema.nullish(),
      })
      .refine((part) => part.content == null || part.content_url == null, {
        path: ["content_url"],
        message: "expected either content or content_url, received both",
      })
      .transform(omitAbsent("name", "content", "content_url", "metadata")),
);

/** One part of a message (ACP 1.0). Further keys are kept. */
export interface MessagePart extends Readonly<z.output<typeof partObject>> {}

/** A message part as it may be written: what has a default may be missing, and null counts as absent. */
export interface MessagePartInput extends Readonly<z.input<typeof partObject>> {}

/** Reads a {@link MessagePart}. Defaults: `content_type` `text/plain`, `content_encoding` `plain`. */
export const messagePartSchema: z.ZodType<MessagePart, MessagePartInput> = partObject;

/** Who speaks: `user`, `agent`, or `agent/<name>`. */
export type Role = "user" | "agent" | `agent/${string}`;

const rolePattern = /^(user|agent(\/[A-Za-z0-9_-]+)?)$/;

const messageObject = deferred({ id: "Message", description: "A message of a user or of an agent." }, () =>
  z
    .object({
      /** Default `user`. */
      role: withDefault(z.string().regex(rolePattern, "expected user, agent or agent/<name>"), "user").transform(
        (role) => role as Role,
      ),
      /** May be empty. */
      parts: listOf(messagePartSchema),
      created_at: given(timestampSchema.nullish(), "always"),
      /** Null while the message is still being written. */
      completed_at: given(timestampSchema.nullish(), "or-null"),
    })
    .transform(omitAbsent("created_at")),
);

/** A message (ACP 1.0). */
export interface Message extends Readonly<z.output<typeof messageObject>> {}

/** A message as it may be written: the role may be missing, and null counts as absent. */
export interface MessageInput extends Readonly<z.input<typeof messageObject>> {}

/**
 * Reads a {@link Message}. A missing role is `user`; timestamps may be missing and stay the strings that came; unknown
 * keys are dropped.
 */
export const messageSchema: z.ZodType<Message, MessageInput> = messageObject;

/** A part that holds a value as JSON. */
export function jsonPart(value: JsonValue): MessagePart & { readonly content: string } {
  return { content_type: "application/json", content: JSON.stringify(value), content_encoding: "plain" };
}
