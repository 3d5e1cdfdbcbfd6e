import * as z from "zod";
import { omitAbsent, orNull, withDefault } from "./absent.ts";
import { agentNameSchema } from "./agent.ts";
import { errorSchema } from "./error.ts";
import { eventSchema } from "./event.ts";
import { runIdSchema, sessionIdSchema } from "./identifier.ts";
import { messageSchema } from "./message.ts";
import { deferred } from "./registry.ts";
import { runModeSchema, runStatusSchema } from "./run.ts";
import { timestampSchema } from "./timestamp.ts";

/* What the service takes and gives beside ACP. It is in no record of ACP. */

const runDeclineObject = deferred(
  { id: "RunDeclineRequest", description: "Declines to answer what a run is waiting for." },
  () =>
    z
      .object({
        /** Repeats the id of the path. */
        run_id: runIdSchema.nullish(),
        /** The await that is declined; default: the one that the run shows. */
        await_id: z.string().min(1, "expected the id of a question").nullish(),
        await_resume: z.null("expected no answer beside decline").optional(),
        decline: z
          .object({ reason: z.string().min(1, "expected a reason of at least one character").nullish() })
          .transform(omitAbsent("reason")),
        /** Default `sync`. */
        mode: withDefault(runModeSchema, "sync"),
      })
      .transform(omitAbsent("run_id", "await_id", "await_resume")),
);

/** The body that declines to answer a run. */
export interface RunDeclineRequest extends Readonly<z.output<typeof runDeclineObject>> {}

/** Reads a {@link RunDeclineRequest}. Default: `mode` `sync`. */
export const runDeclineRequestSchema: z.ZodType<RunDeclineRequest, z.input<typeof runDeclineObject>> = runDeclineObject;

const openQuestionObject = deferred({ id: "OpenQuestion", description: "An open question of a run." }, () =>
  z.object({
    /** The id under which it is answered at this run. */
    await_id: z.string(),
    /** The name that the agent gave it; null for none. */
    name: orNull(z.string()),
    /** What is asked for. */
    kind: z.enum(["input", "approval", "auth"]),
    message: messageSchema,
    /** When it expires; null for never. */
    expires_at: orNull(timestampSchema),
    /** The sub-run that asks, and the question's id there; null for a question of the run itself. */
    of: orNull(z.object({ run_id: runIdSchema, await_id: z.string() })),
  }),
);

/** An open question of a run, or of one of its sub-runs. */
export interface OpenQuestionDetails extends Readonly<z.output<typeof openQuestionObject>> {}

const usageObject = deferred({ id: "Usage", description: "What was used, in tokens." }, () =>
  z.object({
    /** Every token of the prompt, also those read from a cache or written to one. */
    input_tokens: z.number(),
    /** Every token of the answer, also reasoning. */
    output_tokens: z.number(),
    /** The sum of both. */
    total_tokens: z.number(),
    /** The part of `input_tokens` that was read from a cache. */
    cached_input_tokens: z.number(),
    /** The part of `input_tokens` that was written to a cache. */
    cache_write_tokens: z.number(),
    /** The part of `output_tokens` that was spent on reasoning. */
    reasoning_tokens: z.number(),
  }),
);

/** What was used, in tokens. */
export interface Usage extends Readonly<z.output<typeof usageObject>> {}

