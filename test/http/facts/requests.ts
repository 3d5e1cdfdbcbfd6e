import { expect } from "vitest";
import type { Json } from "../client.ts";
import { JSON_TYPE } from "../client.ts";
import type { Fact } from "./fact.ts";
import { answer, fact, pathOf, refused, UNKNOWN_ID, user } from "./fact.ts";

/** The forms of requests that the service takes. */
export const requestFacts: readonly Fact[] = [
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
  fact("mode is sync by default, on create and on resume", async (client) => {
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
  fact("an unknown role is 422", async (client) => {
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
  fact("an answer with the type of a message that is none is 422, and the run goes on waiting", async (client) => {
    const { json } = await client.run("asker", "x");
    const path = `/runs/${json["run_id"]}`;
    for (const await_resume of [{ type: "message" }, { type: "message", message: { parts: [7] } }, "yes", [], null])
      refused(await client.post(path, { await_resume }), 422, "invalid_input", "invalid_argument");
    expect((await client.get(path)).json).toMatchObject({ status: "awaiting", await_request: json["await_request"] });
  }),
  fact("an answer of another type is the answer itself", async (client) => {
    const { json } = await client.run("asker", "x");
    const reply = await client.post(`/runs/${json["run_id"]}`, { await_resume: { type: "choice", index: 2 } });
    expect(JSON.stringify(reply.json["output"])).toContain(
      JSON.stringify(JSON.stringify({ type: "choice", index: 2 })).slice(1, -1),
    );
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
  fact("a client that disconnects from a stream does not stop the run, and can reconnect", async (client) => {
    const body = { agent_name: "asker", input: [], mode: "stream" };
    const stream = await client.open("POST", "/runs", { body, headers: JSON_TYPE });
    await stream.body?.cancel();
    const events = await client.follow(stream.headers.get("run-id"));
    expect(events.at(-1)?.event).toBe("run.awaiting");
  }),
  fact("a session is read, sent as an object, named by its id, and sent as it was read", async (client) => {
    const id = crypto.randomUUID();
    refused(await client.get(`/sessions/${id}`), 404, "not_found", "session_not_found");
    const run = (more: object) => client.run("replay", "x", more);
    const first = await run({ session: { id, history: [], state: null }, session_id: null });
    expect([first.json["session_id"], first.json["output"]]).toMatchObject([id, { length: 1 }]);
    const second = await run({ session: null, session_id: id });
    expect(second.json["output"]).toHaveLength(3);
    const session = (await client.get(`/sessions/${id}`)).json;
    const third = await run({ session, session_id: id });
    expect([third.json["session_id"], third.json["output"]]).toMatchObject([id, { length: 7 }]);
    expect((await client.get(`/sessions/${id}`)).json["history"]).toHaveLength(14);
  }),
  fact("a session grows by a run that completes, and by no other", async (client) => {
    const session_id = crypto.randomUUID();
    for (const agent of ["failing", "asker"]) await client.run(agent, "x", { session_id });
    const { json } = await client.run("stubborn", "x", { session_id, mode: "async" });
    await client.send("POST", `/runs/${json["run_id"]}/cancel`);
    await client.follow(json["run_id"]);
    expect((await client.get(`/sessions/${session_id}`)).json["history"]).toEqual([]);
    await client.run("echo", "x", { session_id });
    expect((await client.get(`/sessions/${session_id}`)).json["history"]).toHaveLength(2);
  }),
  fact("questions and answers are in the session's history in their order", async (client) => {
    const { json } = await client.run("asker", "x");
    for (const text of ["a", "b"]) await client.post(`/runs/${json["run_id"]}`, { await_resume: answer(text) });
    const { history } = (await client.get(`/sessions/${json["session_id"]}`)).json as unknown as { history: string[] };
    const texts: unknown[] = [];
    for (const url of history) {
      const { role, parts } = (await client.get(pathOf(client, url))).json as unknown as {
        role: string;
        parts: Json[];
      };
      texts.push(`${role}: ${parts.map(({ content }) => content).join("")}`);
    }
    expect(texts).toEqual([
      ...["user: x", "agent/asker: Let me ask. ", "agent/asker: Which?", "user: a"],
      ...["agent/asker: Got a. ", "agent/asker: And which?", "user: b", "agent/asker: Got b."],
    ]);
  }),
];
