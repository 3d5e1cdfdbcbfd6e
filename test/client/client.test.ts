import { AgentError, AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type { ClientOptions, RunView } from "cadenza/client";
import { ClientError, createClient } from "cadenza/client";
import { createAcpHandler } from "cadenza/http";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import * as z from "zod";
import { FakeClock } from "../harness/clock.ts";

const approval = z.object({ approved: z.boolean() });
const triage = defineAgent("triage", {
  input: z.object({ text: z.string() }),
  output: z.object({ category: z.enum(["refund", "other"]) }),
}).run(({ text }) => ({ category: text.includes("money") ? "refund" : "other" }));
const desk = defineAgent("desk", { durable: true, questions: { approval } }).run(async function* (
  _input,
  { ask, run },
) {
  yield "Looking";
  yield "…";
  await run("triage", { content_type: "application/json", content: '{"text":"money"}' });
  const { approved } = await ask("Refund 40 €?", { name: "approval" });
  yield { name: "receipt.pdf", content_type: "application/pdf", content: "aGk=", content_encoding: "base64" };
  yield approved ? "Refunded." : "Refused.";
});
const full = defineAgent("full", () => Promise.reject(new AgentError("no_seat", "The train is full.")));
const slow = defineAgent(
  "slow",
  (_input, { signal }) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    }),
);
const agents = [triage, desk, full, slow];

interface Set {
  readonly options: ClientOptions;
  readonly runtime: AgentRuntime;
  readonly clock: FakeClock;
  readonly requests: Request[];
  /** What the network does instead of the next requests. */
  readonly troubles: ((request: Request, send: () => Promise<Response>) => Promise<Response>)[];
}

function setUp({ extensions = true } = {}): Set {
  const clock = new FakeClock();
  const runtime = new AgentRuntime({ agents, clock, store: durable(new MemoryStore({ clock })) });
  const handler = createAcpHandler(runtime, { extensions });
  const requests: Request[] = [];
  const troubles: Set["troubles"] = [];
  const fetch: typeof globalThis.fetch = async (url, init) => {
    const request = new Request(url, init);
    requests.push(request);
    const send = (): Promise<Response> => handler(request);
    return (await troubles.shift()?.(request, send)) ?? send();
  };
  return { options: { url: "http://localhost/", fetch, backoffMs: 0 }, runtime, clock, requests, troubles };
}

const clientOf = (set: Set) => createClient<typeof agents>(set.options);

it("a call gives what the agent has returned", async () => {
  const client = clientOf(setUp());
  const { category } = await client.call("triage", { text: "I want my money back." });
  const typed: "refund" | "other" = category;
  expect(typed).toBe("refund");
});

it("a call of an agent without an output schema gives its messages", async () => {
  const client = createClient({ ...setUp().options });
  expect(await client.call("triage", { text: "Hello" })).toEqual({ category: "other" });
  const set = setUp();
  const typed = clientOf(set);
  const run = await typed.run("desk", "Refund me");
  await set.clock.settle();
  await run.answer("approval", { approved: false });
  expect((await run.result()).flatMap(({ parts }) => parts.map(({ content }) => content))).toEqual([
    ...["Looking", "…", "aGk=", "Refused."],
  ]);
});

it("what does not fit the declarations of the agents does not compile", async () => {
  const client = clientOf(setUp());
  // @ts-expect-error the text is no number
  await expect(client.call("triage", { text: 1 })).rejects.toMatchObject({ code: "invalid_input", status: 422 });
  // @ts-expect-error there is no such agent
  await expect(client.run("missing", "")).rejects.toMatchObject({ code: "agent_not_found", status: 404 });
  const run = client.attach("desk", "00000000-0000-4000-8000-000000000000");
  // @ts-expect-error the answer is no number
  await expect(run.answer("approval", { approved: 1 })).rejects.toMatchObject({ code: "run_not_found" });
  // @ts-expect-error there is no such question
  await expect(run.answer("colour", { approved: true })).rejects.toThrow(ClientError);
});

it("an answer that does not fit is refused with its issues, and the question stays open", async () => {
  const set = setUp();
  const run = await clientOf(set).run("desk", "x");
  await set.clock.settle();
  await expect(run.answer("approval", { approved: "yes" } as never)).rejects.toMatchObject({
    code: "answer_rejected",
    issues: [{ path: ["approved"] }],
  });
  expect(await run.questions()).toMatchObject([{ name: "approval", await_id: "ask#1" }]);
  await run.answer({ await_id: "ask#1" }, { approved: true });
  await run.result();
  await expect(run.answer("approval", { approved: true })).rejects.toMatchObject({ code: "not_awaiting" });
});

it("a declined answer reaches the agent with its reason", async () => {
  const set = setUp();
  const run = await clientOf(set).run("desk", "x");
  await set.clock.settle();
  await run.decline("approval", { reason: "No time." });
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed", run: { status: "failed" } });
});

it("a run that fails or is cancelled rejects the call with the run", async () => {
  const set = setUp();
  const client = clientOf(set);
  await expect(client.call("full", "x")).rejects.toMatchObject({
    code: "run_failed",
    message: "The train is full.",
    run: { status: "failed", error: { data: { reason: "no_seat" } } },
  });
  const run = await client.run("slow", "x");
  const result = run.result();
  await run.cancel();
  await expect(result).rejects.toMatchObject({ code: "run_cancelled", run: { status: "cancelled" } });
  await run.cancel();
  const done = await client.run("triage", { text: "" });
  await done.result();
  await done.cancel();
});

