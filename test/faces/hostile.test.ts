import { AgentRuntime } from "cadenza";
import { createHandler } from "cadenza/ai-sdk";
import { expect, test } from "vitest";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import type { Random } from "../harness/random.ts";

const options = { basePath: "/chat", limits: { maxBodyBytes: 20_000 } };

function open(tenant = "") {
  const runtime = new AgentRuntime({ retention: { maxRuns: 200 } });
  runtime.register("echo", (input) => input).register("asks", async (_input, { ask }) => ask("Who?"));
  const authorize = ({ headers }: { readonly headers: Readonly<Record<string, string | undefined>> }) => ({
    tenant: headers["x-tenant"] ?? tenant,
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

/** A body of a chat page in which some values are others. */
function bodyFrom(random: Random): unknown {
  const broken = (value: unknown): unknown => {
    if (random.chance(0.08)) return random.pick(odd);
    if (Array.isArray(value)) return value.map(broken);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).flatMap(([key, inner]) => (random.chance(0.04) ? [] : [[key, broken(inner)]])),
    );
  };
  const part = random.pick([{ type: "text", text: "hi" }, ...odd]);
  const role = random.pick(["user", "assistant", "system"]);
  const message = { id: random.pick(["m1", "m2", "\u0000"]), role, parts: [part, { type: "text", text: "x" }] };
  const trigger = random.pick(["submit-message", "regenerate-message", "other"]);
  return broken({ id: random.pick(["c1", "c2", "../x", ""]), messages: [message, message], trigger, messageId: "m1" });
}

test(
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

test("what belongs to another tenant does not exist", async () => {
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
