import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { runCreateRequest, runResumeRequest } from "../protocol/arbitraries.ts";
import type { Reply } from "./client.ts";
import { Client } from "./client.ts";
import { inProcess } from "./mounts.ts";
import { extendedOpenApi, openApi } from "./openapi-check.ts";
import { makeWorld } from "./world.ts";

/*
 * The service takes each request that the OpenAPI document allows, and refuses any other with 422. The document cannot
 * express the limits of a host, that two ids have to be equal, and that an absolute URL can be parsed.
 */

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly schema: object;
}

const ajv = new Ajv2020({ strict: false, validateFormats: false });
// The components of ACP are the same in both documents.
ajv.addSchema({ $id: "document", ...extendedOpenApi });

const runtime = makeWorld();
const client = new Client(await inProcess.open(runtime));
const extended = new Client(await inProcess.open(runtime, { extensions: true }));
const asked = await client.run("asker", "x");
afterAll(() => runtime.close({ drainMs: 0 }));

/** The schemas as they are compiled, which takes longer than to validate a value. */
const compiled = new Map<string, (value: unknown) => unknown>();

/** Whether the document allows a value. */
function allows(schema: object, value: unknown): boolean {
  const text = JSON.stringify(schema).replaceAll('"#/components', '"document#/components');
  const validate = compiled.get(text) ?? ajv.compile(JSON.parse(text));
  compiled.set(text, validate);
  return validate(value) === true;
}

function isTaken({ status, json }: Reply): boolean {
  const { reason } = (json?.["data"] ?? {}) as { reason?: unknown };
  return !(status === 422 && reason === "invalid_argument");
}

const part = { content: "x" };
const message = { parts: [part] };
const id = "0f8fad5b-d9cb-469f-a165-70867728950e";
const creating = { agent_name: "echo", input: [message] };

const bodies: readonly (readonly [title: string, isAllowed: boolean, body: unknown])[] = [
  ["the least", true, creating],
  ["no agent", false, { input: [] }],
  ["no input", false, { agent_name: "echo" }],
  ["an agent's name with a space", false, { ...creating, agent_name: "a b" }],
  ["an agent's name that is too long", false, { ...creating, agent_name: "a".repeat(64) }],
  ["null where there is a default", true, { ...creating, mode: null, session_id: null, session: null }],
  ["an unknown mode", false, { ...creating, mode: "later" }],
  ["a session id without dashes", true, { ...creating, session_id: id.replaceAll("-", "").toUpperCase() }],
  ["a session id that is none", false, { ...creating, session_id: "mine" }],
  ["an empty session", true, { ...creating, session: {} }],
  ["a session with a relative URL", false, { ...creating, session: { history: ["/resources/1"] } }],
  ["a session with a URL that is not of HTTP", false, { ...creating, session: { state: "file:///etc/passwd" } }],
  ["no messages", true, { ...creating, input: [] }],
  ["a message that is text", false, { ...creating, input: ["hi"] }],
  ["a message without parts", false, { ...creating, input: [{ role: "user" }] }],
  ["an unknown role", false, { ...creating, input: [{ ...message, role: "assistant" }] }],
  ["a message with times", true, { ...creating, input: [{ ...message, created_at: "2026-01-31T12:00+01:00" }] }],
  ["a time that is none", false, { ...creating, input: [{ ...message, created_at: "yesterday" }] }],
  ["a day that is none", false, { ...creating, input: [{ ...message, completed_at: "2026-02-30T12:00:00Z" }] }],
  ["a part with a further key", true, { ...creating, input: [{ parts: [{ ...part, own: {} }] }] }],
  ["a part with neither content nor URL", true, { ...creating, input: [{ parts: [{}] }] }],
  ["content beside a URL", false, { ...creating, input: [{ parts: [{ content: "", content_url: "data:,x" }] }] }],
  ["content beside null", true, { ...creating, input: [{ parts: [{ content: "x", content_url: null }] }] }],
  ["a relative URL", false, { ...creating, input: [{ parts: [{ content_url: "/x" }] }] }],
  ["an unknown encoding", false, { ...creating, input: [{ parts: [{ ...part, content_encoding: "hex" }] }] }],
  ["metadata of an unknown kind", false, { ...creating, input: [{ parts: [{ ...part, metadata: { kind: "x" } }] }] }],
  ["metadata without a kind", false, { ...creating, input: [{ parts: [{ ...part, metadata: {} }] }] }],
  ["a body that is a list", false, [creating]],
];

