import { expect } from "vitest";
import type { Json } from "../client.ts";
import type { Fact } from "./fact.ts";
import { answer, fact, refused, runOf, untilRunOf } from "./fact.ts";

/** Which events there are, in which order, and how they are re-read. */
export const eventFacts: readonly Fact[] = [
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
  fact("a part with a name is an artifact", async (client) => {
    const { json } = await client.run("mime_types", "x");
    expect(json["output"]).toMatchObject([
      { parts: [{ content_type: "text/html" }, { name: "picture", content_encoding: "base64" }] },
    ]);
  }),
  fact("an await completes the open message, and ends the stream", async (client) => {
    const { events } = await client.run("asker", "x", { mode: "stream" });
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "message.completed", "run.awaiting"],
    ]);
    const resumed = await client.post(`/runs/${runOf(events[0])["run_id"]}`, {
      await_resume: answer("a"),
      mode: "stream",
    });
    expect(resumed.events.map(({ event }) => event)).toEqual([
      ...["run.in-progress", "message.created", "message.part", "message.completed", "run.awaiting"],
    ]);
    expect(resumed.events[0]?.id).toBe("7");
    expect(runOf(resumed.events[0])["await_request"]).toBeNull();
  }),
  fact("several questions are open at once, and shown one after the other", async (client) => {
    const { events } = await client.run("twofold", "x", { mode: "stream" });
    const path = `/runs/${runOf(events[0])["run_id"]}`;
    expect(events.map(({ event }) => event)).toEqual(["run.created", "run.in-progress", "run.awaiting"]);
    const first = await client.post(path, { await_resume: answer("a"), mode: "stream" });
    expect(first.events.map(({ id, event }) => [id, event])).toEqual([
      ["4", "run.in-progress"],
      ["5", "run.awaiting"],
    ]);
    expect(runOf(first.events[1])["await_request"]).toMatchObject({ message: { parts: [{ content: "Two?" }] } });
    const second = await client.post(path, { await_resume: answer("b"), mode: "stream" });
    expect(second.events.map(({ id, event }) => [id, event])).toEqual([
      ["6", "run.in-progress"],
      ...[
        ["7", "message.created"],
        ["8", "message.part"],
        ["9", "message.completed"],
      ],
      ["10", "run.completed"],
    ]);
    expect(runOf(second.events.at(-1))["output"]).toMatchObject([{ parts: [{ content: "Got a and b." }] }]);
  }),
  fact("the second of two open questions can be answered first, by its id", async (client) => {
    const { json } = await client.run("twofold", "x");
    const path = `/runs/${json["run_id"]}`;
    const first = await client.post(path, { await_resume: answer("b"), await_id: "ask#2" });
    expect(first.json).toMatchObject({ status: "awaiting", await_request: json["await_request"] });
    const second = await client.post(path, { await_resume: answer("a"), await_id: "ask#1" });
    expect(second.json).toMatchObject({ status: "completed", output: [{ parts: [{ content: "Got a and b." }] }] });
  }),
  fact("a failure leaves the message open, and is run.failed, never error", async (client) => {
    const { events } = await client.run("failing", "x", { mode: "stream" });
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "run.failed"],
    ]);
    expect(runOf(events.at(-1))["output"]).toMatchObject([{ completed_at: null }]);
  }),
  fact("an event of a run has the run as it was then", async (client) => {
    const { events } = await client.run("asker", "x", { mode: "stream" });
    expect(runOf(events[0])).toMatchObject({ status: "created", output: [], await_request: null });
    expect(runOf(events[1])).toMatchObject({ status: "in-progress", output: [] });
    const { await_request } = runOf(events.at(-1));
    expect(runOf(events.at(-1))).toMatchObject({
      status: "awaiting",
      output: [{ parts: [{}], completed_at: expect.stringMatching(/Z$/) }],
    });
    await client.post(`/runs/${runOf(events[0])["run_id"]}`, { await_resume: answer("a") });
    const later = (await client.get(`/runs/${runOf(events[0])["run_id"]}/events`)).json["events"] as unknown as Json[];
    expect(later.slice(0, events.length)).toEqual(events.map(({ data }) => data));
    expect(await_request).toMatchObject({ type: "message", message: { parts: [{ content: "Which?" }] } });
  }),
  fact("an object of no known kind is generic, also if it looks like an event", async (client) => {
    const { events } = await client.run("lookalike", "x", { mode: "stream" });
    expect(events[2]).toMatchObject({ event: "generic", data: { generic: { type: "run.completed" } } });
    expect(events).toHaveLength(4);
  }),
  fact("a yield of no known kind fails the run", async (client) => {
    expect((await client.run("odd", "x")).json).toMatchObject({ status: "failed", error: { code: "server_error" } });
  }),
  fact("a plain function is one yield", async (client) => {
    expect((await client.run("plain", "x")).json["output"]).toMatchObject([
      { role: "agent/plain", parts: [{ content: "You said 1 messages." }] },
    ]);
  }),
  fact("an agent that ignores its signal is cancelled soon", async (client) => {
    const { json } = await client.run("stubborn", "x", { mode: "async" });
    await client.send("POST", `/runs/${json["run_id"]}/cancel`);
    const events = await client.follow(json["run_id"]);
    expect(events.at(-1)?.event).toBe("run.cancelled");
  }),
  fact("a stream that is cancelled goes on to run.cancelled", async (client) => {
    const session_id = crypto.randomUUID();
    const streaming = client.run("waiter", "x", { mode: "stream", session_id });
    await client.send("POST", `/runs/${await untilRunOf(client, session_id)}/cancel`);
    const { events } = await streaming;
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "run.cancelled"],
    ]);
    expect(runOf(events.at(-1))["output"]).toMatchObject([{ completed_at: null }]);
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
  fact("a reader that reconnects with the last id gets the events after it", async (client) => {
    const { events } = await client.run("notes", "x", { mode: "stream" });
    const path = `/runs/${runOf(events[0])["run_id"]}/events`;
    for (let known = 0; known <= events.length; known++) {
      const reply = await client.get(path, { accept: "text/event-stream", "last-event-id": String(known) });
      expect(reply.events).toEqual(events.slice(known));
      // No event will follow: 204 keeps a browser's EventSource from reconnecting every few seconds.
      expect(reply.status).toBe(known < events.length ? 200 : 204);
    }
    const beyond = await client.get(path, { accept: "text/event-stream", "last-event-id": "9999" });
    expect([beyond.status, beyond.text]).toEqual([204, ""]);
    expect(beyond.headers.get("run-id")).toBe(runOf(events[0])["run_id"]);
    refused(await client.get(path, { accept: "text/event-stream", "last-event-id": "x" }), 422, "invalid_input");
    refused(await client.get(path, { "last-event-id": "x" }), 422, "invalid_input");
  }),
  fact("a reader that reconnects to a run that waits gets no events, and may reconnect again", async (client) => {
    const { events } = await client.run("asker", "x", { mode: "stream" });
    const path = `/runs/${runOf(events[0])["run_id"]}/events`;
    const headers = { accept: "text/event-stream", "last-event-id": String(events.length) };
    expect(await client.get(path, headers)).toMatchObject({ status: 200, events: [] });
    await client.post(`/runs/${runOf(events[0])["run_id"]}`, { await_resume: answer("a") });
    expect((await client.get(path, headers)).events.at(-1)?.event).toBe("run.awaiting");
  }),
  fact("a reader that follows a run until its end gets the events after another client's answer", async (client) => {
    const { json } = await client.run("asker", "x");
    const path = `/runs/${json["run_id"]}/events?until=end`;
    const following = client.get(path, { accept: "text/event-stream" });
    for (const text of ["a", "b"]) await client.post(`/runs/${json["run_id"]}`, { await_resume: answer(text) });
    const { events } = await following;
    expect(events.filter(({ event }) => event === "run.awaiting")).toHaveLength(2);
    expect(events.at(-1)?.event).toBe("run.completed");
    expect(events).toEqual(await client.follow(json["run_id"]));
    // A list always holds the events so far.
    expect((await client.get(path)).json["events"]).toEqual(events.map(({ data }) => data));
    const reply = await client.get(`/runs/${json["run_id"]}/events?until=later`);
    refused(reply, 422, "invalid_input", "invalid_argument");
  }),
  fact("Accept decides by its weights whether events come as a stream", async (client) => {
    const { json } = await client.run("echo", "x");
    for (const [accept, type] of [
      ["text/event-stream", "text/event-stream"],
      ["TEXT/Event-Stream; charset=utf-8", "text/event-stream"],
      ["application/json, text/event-stream", "text/event-stream"],
      ["text/event-stream;q=0.5, */*;q=0.1", "text/event-stream"],
      ["text/*", "text/event-stream"],
      ["text/event-stream;q=0", "application/json"],
      ["application/json, text/event-stream; q=0.1", "application/json"],
      ["text/event-stream;q=0.5, */*", "application/json"],
      ["*/*", "application/json"],
      ["text/html", "application/json"],
      ["x-text/event-stream", "application/json"],
      ["", "application/json"],
    ] as const) {
      const reply = await client.get(`/runs/${json["run_id"]}/events`, { accept });
      expect(reply.headers.get("content-type"), accept).toBe(type);
      expect(reply.headers.get("vary")).toBe("Accept");
    }
  }),
  fact("a reader that attaches to a live run gets its events until it rests", async (client) => {
    const { json } = await client.run("asker", "x", { mode: "async" });
    const first = await client.follow(json["run_id"]);
    expect(first.at(-1)?.event).toBe("run.awaiting");
    await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("a") });
    await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("b"), mode: "async" });
    const all = await client.follow(json["run_id"]);
    expect(all.slice(0, first.length)).toEqual(first);
    expect(all.at(-1)?.event).toBe("run.completed");
  }),
  fact("a run in progress lists its events so far", async (client) => {
    const { json } = await client.run("asker", "x");
    const { json: list } = await client.get(`/runs/${json["run_id"]}/events`);
    expect((list["events"] as unknown as Json[]).at(-1)?.["type"]).toBe("run.awaiting");
  }),
];
