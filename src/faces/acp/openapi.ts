import { componentSchemas } from "../../protocol/json-schema.ts";
import { componentRef } from "../../protocol/registry.ts";

type JsonSchema = Readonly<Record<string, unknown>>;

/** What one endpoint accepts and returns. */
interface Operation {
  readonly method: "get" | "post";
  readonly path: string;
  readonly id: string;
  readonly tag: "agents" | "runs" | "sessions" | "service";
  readonly summary: string;
  readonly parameters?: readonly JsonSchema[];
  /** The schema of the body. */
  readonly body?: JsonSchema;
  /** The response of each success status. */
  readonly gives: Readonly<Record<string, Answer>>;
}

interface Answer {
  readonly description: string;
  /** Left out if there is no content. */
  readonly schema?: JsonSchema;
  /** The events of the stream that the response may be instead. */
  readonly streams?: "Event" | "DetailedEvent";
  /** Whether the response has the header `Run-ID`. */
  readonly names?: true;
}

const runParameter = pathParameter("run_id", "Identifier of a run.", ref("RunId"));
const sessionParameter = pathParameter("session_id", "Identifier of a session.", ref("SessionId"));
const keyParameter = headerParameter(
  "Idempotency-Key",
  "The same key with the same body gives the same run; with another body it is refused with 409.",
  { type: "string", minLength: 1, maxLength: 255 },
);
const messageKeyParameter = headerParameter(
  "Idempotency-Key",
  "A message with the same key arrives once; another message with the key is refused with 409.",
  { type: "string", minLength: 1, maxLength: 255 },
);
const whole = (minimum: number, maximum: number): JsonSchema => ({ type: "integer", minimum, maximum });
const run = (description: string): Answer => ({ description, schema: ref("Run"), names: true });
const runOrStream = (description: string): Answer => ({ ...run(description), streams: "Event" });
const session = { "200": { description: "The session.", schema: ref("Session") } };

const resume = { method: "post", path: "/runs/{run_id}", id: "resumeRun", tag: "runs" } as const;

const events = {
  ...{ method: "get", path: "/runs/{run_id}/events", id: "listRunEvents", tag: "runs" },
  summary: "Read the events of a run so far; as an event stream, follow them until the run rests",
  parameters: [
    runParameter,
    headerParameter("Last-Event-ID", "The last event that is known already.", {
      type: "string",
      pattern: "^[0-9]{0,15}$",
    }),
    queryParameter("until", "Where a stream ends: when the run rests (the default), or with the run.", {
      enum: ["rest", "end"],
    }),
  ],
  gives: {
    "200": { description: "The events.", schema: ref("RunEventsListResponse"), streams: "Event", names: true },
    "204": { description: "To a stream after the last event of a run that has ended: nothing follows.", names: true },
  },
} as const satisfies Operation;

/** The operations of ACP. */
const operations: readonly Operation[] = [
  {
    ...{ method: "get", path: "/ping", id: "ping", tag: "service", summary: "Say that the service is there" },
    gives: { "200": { description: "The service is there.", schema: { type: "object" } } },
  },
  {
    ...{ method: "get", path: "/agents", id: "listAgents", tag: "agents", summary: "List the agents" },
    parameters: [
      queryParameter("limit", "How many; default: all.", whole(1, 1_000)),
      queryParameter("offset", "How many to skip; default: none.", whole(0, Number.MAX_SAFE_INTEGER)),
    ],
    gives: { "200": { description: "The agents.", schema: ref("AgentsListResponse") } },
  },
  {
    ...{ method: "get", path: "/agents/{name}", id: "getAgent", tag: "agents", summary: "Read about an agent" },
    parameters: [pathParameter("name", "Name of an agent.", ref("AgentName"))],
    gives: { "200": { description: "The agent.", schema: ref("AgentManifest") } },
  },
  {
    ...{ method: "post", path: "/runs", id: "createRun", tag: "runs", summary: "Start a run" },
    parameters: [keyParameter],
    body: ref("RunCreateRequest"),
    gives: {
      "200": runOrStream("The run when it rests, or its events until then."),
      "202": run("The run was accepted."),
    },
  },
  {
    ...{ method: "get", path: "/runs", id: "listRuns", tag: "runs", summary: "List the runs, the newest first" },
    parameters: [
      queryParameter("agent_name", "Runs of this agent only.", ref("AgentName")),
      queryParameter("session_id", "Runs of this session only.", ref("SessionId")),
      queryParameter("status", "Runs with this status only.", ref("RunStatus")),
      queryParameter(
        "roots",
        "With true, runs that another run has started are left out; default: true with the status awaiting, else false.",
        { type: "boolean" },
      ),
      queryParameter("limit", "How many; default: 100.", whole(1, 1_000)),
      queryParameter("offset", "How many to skip; default: none.", whole(0, Number.MAX_SAFE_INTEGER)),
    ],
    gives: { "200": { description: "The runs.", schema: ref("RunsListResponse") } },
  },
  {
    ...{ method: "get", path: "/runs/{run_id}", id: "getRun", tag: "runs", summary: "Read a run" },
    parameters: [runParameter],
    gives: { "200": run("The run as it is now.") },
  },
  {
    ...{ ...resume, summary: "Answer what a run waits for" },
    parameters: [runParameter, keyParameter],
    body: ref("RunResumeRequest"),
    gives: {
      "200": runOrStream("The run when it rests again, or its events until then."),
      "202": run("The answer was accepted."),
    },
  },
  {
    ...{ method: "post", path: "/runs/{run_id}/cancel", id: "cancelRun", tag: "runs", summary: "Stop a run" },
    parameters: [runParameter],
    gives: { "202": run("The run is being cancelled, or has been.") },
  },
  events,
  ...["/sessions/{session_id}", "/session/{session_id}"].map(
    (path, index): Operation => ({
      ...{ method: "get", path, id: index === 0 ? "getSession" : "getSessionByOtherPath", tag: "sessions" },
      summary: "Read where the contents of a session are",
      parameters: [sessionParameter],
      gives: session,
    }),
  ),
  {
    ...{ method: "get", path: "/resources/{id}", id: "getResource", tag: "sessions" },
    summary: "Read a message of a session, or its state",
    parameters: [pathParameter("id", "As the URLs of a session have it.", { type: "string" })],
    gives: { "200": { description: "A message, or any JSON value.", schema: {} } },
  },
  {
    ...{ method: "get", path: "/openapi.json", id: "getOpenApi", tag: "service", summary: "Read this document" },
    gives: { "200": { description: "An OpenAPI document.", schema: { type: "object" } } },
  },
];

