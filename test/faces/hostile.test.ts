import { EventSchemas } from "@ag-ui/core/schemas";
import { AgentRuntime } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import { describe, expect, it } from "vitest";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import { nextTurn } from "../harness/promises.ts";
import type { Random } from "../harness/random.ts";

const options = { basePath: "/chat", limits: { maxBodyBytes: 20_000 } };

function open(createHandler: typeof createAgUiHandler = createChatHandler) {
  const runtime = new AgentRuntime({ retention: { maxRuns: 200 } });
  runtime.register("echo", (input) => input).register("asks", async (_input, { ask }) => ask("Who?"));
  const authorize = ({ headers }: { readonly headers: Readonly<Record<string, string | undefined>> }) => ({
    tenant: headers["x-tenant"] ?? "",
  });
  const handler = createHandler(runtime, { ...options, authorize });
  const send = (method: string, path: string, body?: unknown, tenant?: string): Promise<Response> =>
    handler(
      new Request(`http://localhost/chat/${path}`, {
        method,
        headers: { "content-type": "application/json", ...(tenant !== undefined && { "x-tenant": tenant }) },
        ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
    );
  return { runtime, send };
}

const call = "00000000-0000-4000-8000-000000000000/ask#1";
const odd: readonly unknown[] = [
  ...[
    null,
    true,
    0,
    -1,
    1e308,
    "",
    "\u0000",
    "\ud800",
    "💥",
    "x".repeat(3_000),
    "__proto__",
    [],
    {},
    [[]],
    { type: 1 },
    { toString: 1 },
  ],
  ...[{ type: "text" }, { type: "text", text: 1 }, { type: "file", url: "data:,", mediaType: "" }, { type: "data-" }],
  ...[
    { type: "file", url: "data:text/plain,%", mediaType: "text/plain" },
    { type: "file", url: "http://", mediaType: "x" },
  ],
  { type: "dynamic-tool", toolName: "ask", toolCallId: call, state: "output-available", output: {} },
  { type: "dynamic-tool", toolName: "ask", toolCallId: "x/y", state: "approval-responded", approval: { approved: 1 } },
  { type: "tool-ask", toolCallId: call, state: "output-error" },
];

/** A value in which some values are others. */
function broken(random: Random, value: unknown): unknown {
  if (random.chance(0.08)) return random.pick(odd);
  if (Array.isArray(value)) return value.map((inner) => broken(random, inner));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) => (random.chance(0.04) ? [] : [[key, broken(random, inner)]])),
  );
}

/** A body of a chat page in which some values are others. */
function bodyFrom(random: Random): unknown {
  const part = random.pick([{ type: "text", text: "hi" }, ...odd]);
  const role = random.pick(["user", "assistant", "system"]);
  const message = { id: random.pick(["m1", "m2", "\u0000"]), role, parts: [part, { type: "text", text: "x" }] };
  const trigger = random.pick(["submit-message", "regenerate-message", "other"]);
  return broken(random, {
    id: random.pick(["c1", "c2", "../x", ""]),
    messages: [message, message],
    trigger,
    messageId: "m1",
  });
}

/** A body of an AG-UI host in which some values are others. */
function runInputFrom(random: Random, serial: number): unknown {
  const source = random.pick([
    { type: "data", value: "aGk=", mimeType: "image/png" },
    { type: "url", value: "x" },
    ...odd,
  ]);
  const content = random.pick([
    "hi",
    [
      { type: "text", text: "hi" },
      { type: "image", source },
    ],
    ...odd,
  ]);
  const role = random.pick(["user", "user", "assistant", "system", "tool", "developer", "activity", "other"]);
  const message = { id: random.pick(["m1", "\u0000"]), role, content };
  const entry = { interruptId: random.pick([call, "x", call.slice(0, 36)]), status: "resolved", payload: { ok: true } };
  return broken(random, {
    threadId: random.pick([`c${serial % 50}`, "../x", "", "x".repeat(300)]),
    runId: `run ${serial}`,
    messages: [message, message],
    ...(random.chance(0.2) && { resume: [entry, { ...entry, status: random.pick(["cancelled", "other"]) }] }),
    ...{ state: random.pick(odd), tools: [{ name: "locate" }], context: [], forwardedProps: random.pick(odd) },
  });
}

