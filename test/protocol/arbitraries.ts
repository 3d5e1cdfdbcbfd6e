import fc from "fast-check";
import { eventTypes } from "../../src/protocol/event.ts";
import { runModes, runStatuses } from "../../src/protocol/run.ts";
import { codePoint } from "../harness/code-points.ts";

/*
 * Random values of clients and agents: keys are present, absent or null, and some are unknown.
 */

const json = fc.jsonValue({ maxDepth: 2 });
const text = fc.string({ unit: "grapheme", maxLength: 12 });

/** A URL of the web, with any text in its path. */
const url = fc
  .tuple(fc.constantFrom("http", "https"), fc.webAuthority(), fc.array(fc.string({ unit: codePoint })))
  .map(([scheme, authority, path]) => [`${scheme}://${authority}`, ...path.map(encodeURIComponent)].join("/"));

/** A value, or null. */
function orNull<T>(value: fc.Arbitrary<T>) {
  return fc.option(value, { nil: null });
}

type Keys = Readonly<Record<string, fc.Arbitrary<unknown>>>;

/** An object with all keys of `required` and some of `optional`, and now and then with an unknown one. */
function record(required: Keys, optional: Keys): fc.Arbitrary<Record<string, unknown>> {
  const keys: Keys = { ...required, ...optional, x_unknown: json };
  return fc.record(keys, { noNullPrototype: true, requiredKeys: Object.keys(required) });
}

/** An object as `JSON.parse` gives it. Some of its keys have a meaning for prototypes. */
const jsonObject = fc.dictionary(fc.oneof(text, fc.constantFrom("constructor", "prototype", "type")), json, {
  maxKeys: 4,
  noNullPrototype: true,
});

/** An ISO 8601 date-time in UTC. */
export const utcTimestamp = fc
  .date({ min: new Date("1970-01-01"), max: new Date("2999-12-31"), noInvalidDate: true })
  .map((date) => date.toISOString());

/** An ISO 8601 date-time with more digits than milliseconds, and any zone or none. */
export const timestamp = fc
  .tuple(utcTimestamp, fc.stringMatching(/^\d{0,6}$/), fc.constantFrom("Z", "", "+00:00", "-03:30"))
  .map(([utc, digits, zone]) => utc.replace("Z", digits + zone));

export const uuid = fc.uuid();

const agentName = fc.stringMatching(/^[A-Za-z0-9_-]{1,63}$/);
const role = fc.oneof(
  fc.constantFrom("user", "agent"),
  agentName.map((name) => `agent/${name}`),
);

const citation = record(
  { kind: fc.constant("citation") },
  {
    start_index: orNull(fc.nat()),
    end_index: orNull(fc.nat()),
    url: orNull(url),
    title: orNull(text),
    description: orNull(text),
  },
);

const trajectory = record(
  { kind: fc.constant("trajectory") },
  { message: orNull(text), tool_name: orNull(text), tool_input: orNull(jsonObject), tool_output: orNull(jsonObject) },
);

const partKeys = {
  name: orNull(text),
  content_type: orNull(fc.constantFrom("text/plain", "application/json", "image/png")),
  content_encoding: orNull(fc.constantFrom("plain", "base64")),
  metadata: orNull(fc.oneof(citation, trajectory)),
};

export const messagePart = fc.oneof(
  record({}, { ...partKeys, content: orNull(text), content_url: fc.constant(null) }),
  record({}, { ...partKeys, content_url: orNull(url), content: fc.constant(null) }),
);

const parts = fc.array(messagePart, { maxLength: 3 });

export const message = record(
  { parts },
  { role: orNull(role), created_at: orNull(timestamp), completed_at: orNull(timestamp) },
);

/** A message in the form in which the service sends it. */
const sentMessage = fc.record(
  { role, parts, created_at: utcTimestamp, completed_at: orNull(utcTimestamp) },
  { noNullPrototype: true },
);

const error = record(
  { code: fc.constantFrom("server_error", "invalid_input", "not_found"), message: text },
  { data: orNull(jsonObject) },
);

const awaitRequest = record(
  { type: fc.constant("message"), message: sentMessage, await_id: text },
  { expires_at: orNull(utcTimestamp) },
);

export const run = record(
  {
    agent_name: agentName,
    session_id: uuid,
    run_id: uuid,
    status: fc.constantFrom(...runStatuses),
    output: fc.array(sentMessage, { maxLength: 2 }),
    created_at: utcTimestamp,
  },
  { await_request: orNull(awaitRequest), error: orNull(error), finished_at: orNull(utcTimestamp) },
);

export const event = fc.oneof(
  record({ type: fc.constantFrom(...eventTypes.filter((type) => type.startsWith("run."))), run }, {}),
  record({ type: fc.constantFrom("message.created", "message.completed"), message: sentMessage }, {}),
  record({ type: fc.constant("message.part"), part: messagePart }, {}),
  record({ type: fc.constant("generic"), generic: jsonObject }, {}),
  record({ type: fc.constant("error"), error }, {}),
);

const person = record({ name: text }, { email: orNull(text), url: orNull(url) });
const texts = orNull(fc.array(text, { maxLength: 2 }));

export const metadata = record(
  {},
  {
    annotations: orNull(jsonObject),
    documentation: orNull(text),
    license: orNull(text),
    programming_language: orNull(text),
    natural_languages: texts,
    framework: orNull(text),
    capabilities: orNull(fc.array(record({ name: text, description: text }, {}), { maxLength: 2 })),
    domains: texts,
    tags: texts,
    created_at: orNull(utcTimestamp),
    updated_at: orNull(utcTimestamp),
    author: orNull(person),
    contributors: orNull(fc.array(person, { maxLength: 2 })),
    links: orNull(
      fc.array(record({ type: fc.constantFrom("source-code", "homepage"), url: url }, {}), { maxLength: 2 }),
    ),
    dependencies: orNull(
      fc.array(record({ type: fc.constantFrom("agent", "tool", "model"), name: text }, {}), { maxLength: 2 }),
    ),
    recommended_models: texts,
  },
);

const figure = orNull(fc.double({ min: 0, max: 100, noNaN: true }).map(Math.abs));
const contentTypes = orNull(fc.array(text, { minLength: 1, maxLength: 2 }));

export const manifest = record(
  { name: agentName },
  {
    description: orNull(text),
    input_content_types: contentTypes,
    output_content_types: contentTypes,
    metadata: orNull(metadata),
    status: orNull(record({}, { avg_run_tokens: figure, avg_run_time_seconds: figure, success_rate: figure })),
  },
);

const history = fc.array(url, { maxLength: 3 });

export const sessionDescriptor = record({ id: uuid, history }, { state: orNull(url) });

export const runCreateRequest = record(
  { agent_name: agentName, input: fc.array(message, { maxLength: 2 }) },
  {
    session_id: orNull(uuid),
    session: orNull(record({}, { id: orNull(uuid), history: orNull(history), state: orNull(url) })),
    mode: orNull(fc.constantFrom(...runModes)),
  },
);

export const awaitResume = fc.oneof(
  record({ type: fc.constant("message"), message }, {}),
  record({ message }, { type: fc.constant(null) }),
  jsonObject.filter(({ type }) => type !== "message"),
);

export const runResumeRequest = record(
  { await_resume: awaitResume },
  {
    run_id: orNull(uuid),
    await_id: orNull(text.filter((id) => id !== "")),
    mode: orNull(fc.constantFrom(...runModes)),
  },
);
