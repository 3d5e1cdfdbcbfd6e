import * as z from "zod";
import { omitAbsent, orNull, withDefault } from "./absent.ts";
import { agentNameSchema } from "./agent.ts";
import { runIdSchema } from "./identifier.ts";
import { messageSchema } from "./message.ts";
import { deferred } from "./registry.ts";
import { runModeSchema } from "./run.ts";
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
  z.looseObject({
    await_id: z.string(),
    /** The name that the agent gave it; null for none. */
    name: orNull(z.string()),
    /** What is asked for. */
    kind: z.enum(["input", "approval", "auth"]),
    message: messageSchema,
    /** When it expires; null for never. */
    expires_at: orNull(timestampSchema),
    /** The question of the sub-run that asks; null for a question of the run itself. */
    of: orNull(z.looseObject({ run_id: runIdSchema, await_id: z.string() })),
  }),
);

const runDetailsObject = deferred(
  { id: "RunDetails", description: "The facts about a run that its record has no field for. There may be more." },
  () =>
    z.looseObject({
      run_id: runIdSchema,
      agent_name: agentNameSchema,
      /** Null: none. */
      version: orNull(z.string()),
      durable: z.boolean(),
      /** Any JSON value of the run's creator; null: none. */
      metadata: z.unknown(),
      labels: z.record(z.string(), z.string()),
      /** The run that has started this one; null for a root. */
      parent_run_id: orNull(runIdSchema),
      root_run_id: runIdSchema,
      /** The runs that this one has started. */
      children: z.array(runIdSchema),
      /** All open questions; the first one is the run's await request. */
      await_requests: z.array(openQuestionObject),
      /** The keys of what the run waits for. */
      waits_for: z.array(z.string()),
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
