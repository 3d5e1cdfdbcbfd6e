import { expect } from "vitest";
import type { Json } from "../client.ts";
import { JSON_TYPE } from "../client.ts";
import type { Fact } from "./fact.ts";
import { fact, refused, runOf } from "./fact.ts";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** What clients read, and would trip over if it were otherwise. */
export const answerFacts: readonly Fact[] = [
  fact("times end in Z, and absent ones are null", async (client) => {
    const { json } = await client.run("echo", "x");
    expect(json["created_at"]).toMatch(UTC);
    expect(json["finished_at"]).toMatch(UTC);
    const awaiting = await client.run("asker", "x");
    expect(awaiting.json["finished_at"]).toBeNull();
    const [said] = awaiting.json["output"] as unknown as Json[];
    for (const time of ["created_at", "completed_at"]) expect(said?.[time]).toMatch(UTC);
    const failed = await client.run("failing", "x");
    const [open] = failed.json["output"] as unknown as Json[];
    expect(open?.["created_at"]).toMatch(UTC);
    expect(open?.["completed_at"]).toBeNull();
  }),
  fact("a run always has its lists, and null where there is nothing", async (client) => {
    const { json } = await client.run("plain", "x");
    expect(json).toMatchObject({ output: expect.any(Array), error: null, await_request: null });
    for (const name of ["run_id", "session_id"]) expect(json[name]).toMatch(UUID);
    const created = await client.run("plain", "x", { mode: "async" });
    expect(created.json).toMatchObject({ output: [], error: null, await_request: null, finished_at: null });
  }),
  fact("an error's own code is data, and its data is an object", async (client) => {
    const { json } = await client.run("regretful", "x");
    const error = { code: "server_error", message: "There is no money.", data: { reason: "no_money", missing: 7 } };
    expect(json).toMatchObject({ status: "failed", error });
    const { events } = await client.run("regretful", "x", { mode: "stream" });
    expect(runOf(events.at(-1))["error"]).toEqual(json["error"]);
  }),
  fact("what an agent throws is not shown", async (client) => {
    const { text, json } = await client.run("leaky", "x");
    expect(json).toMatchObject({ status: "failed", error: { code: "server_error" } });
    expect(text).not.toMatch(/hunter2|secret|\.ts/);
  }),
  fact("a part says of what type and encoding it is, also if nobody has said so", async (client) => {
    const { json } = await client.run("echo", [{ parts: [{ content: "x" }, {}] }]);
    const defaults = { content_type: "text/plain", content_encoding: "plain" };
    expect(json["output"]).toMatchObject([{ parts: [{ content: "x", ...defaults }, defaults] }]);
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
    const input = [{ role: "user", parts: [], created_at, completed_at: created_at }];
    // The official TypeScript client does not read what it has never written.
    const reply = await client.open("POST", "/runs", { body: { agent_name: "echo", input }, headers: JSON_TYPE });
    expect(await reply.json()).toMatchObject({ output: [{ created_at, completed_at: created_at }] });
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
];
