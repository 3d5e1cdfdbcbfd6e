import { expect } from "vitest";
import type { Client, Json } from "../client.ts";
import type { Fact } from "./fact.ts";
import { fact, pathOf, refused, runOf } from "./fact.ts";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** The forms of answers that clients rely on. */
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
  fact("the error that an agent throws is not in the answer", async (client) => {
    const { text, json } = await client.run("leaky", "x");
    expect(json).toMatchObject({ status: "failed", error: { code: "server_error" } });
    expect(text).not.toMatch(/hunter2|secret|\.ts/);
  }),
  fact("a part has its content type and encoding, also if the agent gave none", async (client) => {
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
  fact("times of a client and of an agent come back in UTC, digit by digit", async (client) => {
    for (const [given, created_at] of [
      ["2026-11-21T22:05:10.123456Z", "2026-11-21T22:05:10.123456Z"],
      ["2026-11-21T22:05:10.5+00:00", "2026-11-21T22:05:10.5Z"],
      ["2026-11-21T22:05:10", "2026-11-21T22:05:10Z"],
      ["2026-11-21t22:05:10z", "2026-11-21T22:05:10Z"],
      ["2026-11-21T22:05Z", "2026-11-21T22:05:00Z"],
      ["2026-11-22T00:05:10.123456789+02:00", "2026-11-21T22:05:10.123456789Z"],
    ]) {
      const times = { created_at: given, completed_at: given };
      const echoed = await client.run("echo", [{ role: "user", parts: [], ...times }]);
      expect(echoed.json["output"]).toMatchObject([{ created_at, completed_at: created_at }]);
      const message = { role: "user", parts: [{ content: JSON.stringify(times) }] };
      const { events } = await client.run("dated", [message], { mode: "stream" });
      expect(events[3]?.data["message"]).toMatchObject({ created_at, completed_at: created_at });
      const asked = await client.run("asker", "x");
      await client.post(`/runs/${asked.json["run_id"]}`, { await_resume: { message: { parts: [], ...times } } });
      await client.post(`/runs/${asked.json["run_id"]}`, { await_resume: { message: { parts: [], ...times } } });
      const [, , , answered] = await historyOf(client, asked.json["session_id"]);
      expect(answered).toMatchObject({ role: "user", created_at, completed_at: created_at });
    }
  }),
  fact("a time that clients cannot parse is refused in a request, and fails the run of an agent", async (client) => {
    for (const created_at of ["2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "yesterday"]) {
      const reply = await client.run("echo", [{ parts: [], created_at }]);
      refused(reply, 422, "invalid_input", "invalid_argument");
      expect(reply.json["data"]).toMatchObject({ issues: [{ path: ["input", 0, "created_at"] }] });
      const dated = await client.run("dated", JSON.stringify({ created_at }));
      expect(dated.json).toMatchObject({ status: "failed", output: [] });
    }
  }),
  fact("a client's message without a time has its time of arrival in the history", async (client) => {
    const before = new Date().toISOString();
    const { json } = await client.run("asker", [{ parts: [] }, { parts: [], created_at: "2026-11-21T22:05:10Z" }]);
    await client.post(`/runs/${json["run_id"]}`, { await_resume: { message: { parts: [] } } });
    await client.post(`/runs/${json["run_id"]}`, { await_resume: { number: 7 } });
    const after = new Date().toISOString();
    const times = (await historyOf(client, json["session_id"])).flatMap(({ role, created_at, completed_at }) =>
      String(role) === "user" ? [String(created_at), String(completed_at)] : [],
    );
    expect(times.splice(2, 1)).toEqual(["2026-11-21T22:05:10Z"]);
    expect(times).toHaveLength(7);
    for (const time of times) expect(before <= time && time <= after, `${before} ${time} ${after}`).toBe(true);
    expect(times.toSorted()).toEqual(times);
  }),
  fact("a frame is an id of digits, an event name equal to the type, and one line of data", async (client) => {
    const { text, events } = await client.run("notes", "x", { mode: "stream" });
    const frames = text.split("\n\n").slice(0, -1);
    expect(frames).toHaveLength(events.length);
    for (const [index, frame] of frames.entries())
      expect(frame).toMatch(new RegExp(`^id: ${index + 1}\nevent: [a-z.-]+\ndata: .*$`));
    for (const { event, data } of events) expect(data.type).toBe(event);
  }),
  fact("characters that some parsers take for the end of a line are escaped in a stream", async (client) => {
    const content = "a\u2028b\u2029c\u0085d\r\ne\nf";
    const { text, events } = await client.run("echo", content, { mode: "stream" });
    expect(text).not.toMatch(/[\u2028\u2029\u0085\r]/);
    expect(events.find(({ event }) => event === "message.part")?.data["part"]).toMatchObject({ content });
  }),
];

/** The messages of a session. */
async function historyOf(client: Client, sessionId: unknown): Promise<readonly Json[]> {
  const { history } = (await client.get(`/sessions/${sessionId}`)).json as unknown as { history: string[] };
  return Promise.all(history.map(async (url) => (await client.get(pathOf(client, url))).json));
}
