import { expect } from "vitest";
import type { Client, Json } from "../client.ts";
import { JSON_TYPE } from "../client.ts";
import type { Fact } from "./fact.ts";
import { answer, fact, pathOf, refused, runOf, UNKNOWN_ID, untilRunOf, user } from "./fact.ts";

/** The answers of the endpoints. */
export const endpointFacts: readonly Fact[] = [
  fact("the OpenAPI document has the URL of the service", async (client) => {
    const address = `${client.base}/openapi.json`;
    const [server] = (await client.get("/openapi.json")).json["servers"] as unknown as { url: string }[];
    expect(new URL(`${server?.url}/agents`.replace("//agents", "/agents"), address).href).toBe(`${client.base}/agents`);
  }),
  fact("ping answers with an object", async (client) => {
    expect(await client.get("/ping")).toMatchObject({ status: 200, json: {} });
  }),
  fact("all agents are listed when no limit is sent", async (client) => {
    const { json } = await client.get("/agents");
    expect((json["agents"] as unknown as Json[]).length).toBeGreaterThan(10);
  }),
  fact("a limit and an offset page through the agents", async (client) => {
    const all = (await client.get("/agents")).json["agents"] as unknown as Json[];
    const page = (await client.get("/agents?limit=2&offset=1")).json["agents"] as unknown as Json[];
    expect(page.map(({ name }) => name)).toEqual(all.slice(1, 3).map(({ name }) => name));
    expect((await client.get("/agents?limit=1000")).json).toEqual({ agents: all });
    for (const limit of ["0", "1001", "x", ""]) expect((await client.get(`/agents?limit=${limit}`)).status).toBe(422);
    expect((await client.get("/agents?offset=x")).status).toBe(422);
  }),
  fact("an agent has a manifest with content types, metadata and a description", async (client) => {
    const { json } = await client.get("/agents/echo");
    expect(json).toMatchObject({
      name: "echo",
      description: "Says it again.",
      metadata: {},
      status: expect.anything(),
    });
    expect([json["input_content_types"], json["output_content_types"]]).toEqual([["*/*"], ["*/*"]]);
  }),
  fact("an agent's metadata are those of its registration", async (client) => {
    const { json } = await client.get("/agents/described");
    expect([json["input_content_types"], json["output_content_types"]]).toEqual([["text/plain"], ["*/*"]]);
    expect(json["metadata"]).toMatchObject({
      annotations: { beeai_ui: { ui_type: "chat", user_greeting: "Hello" }, own: { any: ["thing"] } },
      author: { name: "Ada", email: "not an address", url: "https://example.com/ada" },
      capabilities: [{ name: "talk", description: "Talks." }],
      links: [{ type: "source-code", url: "https://example.com/code" }],
      created_at: "2025-04-01T12:00:00.123456Z",
    });
  }),
  fact("an agent's status has the averages of its runs", async (client) => {
    await client.run("described", "x");
    const { json } = await client.get("/agents/described");
    expect(json["status"]).toMatchObject({ success_rate: 100, avg_run_time_seconds: expect.any(Number) });
    await client.run("failing", "x");
    expect((await client.get("/agents/failing")).json["status"]).toMatchObject({ success_rate: 0 });
  }),
  fact("an agent's name may be written with escapes", async (client) => {
    expect((await client.get("/agents/mime%5Ftypes")).json["name"]).toBe("mime_types");
  }),
  fact("an unknown agent is not found", async (client) => {
    refused(await client.get("/agents/missing"), 404, "not_found", "agent_not_found");
    refused(await client.run("missing", "x"), 404, "not_found", "agent_not_found");
  }),
  fact("a sync run answers 200 with the run, and its id in a header", async (client) => {
    const reply = await client.run("echo", "hi");
    expect(reply).toMatchObject({ status: 200, json: { status: "completed", agent_name: "echo" } });
    expect(reply.headers.get("run-id")).toBe(reply.json["run_id"]);
    expect(reply.headers.get("content-type")).toContain("application/json");
  }),
  fact("an async run answers 202 with the run as it was created, and its id in a header", async (client) => {
    const reply = await client.run("stubborn", "hi", { mode: "async" });
    expect(reply).toMatchObject({ status: 202, json: { status: "created", finished_at: null, output: [] } });
    expect(reply.headers.get("run-id")).toBe(reply.json["run_id"]);
    await client.send("POST", `/runs/${reply.json["run_id"]}/cancel`);
  }),
  fact("a streamed run answers 200 with events, and its id in a header", async (client) => {
    const reply = await client.run("echo", "hi", { mode: "stream" });
    expect(reply.status).toBe(200);
    expect(reply.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(reply.headers.get("run-id")).toBe(runOf(reply.events[0])["run_id"]);
  }),
  fact("a run can be read", async (client) => {
    const { json } = await client.run("echo", "hi");
    expect((await client.get(`/runs/${json["run_id"]}`)).json).toEqual(json);
    refused(await client.get(`/runs/${UNKNOWN_ID}`), 404, "not_found", "run_not_found");
  }),
  fact("the list of events equals the stream", async (client) => {
    const { events } = await client.run("notes", "x", { mode: "stream" });
    const { json } = await client.get(`/runs/${runOf(events[0])["run_id"]}/events`);
    expect(json["events"]).toEqual(events.map(({ data }) => data));
    refused(await client.get(`/runs/${UNKNOWN_ID}/events`), 404, "not_found", "run_not_found");
  }),
  fact("a run is resumed in all three modes", async (client) => {
    for (const [mode, status] of [
      ["sync", 200],
      ["async", 202],
      ["stream", 200],
    ] as const) {
      const { json } = await client.run("asker", "x");
      expect(json["status"]).toBe("awaiting");
      const reply = await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("this"), mode });
      expect(reply.status).toBe(status);
      expect(reply.headers.get("run-id")).toBe(json["run_id"]);
      if (mode === "stream") expect(reply.events.at(-1)?.data.type).toBe("run.awaiting");
      else expect(reply.json["status"]).toBe(mode === "sync" ? "awaiting" : "in-progress");
    }
  }),
  fact("cancel needs no body, and answers 202 with the run in cancelling", (client) => checkCancel(client, {})),
  fact(
    "cancel takes an empty body with the content type of JSON",
    (client) => checkCancel(client, JSON_TYPE),
    "empty bodies",
  ),
  fact("cancel ignores its body", (client) => checkCancel(client, JSON_TYPE, { reason: "no more" })),
  fact("a session is found under both paths", async (client) => {
    const { json } = await client.run("echo", "hi");
    const one = await client.get(`/sessions/${json["session_id"]}`);
    expect((await client.get(`/session/${json["session_id"]}`)).json).toEqual(one.json);
    expect(one.json["id"]).toBe(json["session_id"]);
    refused(await client.get(`/sessions/${UNKNOWN_ID}`), 404, "not_found", "session_not_found");
  }),
  fact("the history of a session is absolute URLs, each of one message", async (client) => {
    const { json } = await client.run("echo", "hi");
    const session = await client.get(`/sessions/${json["session_id"]}`);
    const history = session.json["history"] as unknown as string[];
    expect(history).toHaveLength(2);
    const messages = await Promise.all(history.map(async (url) => (await client.get(pathOf(client, url))).json));
    expect(messages.map(({ role }) => role)).toEqual(["user", "agent/echo"]);
    refused(await client.get(`/resources/${json["session_id"]}.2`), 404, "not_found", "resource_not_found");
    refused(await client.get("/resources/x"), 404, "not_found", "resource_not_found");
  }),
  fact("a failed run is a 200 with the error in it", async (client) => {
    const { status, json } = await client.run("failing", "x");
    expect(status).toBe(200);
    expect(json).toMatchObject({
      status: "failed",
      error: { code: "not_found", message: "There is no such train.", data: { train: 7 } },
    });
  }),
  fact("an awaiting run is a 200 with the question in it", async (client) => {
    const { status, json } = await client.run("asker", "x");
    expect(status).toBe(200);
    expect(json).toMatchObject({
      status: "awaiting",
      await_request: { type: "message", message: { parts: [{ content: "Which?" }] } },
    });
  }),
  fact("a run that is cancelled while its client waits is a 200", async (client) => {
    const session_id = crypto.randomUUID();
    const waiting = client.run("waiter", "x", { session_id });
    const id = await untilRunOf(client, session_id);
    await client.send("POST", `/runs/${id}/cancel`);
    expect(await waiting).toMatchObject({ status: 200, json: { status: "cancelled" } });
  }),
  fact("slashes at the end are ignored, and nothing redirects", async (client) => {
    expect((await client.get("/ping/")).status).toBe(200);
    expect((await client.get("/agents/echo/")).status).toBe(200);
    expect((await client.post("/runs/", { agent_name: "plain", input: [] })).status).toBe(200);
  }),
  fact("HEAD answers as GET does, without a body", async (client) => {
    expect(await client.send("HEAD", "/agents")).toMatchObject({ status: 200, text: "" });
    expect(await client.send("HEAD", "/nothing")).toMatchObject({ status: 404, text: "" });
  }),
  fact("runs are listed, the newest first, by agent, session and status", async (client) => {
    const session_id = crypto.randomUUID();
    const ids: unknown[] = [];
    for (const agent of ["echo", "failing", "echo"])
      ids.unshift((await client.run(agent, "x", { session_id })).json["run_id"]);
    const list = async (query: string) =>
      ((await client.get(`/runs?session_id=${session_id}${query}`)).json["runs"] as unknown as Json[]).map(
        ({ run_id }) => run_id,
      );
    expect(await list("")).toEqual(ids);
    expect(await list("&agent_name=echo")).toEqual([ids[0], ids[2]]);
    expect(await list("&status=failed")).toEqual([ids[1]]);
    expect(await list("&limit=1&offset=1")).toEqual([ids[1]]);
    refused(await client.get("/runs?status=lost"), 422, "invalid_input");
    refused(await client.get("/runs?session_id=7"), 422, "invalid_input");
    refused(await client.get("/runs?limit=1001"), 422, "invalid_input");
  }),
  fact("a question that a run passes on for its sub-run is listed once, unless sub-runs are listed", async (client) => {
    const { json } = await client.run("delegate", "x");
    const list = async (query: string) =>
      ((await client.get(`/runs?status=awaiting${query}`)).json["runs"] as unknown as Json[]).map(
        ({ run_id }) => run_id,
      );
    const root = json["run_id"];
    const both = await list("&roots=false&limit=2");
    expect(both).toContain(root);
    expect(both).toHaveLength(2);
    const listed = await list("");
    expect(both.filter((id) => listed.includes(id))).toEqual([root]);
    expect((await list("&limit=1&roots=true"))[0]).toBe(root);
    refused(await client.get("/runs?roots=maybe"), 422, "invalid_input");
  }),
  fact("an idempotency key gives the same run, whatever the mode; another body is 409", async (client) => {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const body = { agent_name: "echo", input: [user("once")] };
    const first = await client.post("/runs", body, headers);
    expect((await client.post("/runs", body, headers)).json).toEqual(first.json);
    const streamed = await client.post("/runs", { ...body, mode: "stream" }, headers);
    expect(streamed.headers.get("run-id")).toBe(first.json["run_id"]);
    expect(streamed.events.at(-1)?.event).toBe("run.completed");
    const other = await client.post("/runs", { ...body, input: [user("twice")] }, headers);
    refused(other, 409, "invalid_input", "idempotency_conflict");
    refused(await client.post("/runs", body, { "idempotency-key": "x".repeat(256) }), 422, "invalid_input");
  }),
  fact("an answer may name its question and be repeated; another answer is 409", async (client) => {
    const { json } = await client.run("asker", "x");
    const { await_id } = json["await_request"] as Json;
    const path = `/runs/${json["run_id"]}`;
    const first = await client.post(path, { await_id, await_resume: answer("a") });
    expect(first.json["status"]).toBe("awaiting");
    expect((await client.post(path, { await_id, await_resume: answer("a"), mode: "async" })).status).toBe(202);
    refused(await client.post(path, { await_id, await_resume: answer("b") }), 409, "invalid_input", "answer_conflict");
  }),
  fact("the service serves its OpenAPI document", async (client) => {
    expect((await client.get("/openapi.json")).json).toMatchObject({ openapi: "3.1.1" });
  }),
];

async function checkCancel(client: Client, headers: Readonly<Record<string, string>>, body?: object): Promise<void> {
  const { json } = await client.run("stubborn", "x", { mode: "async" });
  const reply = await client.send("POST", `/runs/${json["run_id"]}/cancel`, { headers, body });
  expect(reply.headers.get("run-id")).toBe(json["run_id"]);
  expect(reply).toMatchObject({ status: 202, json: { status: "cancelling" } });
  expect((await client.follow(json["run_id"])).at(-1)?.data.type).toBe("run.cancelled");
}