it("a request without an answer is sent again, and creates one run", async () => {
  const set = setUp();
  set.troubles.push(
    async (_request, send) => {
      await send();
      throw new TypeError("fetch failed");
    },
    async () => new Response("busy", { status: 503 }),
  );
  const run = await clientOf(set).run("triage", { text: "" });
  expect(set.requests.map(({ method }) => method)).toEqual(["POST", "POST", "POST"]);
  expect(new Set(set.requests.map(({ headers }) => headers.get("idempotency-key"))).size).toBe(1);
  expect(await set.runtime.listRuns()).toMatchObject([{ run_id: run.run_id }]);
});

it("a server that cannot be reached is told after the last attempt", async () => {
  const set = setUp();
  const lost = new TypeError("fetch failed");
  for (let attempt = 0; attempt < 3; attempt++) set.troubles.push(() => Promise.reject(lost));
  const client = createClient<typeof agents>({ ...set.options, attempts: 3 });
  await expect(client.run("triage", { text: "" })).rejects.toMatchObject({ code: "unreachable", cause: lost });
  expect(set.requests).toHaveLength(3);
});

it("a refusal without JSON is told with its text, and is not repeated", async () => {
  const set = setUp();
  set.troubles.push(async () => new Response("Not here.", { status: 404 }));
  await expect(clientOf(set).run("triage", { text: "" })).rejects.toMatchObject({
    ...{ code: "refused", message: "Not here.", status: 404 },
  });
  expect(set.requests).toHaveLength(1);
});

it("a signal ends the wait, and not the run", async () => {
  const set = setUp();
  const run = await clientOf(set).run("slow", "x");
  const controller = new AbortController();
  const result = run.result({ signal: controller.signal });
  await set.clock.settle();
  controller.abort(new Error("enough"));
  await expect(result).rejects.toThrow("enough");
  expect((await run.record()).status).toBe("in-progress");
});

it("headers are asked for with each request", async () => {
  const set = setUp();
  let count = 0;
  const headers = async () => ({ authorization: `Bearer ${++count}` });
  const run = await createClient<typeof agents>({ ...set.options, headers }).run("triage", { text: "" });
  await run.record();
  expect(set.requests.map((request) => request.headers.get("authorization"))).toEqual(["Bearer 1", "Bearer 2"]);
});

it("an idempotency key and a session may be given", async () => {
  const client = clientOf(setUp());
  const options = { idempotencyKey: "order-17", session_id: "11111111-1111-4111-8111-111111111111" };
  const first = await client.run("triage", { text: "" }, options);
  expect((await client.run("triage", { text: "" }, options)).run_id).toBe(first.run_id);
  expect((await first.record()).session_id).toBe(options.session_id);
});

it("the view of a run follows it while it is watched", async () => {
  const set = setUp();
  const run = await clientOf(set).run("desk", "x");
  const views: RunView[] = [];
  const unwatch = run.watch(() => views.push(run.view));
  await set.clock.settle();
  expect(run.view).toMatchObject({
    status: "awaiting",
    text: "Looking…",
    parts: [{ content: "Looking…" }],
    questions: [{ name: "approval" }],
    subRuns: [{ agent_name: "triage" }],
  });
  unwatch();
  await run.answer("approval", { approved: true });
  await set.clock.settle();
  expect(run.view.status).toBe("awaiting");
  const count = views.length;
  const again = run.watch(() => views.push(run.view));
  await set.clock.settle();
  again();
  expect(run.view).toMatchObject({ status: "completed", text: "Looking…Refunded.", questions: [], error: null });
  expect(run.view.parts).toHaveLength(3);
  expect(views.length).toBeGreaterThan(count);
});

it("a view that cannot be read is told to its watcher", async () => {
  const set = setUp({ extensions: false });
  const run = createClient<typeof agents>(set.options).attach("desk", "00000000-0000-4000-8000-000000000000");
  const told = new Promise((resolve) => run.watch(() => {}, resolve));
  await expect(told).resolves.toMatchObject({ code: "run_not_found" });
});

it.each([{ attempts: 0 }, { attempts: 1.5 }, { backoffMs: -1 }, { url: 7 }])(
  "createClient refuses the option %o",
  (option) => {
    expect(() => createClient({ url: "http://localhost", ...(option as object) })).toThrow(ClientError);
  },
);

it("a value that JSON cannot express is refused before it is sent", async () => {
  const client = createClient({
    url: "http://localhost",
    fetch: () => Promise.reject(new Error("nothing is to be sent")),
  });
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  for (const value of [cycle, { n: 1n }, () => 1]) {
    await expect(client.run("desk", value as never)).rejects.toMatchObject({
      name: "ClientError",
      code: "invalid_argument",
    });
    const answered = client.attach("desk", "x").answer({ await_id: "ask#1" }, cycle as never);
    await expect(answered).rejects.toMatchObject({ name: "ClientError", code: "invalid_argument" });
  }
});