it(
  "any request to a chat gets an answer",
  async () => {
    const random = seededRandom();
    const { runtime, send } = open();
    const statuses = new Map<number, number>();
    for (let i = 0; i < amount(100_000, 2_000); i++) {
      const agent = random.pick(["echo", "asks", "missing", "%00"]);
      const chat = random.pick(["c1", "c2", "%2e%2e", "%F0", "x".repeat(300)]);
      const [method, path] = random.pick([
        ...Array.from({ length: 6 }, () => ["POST", agent] as const),
        ...([
          ["GET", `${agent}/${chat}/stream`],
          ["DELETE", `${agent}/${chat}/stream`],
        ] as const),
        ...([
          ["GET", `${agent}/${chat}/messages`],
          ["GET", `${agent}/${chat}/stream?run_id=${call}`],
          ["PUT", agent],
        ] as const),
      ]);
      const body =
        method === "POST" ? (random.chance(0.05) ? random.pick(["", "{", "[1", "null"]) : bodyFrom(random)) : undefined;
      const response = await send(method, path, body);
      const text = await response.text();
      expect(response.status, `${method} ${path} ${JSON.stringify(body)}: ${text}`).toBeLessThan(500);
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
    }
    for (const status of [200, 204, 400, 404, 405, 422])
      expect([status, statuses.get(status) ?? 0]).not.toEqual([status, 0]);
    await runtime.close({ drainMs: 0 });
  },
  LONG_MS,
);

it(
  "any request to a thread gets an answer",
  async () => {
    const random = seededRandom();
    const { runtime, send } = open(createAgUiHandler);
    const statuses = new Map<number, number>();
    for (let i = 0; i < amount(100_000, 1_000); i++) {
      const agent = random.pick(["echo", "echo", "asks", "missing", "%00"]);
      const thread = random.pick(["c1", "%2e%2e", "%F0", "", "x".repeat(300)]);
      const [method, path] = random.pick([
        ...Array.from({ length: 6 }, () => ["POST", agent] as const),
        ...([
          ["GET", `${agent}?threadId=${thread}`],
          ["DELETE", `${agent}?threadId=${thread}`],
        ] as const),
        ...([
          ["GET", agent],
          ["PUT", agent],
        ] as const),
      ]);
      const posted = random.chance(0.05) ? random.pick(["", "{", "[1", "null"]) : runInputFrom(random, i);
      const body = method === "POST" ? posted : undefined;
      const response = await send(method, path, body);
      const text = await response.text();
      expect(response.status, `${method} ${path} ${JSON.stringify(body)}: ${text}`).toBeLessThan(500);
      if (response.status === 200) {
        const said = text
          .split("\n")
          .flatMap((line) => (line.startsWith("data: ") ? [line.slice("data: ".length)] : []));
        for (const line of said) EventSchemas.parse(JSON.parse(line));
        expect(said[0]).toContain('"RUN_STARTED"');
        expect(said.at(-1)).toMatch(/"RUN_(FINISHED|ERROR)"/);
      } else if (response.status !== 204) expect(JSON.parse(text)).toHaveProperty("message");
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
    }
    for (const status of [200, 204, 400, 404, 405, 422])
      expect([status, statuses.get(status) ?? 0]).not.toEqual([status, 0]);
    await runtime.close({ drainMs: 0 });
  },
  LONG_MS,
);

it("a tool of a host whose name is no text is none", async () => {
  const { runtime, send } = open(createAgUiHandler);
  const messages = [{ id: "m1", role: "user", content: "hi" }];
  const input = { threadId: "c1", runId: "r1", messages, tools: [{ name: { toString: 1 } }, { name: null }] };
  const response = await send("POST", "echo", input);
  expect([response.status, await response.text()]).toEqual([200, expect.stringContaining("RUN_FINISHED")]);
  await runtime.close();
});

it("what belongs to another tenant does not exist", async () => {
  const { runtime, send } = open();
  const message = { id: "m1", role: "user", parts: [{ type: "text", text: "hi" }] };
  const asked = await send("POST", "asks", { id: "c1", messages: [message] }, "ours");
  const run_id = asked.headers.get("run-id") ?? "";
  await asked.text();
  const answer = {
    id: "m2",
    role: "assistant",
    parts: [
      { type: "dynamic-tool", toolName: "ask", toolCallId: `${run_id}/ask#1`, state: "output-available", output: {} },
    ],
  };
  const refused = await send("POST", "asks", { id: "c1", messages: [message, answer] }, "theirs");
  const missing = await send(
    "POST",
    "asks",
    { id: "c1", messages: [message, { ...answer, parts: [{ ...answer.parts[0], toolCallId: call }] }] },
    "theirs",
  );
  expect([refused.status, missing.status]).toEqual([404, 404]);
  expect((await refused.text()).replace(run_id, "")).toBe((await missing.text()).replace(call.slice(0, 36), ""));
  expect((await send("GET", `asks/c1/stream?run_id=${run_id}`, undefined, "theirs")).status).toBe(404);
  expect((await send("GET", "asks/c1/stream", undefined, "theirs")).status).toBe(204);
  expect(await (await send("GET", "asks/c1/messages", undefined, "theirs")).json()).toEqual({
    messages: [],
    run_id: null,
  });
  expect((await send("DELETE", "asks/c1/stream", undefined, "theirs")).status).toBe(204);
  expect((await runtime.scope({ tenant: "ours" }).getRun(run_id)).status).toBe("awaiting");
});

