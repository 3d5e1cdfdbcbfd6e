import { expect } from "vitest";
import type { Client, Json, Reply, SentEvent } from "./client.ts";
import { JSON_TYPE } from "./client.ts";
import type { Mount } from "./mounts.ts";

/** One fact on the interface that clients rely on. */
export interface Fact {
  readonly name: string;
  /** What the service has to be given for it; a host that keeps it is not asked. */
  readonly needs?: Mount["keeps"][number];
  readonly check: (client: Client) => Promise<void>;
}

const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";
const UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const user = (content: string) => ({ role: "user", parts: [{ content, content_type: "text/plain" }] });
const answer = (content: string) => ({ type: "message", message: user(content) });

/** What every way to mount the service has to do. */
export const facts: readonly Fact[] = [
  // Endpoints, status codes, headers
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
    expect((await client.get("/agents?limit=0")).status).toBe(422);
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
  fact("an unknown agent is not found", async (client) => {
    refused(await client.get("/agents/nobody"), 404, "not_found", "agent_not_found");
    refused(await client.run("nobody", "x"), 404, "not_found", "agent_not_found");
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
  fact("the events that are read are the streamed ones, one for one", async (client) => {
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
      if (mode === "stream") expect(reply.events.at(-1)?.data.type).toBe("run.awaiting");
      else expect(reply.json["status"]).toBe(mode === "sync" ? "awaiting" : "in-progress");
    }
  }),
  fact("cancel needs no body, and answers 202 with the run in cancelling", (client) => checkCancel(client, {})),
  fact("cancel takes an empty body that is called JSON", (client) => checkCancel(client, JSON_TYPE), "odd requests"),
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
  fact("a resume that nothing waits for is 403, and says why", async (client) => {
    const { json } = await client.run("echo", "x");
    refused(
      await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("x") }),
      403,
      "invalid_input",
      "not_awaiting",
    );
  }),
  fact("to cancel what is completed or failed is 403, and says why", async (client) => {
    for (const agent of ["echo", "failing"]) {
      const { json } = await client.run(agent, "x");
      refused(await client.send("POST", `/runs/${json["run_id"]}/cancel`), 403, "invalid_input", "run_finished");
    }
  }),
  fact("a method that a path does not know is 405, and says which ones it knows", async (client) => {
    const reply = await client.send("DELETE", "/runs");
    refused(reply, 405, "invalid_input", "method_not_allowed");
    expect(reply.headers.get("allow")).toBe("POST, GET");
    refused(await client.send("PUT", "/ping"), 405, "invalid_input", "method_not_allowed");
  }),
  fact("a bad id is 422", async (client) => {
    refused(await client.get("/runs/42"), 422, "invalid_input", "invalid_argument");
    refused(await client.get("/sessions/42"), 422, "invalid_input", "invalid_argument");
  }),
  fact("a body that does not fit is 422, and says where", async (client) => {
    const reply = await client.post("/runs", {
      agent_name: "echo",
      input: [{ role: "user", parts: [{ content: 7 }] }],
    });
    refused(reply, 422, "invalid_input", "invalid_argument");
    const data = reply.json["data"] as Json;
    expect(data["issues"]).toEqual([{ path: ["input", 0, "parts", 0, "content"], message: expect.any(String) }]);
  }),
  fact("input that is not a list of messages is 422", async (client) => {
    for (const input of ["hi", { role: "user" }, ["hi"], [null], [{ content: "hi" }], undefined])
      refused(await client.post("/runs", { agent_name: "echo", input }), 422, "invalid_input", "invalid_argument");
  }),
  fact("an agent name that cannot be is 422", async (client) => {
    for (const agent_name of ["with space", "dot.ted", "", 7, null, "x".repeat(64)])
      refused(await client.post("/runs", { agent_name, input: [] }), 422, "invalid_input", "invalid_argument");
  }),
  fact(
    "malformed JSON is 400",
    async (client) => {
      for (const body of ["{", "", "nope", new Uint8Array([0xff, 0xfe])])
        refused(await client.post("/runs", body), 400, "invalid_input", "malformed_body");
    },
    "odd requests",
  ),
  fact(
    "another media type is 415",
    async (client) => {
      for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]) {
        const reply = await client.send("POST", "/runs", { body: "{}", headers: { "content-type": type } });
        refused(reply, 415, "invalid_input", "unsupported_media_type");
      }
    },
    "odd requests",
  ),
  fact(
    "a key __proto__ is refused",
    async (client) => {
      const body = '{"agent_name":"echo","input":[{"role":"user","parts":[],"__proto__":{"x":1}}]}';
      refused(await client.post("/runs", body), 422, "invalid_input", "forbidden_key");
    },
    "odd requests",
  ),
  fact(
    "a body that is nested too deeply is refused",
    async (client) => {
      const body = `{"agent_name":"echo","input":${"[".repeat(5000)}${"]".repeat(5000)}}`;
      refused(await client.post("/runs", body), 422, "invalid_input", "too_deep");
    },
    "odd requests",
  ),
  fact(
    "a body that is too large is 413",
    async (client) => {
      const body = `{"agent_name":"echo","input":[{"parts":[{"content":"${"x".repeat(300_000)}"}]}]}`;
      refused(await client.post("/runs", body), 413, "invalid_input", "body_too_large");
    },
    "odd requests",
  ),
  fact("an unknown path is 404 with an error in JSON", async (client) => {
    for (const path of ["/nothing", "/runs/x/y", "/agents/a/b", "/ping/ping", "/Ping", "//"])
      refused(await client.get(path), 404, "not_found", "path_not_found");
  }),
  fact(
    "a path that cannot be read is 404 with an error in JSON",
    async (client) => {
      for (const path of ["/%ff", "/agents/%E0%A4%A", "/runs/%zz"])
        refused(await client.get(path), 404, "not_found", "path_not_found");
    },
    "odd paths",
  ),
  fact("slashes at the end do not count, and nothing redirects", async (client) => {
    expect((await client.get("/ping/")).status).toBe(200);
    expect((await client.get("/agents/echo/")).status).toBe(200);
    expect((await client.post("/runs/", { agent_name: "plain", input: [] })).status).toBe(200);
  }),
  fact("HEAD answers as GET does, without a body", async (client) => {
    expect(await client.send("HEAD", "/agents")).toMatchObject({ status: 200, text: "" });
    expect(await client.send("HEAD", "/nothing")).toMatchObject({ status: 404, text: "" });
  }),

  // What clients send
  fact(
    "JSON needs no content type",
    async (client) => {
      const body = { agent_name: "echo", input: [user("untyped")], mode: "sync" };
      expect(await client.postUntyped("/runs", body)).toMatchObject({ status: 200, json: { status: "completed" } });
    },
    "untyped bodies",
  ),
  fact("null counts as absent, everywhere", async (client) => {
    const part = {
      name: null,
      content_type: "text/plain",
      content: "hi",
      content_encoding: "plain",
      content_url: null,
      metadata: null,
    };
    const input = [{ role: "user", parts: [part], created_at: null, completed_at: null }];
    const reply = await client.post("/runs", {
      agent_name: "echo",
      session_id: null,
      session: null,
      input,
      mode: null,
    });
    expect(reply).toMatchObject({ status: 200, json: { status: "completed" } });
    const asked = await client.run("asker", "x");
    const resumed = await client.post(`/runs/${asked.json["run_id"]}`, {
      run_id: null,
      await_id: null,
      mode: null,
      await_resume: { type: "message", message: input[0] },
    });
    expect(resumed).toMatchObject({ status: 200, json: { status: "awaiting" } });
  }),
  fact("session and session_id with different ids are 400", async (client) => {
    const reply = await client.run("echo", "x", { session_id: UNKNOWN_ID, session: { id: crypto.randomUUID() } });
    refused(reply, 400, "invalid_input", "session_mismatch");
  }),
  fact("an empty session is a new one", async (client) => {
    expect((await client.run("echo", "x", { session: {} })).status).toBe(200);
    const session = { id: crypto.randomUUID(), history: [], state: null };
    expect((await client.run("echo", "x", { session })).json["session_id"]).toBe(session.id);
  }),
  fact("mode is sync when nothing is said, on create and on resume", async (client) => {
    const { status, json } = await client.run("asker", "x");
    expect([status, json["status"]]).toEqual([200, "awaiting"]);
    const resumed = await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("x") });
    expect([resumed.status, resumed.json["status"]]).toEqual([200, "awaiting"]);
  }),
  fact("an unknown mode is 422", async (client) => {
    refused(await client.run("echo", "x", { mode: "later" }), 422, "invalid_input", "invalid_argument");
  }),
  fact("run_id in the body of a resume is compared with the path", async (client) => {
    const { json } = await client.run("asker", "x");
    const path = `/runs/${json["run_id"]}`;
    refused(
      await client.post(path, { run_id: UNKNOWN_ID, await_resume: answer("x") }),
      400,
      "invalid_input",
      "run_mismatch",
    );
    const same = String(json["run_id"]).toUpperCase();
    expect((await client.post(path, { run_id: same, await_resume: answer("x") })).status).toBe(200);
  }),
  fact("empty input and empty parts are legal", async (client) => {
    expect((await client.run("plain", [])).json).toMatchObject({ status: "completed" });
    expect((await client.run("echo", [{ role: "user", parts: [] }])).json).toMatchObject({ status: "completed" });
    const { json } = await client.run("asker", "x");
    const reply = await client.post(`/runs/${json["run_id"]}`, {
      await_resume: { type: "message", message: { parts: [] } },
    });
    expect(reply.status).toBe(200);
  }),
  fact("a message without a role is the user's", async (client) => {
    const { json } = await client.run("echo", [{ parts: [{ content: "x" }] }]);
    const first = await client.get(`/resources/${json["session_id"]}.0`);
    expect(first.json["role"]).toBe("user");
  }),
  fact("a role that is none is 422", async (client) => {
    for (const role of ["assistant", "agent/a b", "system"])
      refused(await client.run("echo", [{ role, parts: [] }]), 422, "invalid_input", "invalid_argument");
  }),
  fact("an agent name may have underscores", async (client) => {
    expect((await client.run("mime_types", "x")).json).toMatchObject({ status: "completed", agent_name: "mime_types" });
  }),
  fact("an answer without a type is a message if it has one", async (client) => {
    const { json } = await client.run("asker", "x");
    const reply = await client.post(`/runs/${json["run_id"]}`, { await_resume: { message: user("that") } });
    expect(JSON.stringify(reply.json["output"])).toContain("Got that.");
  }),
  fact("a run is resumed with an object of its own kind", async (client) => {
    const { json } = await client.run("picky", "x");
    const path = `/runs/${json["run_id"]}`;
    const bad = await client.post(path, { await_resume: { number: "seven" } });
    refused(bad, 422, "invalid_input", "answer_rejected");
    expect(bad.json["data"]).toMatchObject({ issues: [{ path: ["number"], message: "expected a number" }] });
    expect((await client.get(path)).json["status"]).toBe("awaiting");
    expect((await client.post(path, { await_resume: { number: 21 } })).json).toMatchObject({ status: "completed" });
  }),
  fact("an id in upper case or without dashes is the same id", async (client) => {
    const { json } = await client.run("echo", "x");
    const id = String(json["run_id"]);
    for (const form of [id.toUpperCase(), id.replaceAll("-", "")])
      expect((await client.get(`/runs/${form}`)).json["run_id"]).toBe(id);
    const session_id = crypto.randomUUID();
    const other = await client.run("echo", "x", { session_id: session_id.toUpperCase().replaceAll("-", "") });
    expect(other.json["session_id"]).toBe(session_id);
  }),
  fact("the mode decides how a run is answered, not the Accept header", async (client) => {
    const body = { agent_name: "echo", input: [user("x")] };
    const sync = await client.post("/runs", { ...body, mode: "sync" }, { accept: "text/event-stream" });
    expect(sync.headers.get("content-type")).toContain("application/json");
    const stream = await client.post("/runs", { ...body, mode: "stream" }, { accept: "application/json" });
    expect(stream.headers.get("content-type")).toContain("text/event-stream");
  }),
  fact("unknown keys are kept on parts, and dropped on messages and requests", async (client) => {
    const input = [{ role: "user", parts: [{ content: "x", own: 1 }], own: 2 }];
    const { json } = await client.run("echo", input, { own: 3 });
    const [message] = json["output"] as unknown as Json[];
    expect(message).not.toHaveProperty("own");
    expect(message?.["parts"]).toMatchObject([{ content: "x", own: 1 }]);
  }),

  // What clients accept
  fact("times end in Z, and absent ones are null", async (client) => {
    const { json } = await client.run("echo", "x");
    expect(json["created_at"]).toMatch(UTC);
    expect(json["finished_at"]).toMatch(UTC);
    const awaiting = await client.run("asker", "x");
    expect(awaiting.json["finished_at"]).toBeNull();
    const [open] = awaiting.json["output"] as unknown as Json[];
    expect(open?.["created_at"]).toMatch(UTC);
    expect(open?.["completed_at"]).toBeNull();
  }),
  fact("a run always has its lists, and null where there is nothing", async (client) => {
    const { json } = await client.run("plain", "x");
    expect(json).toMatchObject({ output: expect.any(Array), error: null, await_request: null });
    expect(json["run_id"]).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  }),
  fact("what an agent throws is not shown, and a code of its own is data", async (client) => {
    const { text, json } = await client.run("leaky", "x");
    expect(json).toMatchObject({ status: "failed", error: { code: "server_error" } });
    expect(text).not.toMatch(/hunter2|secret|\.ts/);
  }),
  fact("a part has a content or a content_url, and not both", async (client) => {
    const parts = [{ content: "x", content_url: "https://example.com/x" }];
    refused(await client.run("echo", [{ parts }]), 422, "invalid_input", "invalid_argument");
  }),
  fact("a content_url has to be absolute", async (client) => {
    refused(await client.run("echo", [{ parts: [{ content_url: "/x" }] }]), 422, "invalid_input", "invalid_argument");
    expect((await client.run("echo", [{ parts: [{ content_url: "data:,x" }] }])).status).toBe(200);
  }),
  fact("metadata of an unknown kind, or a tool input that is no object, is 422", async (client) => {
    for (const metadata of [{ kind: "mystery" }, {}, { kind: "trajectory", tool_input: "x" }])
      refused(await client.run("echo", [{ parts: [{ metadata }] }]), 422, "invalid_input", "invalid_argument");
  }),
  fact("timestamps of a client come back as they came", async (client) => {
    const created_at = "2025-04-01T12:00:00.123456+02:00";
    const { json } = await client.run("echo", [{ role: "user", parts: [], created_at, completed_at: created_at }]);
    expect(json["output"]).toMatchObject([{ created_at, completed_at: created_at }]);
  }),
  fact("a frame is an id of digits, an event name equal to the type, and one line of data", async (client) => {
    const { text, events } = await client.run("notes", "x", { mode: "stream" });
    const frames = text.split("\n\n").slice(0, -1);
    expect(frames).toHaveLength(events.length);
    for (const [index, frame] of frames.entries())
      expect(frame).toMatch(new RegExp(`^id: ${index + 1}\nevent: [a-z.-]+\ndata: .*$`));
    for (const { event, data } of events) expect(data.type).toBe(event);
  }),
  fact("characters that some take for the end of a line are escaped in a stream", async (client) => {
    const content = "a\u2028b\u2029c\u0085d\r\ne\nf";
    const { text, events } = await client.run("echo", content, { mode: "stream" });
    expect(text).not.toMatch(/[\u2028\u2029\u0085\r]/);
    expect(events.find(({ event }) => event === "message.part")?.data["part"]).toMatchObject({ content });
  }),

  // Events and their order
  fact("a run that yields a message has six events", async (client) => {
    const { events } = await client.run("echo", "x", { mode: "stream" });
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "message.completed", "run.completed"],
    ]);
  }),
  fact("parts open one message, which null or the end closes; generic events leave it open", async (client) => {
    const { events } = await client.run("notes", "x", { mode: "stream" });
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "generic", "message.part"],
      ...["message.completed", "message.created", "message.part", "message.completed", "run.completed"],
    ]);
    expect(events[2]?.data["message"]).toMatchObject({ parts: [], role: "agent/notes", completed_at: null });
  }),
  fact("the role in events is the role in the output", async (client) => {
    const { events } = await client.run("echo", "x", { mode: "stream" });
    expect(events[2]?.data["message"]).toMatchObject({ role: "agent/echo" });
    expect(runOf(events.at(-1))["output"]).toMatchObject([{ role: "agent/echo" }]);
  }),
  fact("a part with a name is an artifact among its neighbours", async (client) => {
    const { json } = await client.run("mime_types", "x");
    expect(json["output"]).toMatchObject([
      { parts: [{ content_type: "text/html" }, { name: "picture", content_encoding: "base64" }] },
    ]);
  }),
  fact("an await leaves the message open, and ends the stream", async (client) => {
    const { events } = await client.run("asker", "x", { mode: "stream" });
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "run.awaiting"],
    ]);
    const resumed = await client.post(`/runs/${runOf(events[0])["run_id"]}`, {
      await_resume: answer("a"),
      mode: "stream",
    });
    expect(resumed.events.map(({ event }) => event)).toEqual(["run.in-progress", "message.part", "run.awaiting"]);
    expect(resumed.events[0]?.id).toBe("6");
    expect(runOf(resumed.events[0])["await_request"]).toBeNull();
  }),
  fact("a failure leaves the message open, and is run.failed, never error", async (client) => {
    const { events } = await client.run("failing", "x", { mode: "stream" });
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "run.failed"],
    ]);
    expect(runOf(events.at(-1))["output"]).toMatchObject([{ completed_at: null }]);
  }),
  fact("a yield that is nothing known fails the run", async (client) => {
    expect((await client.run("odd", "x")).json).toMatchObject({ status: "failed", error: { code: "server_error" } });
  }),
  fact("a plain function is one yield", async (client) => {
    expect((await client.run("plain", "x")).json["output"]).toMatchObject([
      { role: "agent/plain", parts: [{ content: "You said 1 messages." }] },
    ]);
  }),
  fact("an agent that hears nothing is cancelled soon", async (client) => {
    const { json } = await client.run("stubborn", "x", { mode: "async" });
    await client.send("POST", `/runs/${json["run_id"]}/cancel`);
    const events = await client.follow(json["run_id"]);
    expect(events.at(-1)?.event).toBe("run.cancelled");
  }),
  fact("a stream that is cancelled goes on to run.cancelled", async (client) => {
    const session_id = crypto.randomUUID();
    const streaming = client.run("waiter", "x", { mode: "stream", session_id });
    await client.send("POST", `/runs/${await untilRunOf(client, session_id)}/cancel`);
    expect((await streaming).events.at(-1)?.event).toBe("run.cancelled");
  }),
  fact("cancel may be repeated", async (client) => {
    const { json } = await client.run("stubborn", "x", { mode: "async" });
    const path = `/runs/${json["run_id"]}/cancel`;
    expect((await client.send("POST", path)).json["status"]).toBe("cancelling");
    expect((await client.send("POST", path)).status).toBe(202);
    await client.follow(json["run_id"]);
    expect(await client.send("POST", path)).toMatchObject({ status: 202, json: { status: "cancelled" } });
  }),
  fact("a run that waits is cancelled as any other", async (client) => {
    const { json } = await client.run("asker", "x");
    const reply = await client.send("POST", `/runs/${json["run_id"]}/cancel`);
    expect(reply).toMatchObject({ status: 202, json: { status: "cancelling" } });
    refused(await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("x") }), 403, "invalid_input");
  }),

  // Reading on
  fact("who comes back with the last id reads on from there", async (client) => {
    const { events } = await client.run("notes", "x", { mode: "stream" });
    const path = `/runs/${runOf(events[0])["run_id"]}/events`;
    for (let known = 0; known <= events.length; known++) {
      const reply = await client.get(path, { accept: "text/event-stream", "last-event-id": String(known) });
      expect(reply.events).toEqual(events.slice(known));
    }
    refused(await client.get(path, { accept: "text/event-stream", "last-event-id": "x" }), 422, "invalid_input");
  }),
  fact("who attaches to a live run sees it to its rest", async (client) => {
    const { json } = await client.run("asker", "x", { mode: "async" });
    const first = await client.follow(json["run_id"]);
    expect(first.at(-1)?.event).toBe("run.awaiting");
    await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("a") });
    await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("b"), mode: "async" });
    const all = await client.follow(json["run_id"]);
    expect(all.slice(0, first.length)).toEqual(first);
    expect(all.at(-1)?.event).toBe("run.completed");
  }),
  fact("a run that is under way shows its events so far", async (client) => {
    const { json } = await client.run("asker", "x");
    const { json: list } = await client.get(`/runs/${json["run_id"]}/events`);
    expect((list["events"] as unknown as Json[]).at(-1)?.["type"]).toBe("run.awaiting");
  }),

  // Beyond
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
  fact("the interface describes itself", async (client) => {
    expect((await client.get("/openapi.json")).json).toMatchObject({ openapi: "3.1.1" });
  }),
  fact("a page of another origin is refused", async (client) => {
    const strange = client.with({ origin: "https://evil.example" });
    refused(await strange.run("echo", "x"), 403, "invalid_input", "cross_site");
    refused(await strange.get("/ping"), 403, "invalid_input", "cross_site");
  }),
];