const runDetailsObject = deferred(
  { id: "RunDetails", description: "The facts about a run that its record has no field for. There may be more." },
  () =>
    z.looseObject({
      run_id: runIdSchema,
      agent_name: agentNameSchema,
      session_id: sessionIdSchema,
      /** Null: none. */
      version: orNull(z.string()),
      durable: z.boolean(),
      status: runStatusSchema,
      created_at: timestampSchema,
      /** When its agent was asked to begin; null: at once. */
      start_at: orNull(timestampSchema),
      /** When its agent began; null before. */
      started_at: orNull(timestampSchema),
      finished_at: orNull(timestampSchema),
      /** Any JSON value of the run's creator; null: none. */
      metadata: z.unknown(),
      labels: z.record(z.string(), z.string()),
      /** The run that has started this one; null for a root. */
      parent_run_id: orNull(runIdSchema),
      root_run_id: runIdSchema,
      /** The run that this one is a fork of; null for no fork. */
      origin: orNull(z.looseObject({ run_id: runIdSchema, position: z.number().int(), by: z.unknown() })),
      /** The principal who has asked to cancel it; null: no one, or the application named none. */
      cancelled_by: z.unknown(),
      /** The number of its generation: 1, until its agent continues as new. */
      generation: z.number().int(),
      /** The number of the first generation whose events are kept, with which the transcript begins: see `retention.keepGenerations`. */
      first_generation: z.number().int(),
      /** The runs that this one has started. */
      children: z.array(runIdSchema),
      /** What the run has used so far; null: nothing was reported. */
      usage: orNull(usageObject),
      /** How many tokens the run may use with its sub-runs, and how many of these are left; null: as many as it likes. */
      budget: orNull(z.object({ total_tokens: z.number().int(), remaining_tokens: z.number().int() })),
      /** The id of the last event. A reader that continues after it gets all that follows. */
      last_event_id: z.number().int(),
      /** All open questions; the first one is the run's await request. */
      await_requests: z.array(openQuestionObject),
      /** The keys of what the run waits for. */
      waits_for: z.array(z.string()),
      /** Where the code and the log of a durable run disagree; null for a run that is not blocked. */
      blocked: orNull(z.looseObject({ position: z.number().int(), expected: z.string(), asked: z.string() })),
    }),
);

/** Describes the details of a run. */
export const runDetailsSchema: z.ZodType = runDetailsObject;

const messageReceiptObject = deferred(
  { id: "MessageReceipt", description: "Says that the store has a message to a run." },
  () => z.object({ run_id: runIdSchema }),
);

/** Describes the answer to a message that was sent to a run. */
export const messageReceiptSchema: z.ZodType = messageReceiptObject;

/** What every detail has. */
const place = {
  /** The number of the detail among those of the run, from 1 on. It is the same for every reader. */
  position: z.number().int(),
  /** When it happened. */
  at: timestampSchema,
};
const step = { ...place, key: z.string(), name: z.string(), attempt: z.number().int() };
const receive = { ...place, key: z.string(), name: z.string() };
const subRun = { ...place, key: z.string(), agent_name: z.string(), run_id: runIdSchema };

