import * as z from "zod";
import { errorSchema } from "./error.ts";
import { jsonObjectSchema } from "./json.ts";
import { messagePartSchema, messageSchema } from "./message.ts";
import { deferred, protocolRegistry } from "./registry.ts";
import { runSchema } from "./run.ts";

/** The types of all events, in the order in which they first occur in a run (ACP 1.0, Event). */
export const eventTypes = [
  "run.created",
  "run.in-progress",
  "message.created",
  "message.part",
  "message.completed",
  "generic",
  "run.awaiting",
  "run.completed",
  "run.failed",
  "run.cancelled",
  "error",
] as const;

/** The `type` of a {@link RunEvent}. */
export type EventType = (typeof eventTypes)[number];

const eventUnion = deferred({ id: "Event", description: "Something that happened in a run." }, () =>
  z.discriminatedUnion("type", [
    event("RunCreatedEvent", { type: z.literal("run.created"), run: runSchema }),
    event("RunInProgressEvent", { type: z.literal("run.in-progress"), run: runSchema }),
    event("RunAwaitingEvent", { type: z.literal("run.awaiting"), run: runSchema }),
    event("RunCompletedEvent", { type: z.literal("run.completed"), run: runSchema }),
    event("RunFailedEvent", { type: z.literal("run.failed"), run: runSchema }),
    event("RunCancelledEvent", { type: z.literal("run.cancelled"), run: runSchema }),
    event("MessageCreatedEvent", { type: z.literal("message.created"), message: messageSchema }),
    event("MessagePartEvent", { type: z.literal("message.part"), part: messagePartSchema }),
    event("MessageCompletedEvent", { type: z.literal("message.completed"), message: messageSchema }),
    event("GenericEvent", { type: z.literal("generic"), generic: jsonObjectSchema }),
    event("ErrorEvent", { type: z.literal("error"), error: errorSchema }),
  ]),
);

/** Something that happened in a run: one of the eleven events of ACP 1.0, told apart by `type`. */
export type RunEvent = Readonly<z.output<typeof eventUnion>>;

/** Reads a {@link RunEvent}. */
export const eventSchema: z.ZodType<RunEvent, z.input<typeof eventUnion>> = eventUnion;

/** Whether the event says that the run rests: it has ended, or waits for an answer. */
export function isRestEvent({ type }: RunEvent): boolean {
  return type === "run.awaiting" || type === "run.completed" || type === "run.failed" || type === "run.cancelled";
}

function event<Shape extends z.ZodRawShape>(id: string, shape: Shape): z.ZodObject<Shape> {
  const schema = z.object(shape);
  protocolRegistry.add<z.ZodType>(schema, { id });
  return schema;
}