function fact(name: string, check: Fact["check"], needs?: Fact["needs"]): Fact {
  return needs === undefined ? { name, check } : { name, check, needs };
}

/** An answer that refuses: its status, its code, and the reason in its data. */
export function refused(reply: Reply, status: number, code: string, reason?: string): void {
  expect({ status: reply.status, text: reply.text }).toMatchObject({ status });
  expect(reply.json).toMatchObject({ code, message: expect.stringMatching(/\S/) });
  if (reason !== undefined) expect(reply.json["data"]).toMatchObject({ reason });
}

export function runOf(event: SentEvent | undefined): Json {
  return event?.data["run"] as Json;
}

/** The path of a URL of the place, from where the place begins. */
export function pathOf(client: Client, url: string): string {
  expect(url.startsWith(client.base)).toBe(true);
  return url.slice(client.base.length);
}

async function checkCancel(client: Client, headers: Readonly<Record<string, string>>): Promise<void> {
  const { json } = await client.run("stubborn", "x", { mode: "async" });
  const reply = await client.send("POST", `/runs/${json["run_id"]}/cancel`, { headers });
  expect(reply).toMatchObject({ status: 202, json: { status: "cancelling" } });
  expect((await client.follow(json["run_id"])).at(-1)?.data.type).toBe("run.cancelled");
}

/** The id of the run of a session, as soon as there is one that is at work. */
async function untilRunOf(client: Client, sessionId: string): Promise<unknown> {
  for (;;) {
    const { json } = await client.get(`/runs?session_id=${sessionId}&status=in-progress`);
    const [run] = json["runs"] as unknown as Json[];
    if (run !== undefined) return run["run_id"];
    // In process nothing else makes room for the agent.
    await new Promise((resolve) => setImmediate(resolve));
  }
}