const answers: readonly (readonly [title: string, isAllowed: boolean, body: unknown])[] = [
  ["a message", true, { await_resume: { type: "message", message } }],
  ["a message without a type", true, { await_resume: { message } }],
  ["a message of the type null", true, { await_resume: { type: null, message } }],
  ["any other object", true, { await_resume: { ok: true } }],
  ["an empty object", true, { await_resume: {} }],
  ["an object of another type with a message", true, { await_resume: { type: "x", message: { parts: [7] } } }],
  ["a key `message` whose value is no message", true, { await_resume: { message: "hi" } }],
  ["no answer", false, {}],
  ["null", false, { await_resume: null }],
  ["text", false, { await_resume: "yes" }],
  ["the type of a message alone", false, { await_resume: { type: "message" } }],
  ["an invalid message", false, { await_resume: { type: "message", message: { parts: [7] } } }],
  ["an invalid message without a type", false, { await_resume: { message: { parts: [7] } } }],
  ["the id of a question", true, { await_id: "ask#1", await_resume: { ok: true } }],
  ["null as the id of a question", true, { await_id: null, await_resume: { ok: true } }],
  ["an empty id of a question", false, { await_id: "", await_resume: { ok: true } }],
  ["a run id that is none", false, { run_id: "mine", await_resume: { ok: true } }],
];

/** Bodies that answer a run of a service with extensions. */
const replies: typeof answers = [
  ...answers,
  ["a decline", true, { decline: {} }],
  ["a decline with a reason, of one question", true, { decline: { reason: "no" }, await_id: "await#1" }],
  ["a decline with nulls", true, { decline: { reason: null }, await_resume: null, await_id: null, mode: null }],
  ["a decline with a further key", true, { decline: { because: 7 } }],
  ["a decline beside an answer", false, { decline: {}, await_resume: { ok: true } }],
  ["null beside an answer", true, { decline: null, await_resume: { ok: true } }],
  ["null alone", false, { decline: null }],
  ["a decline that is text", false, { decline: "no" }],
  ["a decline that is text, beside an answer", false, { decline: "no", await_resume: { ok: true } }],
  ["an empty reason", false, { decline: { reason: "" } }],
  ["a reason that is a number", false, { decline: { reason: 7 } }],
  ["an unknown mode", false, { decline: {}, mode: "later" }],
];

const queries: Readonly<
  Record<string, Readonly<Record<string, readonly (readonly [text: string, isAllowed: boolean])[]>>>
> = {
  "/agents": {
    limit: [...few("1", "1000", "007"), ...bad("0", "1001", "-1", "1.5", "x", "")],
    offset: [...few("0", "9007199254740991"), ...bad("9007199254740992", "9007199254740993", "-1", "x", "")],
  },
  "/runs": {
    limit: [...few("1", "1000"), ...bad("0", "1001", "")],
    offset: [...few("0", "9007199254740991"), ...bad("9007199254740992", "")],
    agent_name: [...few("echo", "unknown"), ...bad("", "a b", "a".repeat(64))],
    session_id: [...few(id, id.replaceAll("-", "")), ...bad("bad", "")],
    status: [...few("awaiting", "in-progress"), ...bad("done", "")],
    roots: [...few("true", "false"), ...bad("1", "", "TRUE")],
  },
  "/runs/{run_id}/events": { until: [...few("rest", "end"), ...bad("now", "")] },
};

function few(...texts: readonly string[]) {
  return texts.map((text) => [text, true] as const);
}

function bad(...texts: readonly string[]) {
  return texts.map((text) => [text, false] as const);
}

/** The bodies are the same each time. AGREEMENT_SEED gives others. */
const SEED = Number(process.env["AGREEMENT_SEED"] ?? 1);

