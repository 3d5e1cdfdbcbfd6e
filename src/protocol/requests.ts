import * as z from "zod";
import { omitAbsent, withDefault } from "./absent.ts";
import { agentManifestSchema, agentNameSchema } from "./agent.ts";
import { eventSchema } from "./event.ts";
import { runIdSchema, sessionIdSchema } from "./identifier.ts";
import { listOf } from "./json.ts";
import { messageSchema } from "./message.ts";
import { deferred } from "./registry.ts";
import { awaitResumeSchema, runModeSchema, runSchema } from "./run.ts";
import { postedSessionSchema } from "./session.ts";

const runCreateObject = deferred({ id: "RunCreateRequest", description: "Starts a run." }, () =>
  z
    .object({
      agent_name: agentNameSchema,
      session_id: sessionIdSchema.nullish(),
      /** A session that the client brings along. */
      session: postedSessionSchema.nullish(),
      /** May be empty. */
      input: listOf(messageSchema),
      /** Default `sync`. */
      mode: withDefault(runModeSchema, "sync"),
    })
    .transform(omitAbsent("session_id", "session")),
);

/** The body that starts a run (ACP 1.0). */
export interface RunCreateRequest extends Readonly<z.output<typeof runCreateObject>> {}

/** Reads a {@link RunCreateRequest}. Default: `mode` `sync`. */
export const runCreateRequestSchema: z.ZodType<RunCreateRequest, z.input<typeof runCreateObject>> = runCreateObject;

const runResumeObject = deferred({ id: "RunResumeRequest", description: "Answers what a run is waiting for." }, () =>
  z
    .object({
      /** Repeats the id of the path. */
      run_id: runIdSchema.nullish(),
      /** The await that is answered; default: the one that the run shows. */
      await_id: z.string().min(1, "expected the id of a question").nullish(),
      await_resume: awaitResumeSchema,
      /** Default `sync`. */
      mode: withDefault(runModeSchema, "sync"),
    })
    .transform(omitAbsent("run_id", "await_id")),
);

/** The body that resumes a run (ACP 1.0). */
export interface RunResumeRequest extends Readonly<z.output<typeof runResumeObject>> {}

/** Reads a {@link RunResumeRequest}. Default: `mode` `sync`. */
export const runResumeRequestSchema: z.ZodType<RunResumeRequest, z.input<typeof runResumeObject>> = runResumeObject;

const agentsListObject = deferred({ id: "AgentsListResponse", description: "A list of agents." }, () =>
  z.object({ agents: listOf(agentManifestSchema) }),
);

/** A list of agents (ACP 1.0, AgentsListResponse). */
export interface AgentsListResponse extends Readonly<z.output<typeof agentsListObject>> {}

/** Describes an {@link AgentsListResponse}. */
export const agentsListResponseSchema: z.ZodType<
  AgentsListResponse,
  z.input<typeof agentsListObject>
> = agentsListObject;

const runsListObject = deferred({ id: "RunsListResponse", description: "A list of runs." }, () =>
  z.object({ runs: listOf(runSchema) }),
);

/** A list of runs. */
export interface RunsListResponse extends Readonly<z.output<typeof runsListObject>> {}

/** Describes a {@link RunsListResponse}. */
export const runsListResponseSchema: z.ZodType<RunsListResponse, z.input<typeof runsListObject>> = runsListObject;

const runEventsListObject = deferred({ id: "RunEventsListResponse", description: "The events of a run so far." }, () =>
  z.object({ events: listOf(eventSchema) }),
);

/** The events of a run so far (ACP 1.0, RunEventsListResponse). */
export interface RunEventsListResponse extends Readonly<z.output<typeof runEventsListObject>> {}

/** Describes a {@link RunEventsListResponse}. */
export const runEventsListResponseSchema: z.ZodType<
  RunEventsListResponse,
  z.input<typeof runEventsListObject>
> = runEventsListObject;
