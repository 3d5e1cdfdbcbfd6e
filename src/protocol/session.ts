import * as z from "zod";
import { omitAbsent, withDefault } from "./absent.ts";
import { sessionIdSchema } from "./identifier.ts";
import { listOf } from "./json.ts";
import { deferred } from "./registry.ts";
import { httpUrlSchema } from "./url.ts";

const descriptorObject = deferred(
  { id: "Session", description: "A session, described by the URLs of its contents." },
  () =>
    z
      .object({
        id: sessionIdSchema,
        /** URLs of the messages, oldest first. */
        history: listOf(httpUrlSchema),
        /** URL of the state; absent if there is none. */
        state: httpUrlSchema.nullish(),
      })
      .transform(omitAbsent("state")),
);

/** A session as it travels between servers: its contents are URLs (ACP 1.0, Session). */
export interface SessionDescriptor extends Readonly<z.output<typeof descriptorObject>> {}

/** Reads a {@link SessionDescriptor}. */
export const sessionDescriptorSchema: z.ZodType<SessionDescriptor, z.input<typeof descriptorObject>> = descriptorObject;

const postedSessionObject = deferred(
  { id: "PostedSession", description: "A session that a client brings along." },
  () =>
    z
      .object({
        /** Absent: the service makes one. */
        id: sessionIdSchema.nullish(),
        /** Default: empty. */
        history: withDefault(listOf(httpUrlSchema), []),
        /** URL of the state; absent if there is none. */
        state: httpUrlSchema.nullish(),
      })
      .transform(omitAbsent("id", "state")),
);

/** A session that a client brings along with a new run (ACP 1.0, RunCreateRequest). */
export interface PostedSession extends Readonly<z.output<typeof postedSessionObject>> {}

/** Reads a {@link PostedSession}; `{}` is a new, empty session. */
export const postedSessionSchema: z.ZodType<PostedSession, z.input<typeof postedSessionObject>> = postedSessionObject;