describe("the OpenAPI document and the service agree on", () => {
  it.each(bodies)("the body that starts a run: %s", async (_title, isAllowed, body) => {
    expect(allows({ $ref: "#/components/schemas/RunCreateRequest" }, body)).toBe(isAllowed);
    expect(isTaken(await client.post("/runs", body))).toBe(isAllowed);
  });

  it.each(answers)("the body that answers a run: %s", async (_title, isAllowed, body) => {
    expect(allows({ $ref: "#/components/schemas/RunResumeRequest" }, body)).toBe(isAllowed);
    const { json } = await client.run("asker", "x");
    expect(isTaken(await client.post(`/runs/${json["run_id"]}`, body))).toBe(isAllowed);
  });

  it.each(replies)("the body that answers a run, with extensions: %s", async (_title, isAllowed, body) => {
    const { requestBody } = extendedOpenApi.paths["/runs/{run_id}"]?.["post"] ?? {};
    expect(allows(requestBody?.content["application/json"]?.schema ?? {}, body)).toBe(isAllowed);
    const { json } = await extended.run("asker", "x");
    expect(isTaken(await extended.post(`/runs/${json["run_id"]}`, body))).toBe(isAllowed);
  });

  const rows = Object.entries(queries).flatMap(([path, parameters]) =>
    Object.entries(parameters).flatMap(([name, texts]) =>
      texts.map(([text, isAllowed]) => ({ path, name, text, isAllowed })),
    ),
  );
  it.each(rows)("$path?$name=$text", async ({ path, name, text, isAllowed }) => {
    expect(allows(parameter(path, "query", name).schema, queryValue(text))).toBe(isAllowed);
    const real = path.replace("{run_id}", String(asked.json["run_id"]));
    expect(isTaken(await client.get(`${real}?${new URLSearchParams({ [name]: text })}`))).toBe(isAllowed);
  });

  it("every parameter of a query", () => {
    for (const path of Object.keys(openApi.paths)) {
      const names = parametersOf(path)
        .filter((one) => one.in === "query")
        .map(({ name }) => name);
      expect(Object.keys(queries[path] ?? {}).sort(), path).toEqual(names.sort());
    }
  });

  it.each([
    ["Last-Event-ID", "1", true],
    ["Last-Event-ID", "1".repeat(16), false],
    ["Last-Event-ID", "x", false],
  ] as const)("the header %s: %s", async (name, text, isAllowed) => {
    expect(allows(parameter("/runs/{run_id}/events", "header", name).schema, text)).toBe(isAllowed);
    const headers = { accept: "text/event-stream", [name]: text };
    expect(isTaken(await client.get(`/runs/${asked.json["run_id"]}/events`, headers))).toBe(isAllowed);
  });

  it("bodies that start a run and have one random fault", async () => {
    const request = runCreateRequest.map((body) => ({
      ...body,
      ...("session" in body && { session: ownSession(body["session"]) }),
    }));
    await fc.assert(
      fc.asyncProperty(withOddity(request), async (body) => {
        const isAllowed = allows({ $ref: "#/components/schemas/RunCreateRequest" }, body);
        expect(isTaken(await client.post("/runs", body))).toBe(isAllowed);
      }),
      { numRuns: 500, seed: SEED },
    );
  });

  it("bodies that answer a run and have one random fault", async () => {
    await fc.assert(
      fc.asyncProperty(withOddity(runResumeRequest), async (body) => {
        const { json } = await client.run("asker", "x");
        const isAllowed = allows({ $ref: "#/components/schemas/RunResumeRequest" }, body);
        expect(isTaken(await client.post(`/runs/${json["run_id"]}`, body))).toBe(isAllowed);
      }),
      { numRuns: 500, seed: SEED },
    );
  });
});

function parametersOf(path: string): readonly Parameter[] {
  const { get = {} } = openApi.paths[path] ?? {};
  return "parameters" in get ? (get.parameters as readonly Parameter[]) : [];
}

function parameter(path: string, where: string, name: string): Parameter {
  const found = parametersOf(path).find((one) => one.in === where && one.name === name);
  if (found === undefined) throw new Error(`The document has no ${name} at ${path}.`);
  return found;
}

/** The value of a text in a query. */
function queryValue(text: string): unknown {
  if (text === "true" || text === "false") return text === "true";
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** A session without URLs: the service does not fetch those of other servers. */
function ownSession(session: unknown): unknown {
  return session && { ...session, history: [], state: null };
}

const GONE = Symbol("gone");
const oddities = fc.constantFrom<unknown>(
  ...[GONE, null, "", "x", "/x", "message", "user", "2026-01-31", "2026-02-30T12:00:00Z", 0, -1, 1.5, true],
  ...[
    [],
    ["x"],
    [null],
    {},
    { parts: [] },
    { parts: [7] },
    { type: "message" },
    { kind: "citation", start_index: 0.5 },
  ],
);

/** A value with one element, at any depth, removed or replaced. */
function withOddity(value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc.tuple(value, fc.nat(), oddities).map(([original, at, oddity]) => {
    const copy: unknown = JSON.parse(JSON.stringify(original));
    const places = placesIn(copy);
    const [holder, key] = places[at % places.length] ?? [{}, ""];
    if (oddity === GONE) Reflect.deleteProperty(holder, key);
    else Reflect.set(holder, key, structuredClone(oddity));
    return JSON.parse(JSON.stringify(copy)) as unknown;
  });
}

function placesIn(value: unknown): readonly (readonly [holder: object, key: string])[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => [[value, key] as const, ...placesIn(inner)]);
}
