import * as z from "zod";
import { omitAbsent, orNull } from "./absent.ts";
import { agentNameSchema } from "./agent.ts";
import type { ProtocolError } from "./error.ts";
import { errorSchema } from "./error.ts";
import { runIdSchema, sessionIdSchema } from "./identifier.ts";
import type { JsonObject } from "./json.ts";
import { isJsonObject, jsonObjectSchema, listOf } from "./json.ts";
import type { Message } from "./message.ts";
import { messageSchema } from "./message.ts";
import { componentRef, deferred } from "./registry.ts";
import { timestampSchema } from "./timestamp.ts";

/** The seven statuses of a run; `completed`, `failed` and `cancelled` are final (ACP 1.0, RunStatus). */
export const runStatuses = [
  "created",
  "in-progress",
  "awaiting",
  "cancelling",
  "cancelled",
  "completed",
  "failed",
] as const;

/** Status of a run. */
export type RunStatus = (typeof runStatuses)[number];

/** Reads a {@link RunStatus}. */
export const runStatusSchema: z.ZodType<RunStatus, RunStatus> = deferred(
  { id: "RunStatus", description: "Status of a run." },
  () => z.enum(runStatuses),
);

/** How the answer to a request comes: once the run rests, at once, or as a stream of events (ACP 1.0, RunMode). */
export const runModes = ["sync", "async", "stream"] as const;

/** Mode of a request. */
export type RunMode = (typeof runModes)[number];

/** Reads a {@link RunMode}. */
export const runModeSchema: z.ZodType<RunMode, RunMode> = deferred(
  { id: "RunMode", description: "Mode of a request." },
  () => z.enum(runModes),
);

const awaitRequestObject = deferred({ id: "AwaitRequest", description: "What a run is waiting for." }, () =>
  z
    .object({
      type: z.literal("message"),
      /** The question. */
      message: messageSchema,
      /** Tells this await from the others of the run. */
      await_id: z.string(),
      /** The deadline of the answer; absent if there is none. */
      expires_at: timestampSchema.nullish(),
    })
    .transform(omitAbsent("expires_at")),
);

/** The content type of the part of a question that holds the JSON Schema of its answer. */
export const SCHEMA_TYPE = "application/schema+json";

/** What a run is waiting for (ACP 1.0). */
export interface AwaitRequest extends Readonly<z.output<typeof awaitRequestObject>> {}

/** Reads an {@link AwaitRequest}. */
export const awaitRequestSchema: z.ZodType<AwaitRequest, z.input<typeof awaitRequestObject>> = awaitRequestObject;

/** An answer in the form of a message. */
export interface MessageResume {
  readonly type: "message";
  readonly message: Message;
}

/** The answer to an await: a message, or any other JSON object, which is the answer itself (ACP 1.0). */
export type AwaitResume = MessageResume | JsonObject;

const messageResumeObject = deferred({ id: "MessageResume", description: "An answer in the form of a message." }, () =>
  z
    .object({ type: z.literal("message").nullish(), message: messageSchema })
    .transform(({ message }): MessageResume => ({ type: "message", message })),
);

/** Whether an answer that {@link awaitResumeSchema} has read is a message. */
export function isMessageResume(resume: AwaitResume): resume is MessageResume {
  return resume["type"] === "message";
}

/**
 * Reads an {@link AwaitResume}. With `type: "message"`, or without a type but with a list `message.parts`, it has to be
 * a message. Any other object is handed on as it came, with its nulls.
 */
export const awaitResumeSchema: z.ZodType<AwaitResume, JsonObject> = deferred(
  {
    id: "AwaitResume",
    description: 'The answer to an await: `{ type: "message", message }`, or any other object as the answer itself.',
    anyOf: [
      { $ref: componentRef("MessageResume") },
      {
        description: "The answer itself.",
        type: "object",
        // The condition of `claimsToBeMessage`.
        not: {
          anyOf: [
            { properties: { type: { const: "message" } }, required: ["type"] },
            {
              properties: {
                type: { type: "null" },
                message: { type: "object", properties: { parts: { type: "array" } }, required: ["parts"] },
              },
              required: ["message"],
            },
          ],
        },
      },
    ],
  },
  () =>
    jsonObjectSchema.transform((resume, context): AwaitResume => {
      if (!claimsToBeMessage(resume)) return resume;
      const reading = messageResumeObject.safeParse(resume);
      if (reading.success) return reading.data;
      for (const issue of reading.error.issues) {
        context.issues.push({ ...issue, input: resume } as z.core.$ZodRawIssue);
      }
      return z.NEVER;
    }),
);

const runObject = deferred({ id: "Run", description: "One run of an agent." }, () =>
  z.object({
    agent_name: agentNameSchema,
    session_id: sessionIdSchema,
    run_id: runIdSchema,
    status: runStatusSchema,
    /** Set while the run is `awaiting`, else null. */
    await_request: orNull(awaitRequestSchema),
    output: listOf(messageSchema),
    /** Set when the run is `failed`, else null. */
    error: orNull(errorSchema),
    created_at: timestampSchema,
    /** Null until the status is final. */
    finished_at: orNull(timestampSchema),
  }),
);

type RunObject = z.output<typeof runObject>;

/** What a run has in every status. */
interface RunFields extends Readonly<Omit<RunObject, "status" | "await_request" | "error" | "finished_at">> {}

/** One run of an agent (ACP 1.0). Its `status` says which of the other fields are null. */
export type Run = RunFields & (UnfinishedRun | AwaitingRun | FinishedRun | FailedRun);

interface UnfinishedRun {
  readonly status: "created" | "in-progress" | "cancelling";
  readonly await_request: null;
  readonly error: null;
  readonly finished_at: null;
}

interface AwaitingRun {
  readonly status: "awaiting";
  readonly await_request: AwaitRequest;
  readonly error: null;
  readonly finished_at: null;
}

interface FinishedRun {
  readonly status: "completed" | "cancelled";
  readonly await_request: null;
  readonly error: null;
  readonly finished_at: string;
}

interface FailedRun {
  readonly status: "failed";
  readonly await_request: null;
  readonly error: ProtocolError;
  readonly finished_at: string;
}

/**
 * Reads a {@link Run}. A missing `await_request`, `error` or `finished_at` is null. That they are there where the status
 * says so is up to the server.
 */
export const runSchema = runObject as z.ZodType<Run, z.input<typeof runObject>>;

function claimsToBeMessage({ type, message }: JsonObject): boolean {
  if (type !== undefined && type !== null) return type === "message";
  return isJsonObject(message) && Array.isArray(message["parts"]);
}