const detailEventObject = deferred(
  { id: "RunDetailEvent", description: "Something that happened in a run, and that ACP has no event for." },
  () =>
    z.discriminatedUnion("type", [
      /** An attempt at a step begins. */
      z.object({ type: z.literal("step.started"), ...step }),
      /** An attempt at a step has failed, and another one begins: at once, or at the time `until`. */
      z.object({
        type: z.literal("step.attempt_failed"),
        ...step,
        error: errorSchema,
        until: timestampSchema.nullable(),
      }),
      /** A step has its result, from this attempt. */
      z.object({ type: z.literal("step.completed"), ...step }),
      /** A step has failed with this attempt, and is not tried again. */
      z.object({ type: z.literal("step.failed"), ...step, error: errorSchema }),
      /**
       * A step is tried again, after a crash or an error. What an earlier attempt has emitted does not count: the parts
       * in these events, from each first one to its last.
       */
      z.object({
        ...{ type: z.literal("output.torn"), ...place },
        events: z.array(z.object({ first: z.number().int(), last: z.number().int() })),
      }),
      z.object({ type: z.literal("sleep.started"), ...place, key: z.string(), until: timestampSchema }),
      z.object({
        ...{ type: z.literal("sleep.ended"), ...place, key: z.string() },
        /** `withdrawn`: its signal aborted, or the run ends. */
        how: z.enum(["elapsed", "withdrawn"]),
      }),
      /** The agent waits for a message. A receive that finds a message waits for none. */
      z.object({ type: z.literal("receive.started"), ...receive, until: orNull(timestampSchema) }),
      z.object({
        ...{ type: z.literal("receive.ended"), ...receive },
        /**
         * `rejected`: the message does not match the schema of the receive. `expired`: no message came in time.
         * `withdrawn`: its signal aborted, or the run ends.
         */
        how: z.enum(["message", "rejected", "expired", "withdrawn"]),
        /** The position of the message that it has taken; null for none. */
        message: orNull(z.number().int()),
        /** What is wrong with a message that is rejected, and where; null for any other end. */
        issues: orNull(z.array(z.object({ path: z.array(z.union([z.string(), z.number()])), message: z.string() }))),
      }),
      /** A message from outside has arrived. */
      z.object({
        ...{ type: z.literal("message.received"), ...place, name: z.string(), data: z.unknown() },
        /** The principal who sent it; null if the application named none. */
        by: z.unknown(),
      }),
      z.object({ type: z.literal("sub_run.started"), ...subRun }),
      z.object({
        ...{ type: z.literal("sub_run.ended"), ...subRun },
        /** How it has ended; null if it was refused. */
        status: orNull(runStatusSchema),
        /** Why it has failed, or was refused; null otherwise. */
        error: orNull(errorSchema),
      }),
      /** A question is open, also one that is not the first. */
      z.object({ type: z.literal("question.asked"), ...place, question: openQuestionObject }),
      z.object({
        ...{ type: z.literal("question.settled"), ...place, await_id: z.string() },
        /**
         * `default`: it has expired, and its default is the answer. `expired`: it has expired, and the run fails.
         * `withdrawn`: its signal aborted, or the run ends. For the question of a sub-run `withdrawn` says that it is
         * not open any more, and was not replied to.
         */
        how: z.enum(["answer", "default", "declined", "expired", "withdrawn"]),
        /** The principal who answered or declined; null if the application named none. */
        by: z.unknown(),
        /** Why the answer was declined; null if it was not, or for no given reason. */
        reason: orNull(z.string()),
        /** The answer: a message or an object; null for any other end. */
        answer: z.unknown(),
      }),
      /** A fork begins here. What comes before is what it has taken over from its origin. */
      z.object({
        ...{ type: z.literal("fork.started"), ...place },
        /** The run that it is a fork of. */
        origin_run_id: runIdSchema,
        /** The principal who has made the fork; null if the application named none. */
        by: z.unknown(),
      }),
      /** The agent has continued as new: it begins again from the top. */
      z.object({
        ...{ type: z.literal("generation.started"), ...place },
        /** The number of the generation, from 2 on. */
        generation: z.number().int(),
      }),
      z.object({
        ...{ type: z.literal("cancel.requested"), ...place },
        /** The principal who asked for it; null if the application named none. */
        by: z.unknown(),
      }),
      /** The agent has reported what it used. */
      z.object({
        ...{ type: z.literal("usage"), ...place },
        /** What was reported since the last such event. */
        usage: usageObject,
        /** What the run has used so far. */
        total: usageObject,
      }),
    ]),
);

/** Something that happened in a run, and that ACP has no event for. Told apart by `type`. */
export type DetailEvent = Readonly<z.output<typeof detailEventObject>>;

/** Describes a {@link DetailEvent}. */
export const detailEventSchema: z.ZodType<DetailEvent> = detailEventObject;

const detailedEventObject = deferred({ id: "DetailedEvent", description: "Something that happened in a run." }, () =>
  z.union([eventSchema, detailEventSchema]),
);

const detailedEventsObject = deferred(
  { id: "RunDetailedEventsListResponse", description: "The events of a run, with what ACP has no event for." },
  () => z.object({ events: z.array(detailedEventObject) }),
);

/** Describes the events of a run, with what ACP has no event for. */
export const detailedEventsSchema: z.ZodType = detailedEventsObject;