/** The operations that are not part of ACP, and those of ACP that take more with them. */
const extensions: readonly Operation[] = [
  {
    ...{ ...resume, summary: "Answer what a run waits for, or decline to" },
    parameters: [runParameter, keyParameter],
    body: {
      anyOf: [
        { allOf: [ref("RunResumeRequest"), { properties: { decline: { type: "null" } } }] },
        ref("RunDeclineRequest"),
      ],
    },
    gives: {
      "200": runOrStream("The run when it rests again, or its events until then."),
      "202": run("The answer, or the refusal to answer, was accepted."),
    },
  },
  {
    ...events,
    parameters: [
      ...events.parameters,
      queryParameter(
        "detail",
        "With true, also what ACP has no events for. In a stream these have no id: reconnect from the last id.",
        { type: "boolean" },
      ),
    ],
    gives: {
      ...events.gives,
      "200": {
        ...{ description: "The events.", streams: "DetailedEvent", names: true },
        schema: { anyOf: [ref("RunEventsListResponse"), ref("RunDetailedEventsListResponse")] },
      },
    },
  },
  {
    ...{ method: "get", path: "/runs/{run_id}/details", id: "getRunDetails", tag: "runs" },
    summary: "Read the facts about a run that its record has no field for",
    parameters: [runParameter],
    gives: { "200": { description: "The details of the run.", schema: ref("RunDetails"), names: true } },
  },
  {
    ...{ method: "post", path: "/runs/{run_id}/messages/{message_name}", id: "sendMessage", tag: "runs" },
    summary: "Send a message to a run, whose agent receives it by its name",
    parameters: [
      runParameter,
      pathParameter("message_name", "Name of the message.", { type: "string", minLength: 1, maxLength: 255 }),
      messageKeyParameter,
    ],
    body: { description: "The message: any JSON value." },
    gives: { "202": { description: "The store has the message.", schema: ref("MessageReceipt"), names: true } },
  },
];

let plain: string | undefined;
let extended: string | undefined;

/**
 * The description of the interface (OpenAPI 3.1), made from the schemas that read requests and describe responses.
 * `url` is the address of the service; `isExtended` adds what is not part of ACP. The cache holds the part without the
 * address, since clients decide how many addresses there are.
 */
export function openApiText(url: string, isExtended: boolean): string {
  let text: string;
  if (isExtended) {
    extended ??= textOf(openApi(true));
    text = extended;
  } else {
    plain ??= textOf(openApi(false));
    text = plain;
  }
  return `${text},"servers":[{"url":${JSON.stringify(url)}}]}`;
}

/** The JSON of a document, without its last brace. */
function textOf(document: object): string {
  return JSON.stringify(document).slice(0, -1);
}

function openApi(isExtended: boolean): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of isExtended ? [...operations, ...extensions] : operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: operationObject(operation) };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "Agent Run Service",
      version: "1.0.0",
      description: "Agents, and their runs: the Agent Run Service Interface, compatible with ACP 1.0.",
    },
    paths,
    components: { schemas: componentSchemas(isExtended) },
  };
}

function operationObject({ id, tag, summary, parameters, body, gives }: Operation): object {
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(parameters !== undefined && { parameters }),
    ...(body !== undefined && {
      requestBody: { required: true, content: { "application/json": { schema: body } } },
    }),
    responses: {
      ...Object.fromEntries(Object.entries(gives).map(([status, answer]) => [status, answerObject(answer)])),
      default: {
        description: "The request was refused.",
        headers: { "Retry-After": { description: "With 503: seconds to wait.", schema: { type: "string" } } },
        content: { "application/json": { schema: ref("Error") } },
      },
    },
  };
}

function answerObject({ description, schema, streams, names }: Answer): object {
  return {
    description,
    ...(names && { headers: { "Run-ID": { description: "The id of the run.", schema: ref("RunId") } } }),
    ...(schema !== undefined && {
      content: {
        "application/json": { schema },
        ...(streams !== undefined && { "text/event-stream": { schema: ref(streams) } }),
      },
    }),
  };
}

function ref(component: string): JsonSchema {
  return { $ref: componentRef(component) };
}

function pathParameter(name: string, description: string, schema: JsonSchema): JsonSchema {
  return { name, in: "path", required: true, description, schema };
}

function queryParameter(name: string, description: string, schema: JsonSchema): JsonSchema {
  return { name, in: "query", description, schema };
}

function headerParameter(name: string, description: string, schema: JsonSchema): JsonSchema {
  return { name, in: "header", description, schema };
}