it("a thread, a run and an interrupt of another tenant do not exist", async () => {
  const { runtime, send } = open(createAgUiHandler);
  const input = { threadId: "c1", runId: "r1", messages: [{ id: "m1", role: "user", content: "hi" }] };
  const asked = await send("POST", "asks", input, "ours");
  const run_id = asked.headers.get("run-id") ?? "";
  expect(await asked.text()).toContain('"interrupt"');
  const answer = (id: string) => ({
    ...input,
    runId: "r2",
    resume: [{ interruptId: `${id}/ask#1`, status: "resolved", payload: "Ada" }],
  });
  const refused = await send("POST", "asks", answer(run_id), "theirs");
  const missing = await send("POST", "asks", answer(call.slice(0, 36)), "theirs");
  expect([refused.status, missing.status]).toEqual([404, 404]);
  expect((await refused.text()).replace(run_id, "")).toBe((await missing.text()).replace(call.slice(0, 36), ""));
  // A run of another thread, or of another agent, is no run of this one.
  for (const [agent, threadId] of [
    ["asks", "c2"],
    ["echo", "c1"],
  ] as const)
    expect((await send("POST", agent, { ...answer(run_id), threadId }, "ours")).status).toBe(404);
  const theirs = await (await send("GET", "asks?threadId=c1", undefined, "theirs")).text();
  expect(theirs).toContain('"messages":[]');
  expect(theirs).toBe(
    (await (await send("GET", "asks?threadId=none", undefined, "theirs")).text()).replaceAll("none", "c1"),
  );
  expect((await send("DELETE", "asks?threadId=c1", undefined, "theirs")).status).toBe(204);
  expect((await runtime.scope({ tenant: "ours" }).getRun(run_id)).status).toBe("awaiting");
});

const half = `${"long text ".repeat(3)}\ud800y`;
const emissions: readonly (readonly [what: string, value: object])[] = [
  ["a file", { name: "note.txt", content: half }],
  ["a picture", { content_type: "image/svg+xml", content: half }],
  ["JSON that is none", { content_type: "application/json", content: "{" }],
  ["a data part", { name: "data", content_type: "application/json", content: JSON.stringify({ half }) }],
  ["a text", { content: half }],
  [
    "JSON that is nested too deeply",
    { content_type: "application/json", content: `${"[".repeat(20_000)}${"]".repeat(20_000)}` },
  ],
];

describe.each([
  ["the chat", createChatHandler],
  ["AG-UI", createAgUiHandler],
] as const)("what an agent emits ends no process over %s", (_name, createHandler) => {
  const body = (agent: string) => ({
    ...{ id: agent, trigger: "submit-message", messageId: "m1" },
    ...{ threadId: agent, runId: "run 1", state: {}, tools: [], context: [], forwardedProps: {} },
    messages: [{ id: "m1", role: "user", parts: [{ type: "text", text: "hi" }], content: "hi" }],
  });

  it.each(emissions)("%s with half of an emoji, or broken", async (_what, value) => {
    const { runtime, send } = open(createHandler);
    runtime.register("shows", async function* () {
      await nextTurn();
      yield value;
      await nextTurn();
      yield value;
    });
    const response = await send("POST", "shows", body("shows"));
    expect(response.status).toBe(200);
    expect(await response.text()).toMatch(/finish/i);
    expect((await send("GET", "shows/shows/messages")).status).toBeLessThan(500);
    await runtime.close();
  });

  it.each([
    ["too many values", `[${"[],".repeat(100_000)}[]]`],
    ["a key __proto__", '{"__proto__":{"isAdmin":true}}'],
    ["a number that would lose digits", '{"id":9007199254740993}'],
    ["too many levels", `${"[".repeat(65)}${"]".repeat(65)}`],
  ])("and JSON with %s, which no body may have, is passed on as a text", async (_what, content) => {
    const { runtime, send } = open(createHandler);
    runtime.register("shows", async function* () {
      yield { name: "x", content_type: "application/json", content };
      yield { name: "x", content_type: "application/json", content: '{"fits":1}' };
    });
    const text = await (await send("POST", "shows", body("shows"))).text();
    expect(text).toContain(`"data":${JSON.stringify(content)}`);
    expect(text).toContain('"data":{"fits":1}');
    await runtime.close();
  });

  it("a question with a schema that is no JSON", async () => {
    const { runtime, send } = open(createHandler);
    runtime.register("shows", async (_input, { ask }) => {
      await nextTurn();
      const schema = { content_type: "application/schema+json", content: "{", content_encoding: "plain" } as const;
      return ask({ role: "agent", parts: [{ content: "Well?" }, schema] });
    });
    const response = await send("POST", "shows", body("shows"));
    expect(response.status).toBe(200);
    expect(await response.text()).toContain("Well?");
    expect((await send("GET", "shows/shows/messages")).status).toBeLessThan(500);
    await runtime.close({ drainMs: 0 });
  });
});
