import { expect } from "vitest";
import type { Json } from "../client.ts";
import type { Fact } from "./fact.ts";
import { answer, fact, refused, UNKNOWN_ID } from "./fact.ts";

/** What a service with extensions does beside ACP. */
export const extensionFacts: readonly Fact[] = [
  fact("a message is acknowledged with 202 and the run's id, and the agent receives it", async (client) => {
    const { json } = await client.run("mailbox", "1", { mode: "async" });
    const id = String(json["run_id"]);
    const reply = await client.post(`/runs/${id}/messages/payment`, { cents: 4_000 });
    expect(reply).toMatchObject({ status: 202, json: { run_id: id } });
    expect(reply.headers.get("run-id")).toBe(id);
    await client.follow(id);
    expect(textOf((await client.get(`/runs/${id}`)).json)).toBe('[{"cents":4000}]');
  }),
  fact("a message of another name waits until the agent asks for it", async (client) => {
    const { json } = await client.run("mailbox", "1", { mode: "async" });
    const path = `/runs/${json["run_id"]}`;
    expect((await client.post(`${path}/messages/other`, { cents: 1 })).status).toBe(202);
    expect((await client.post(`${path}/messages/pay%6Dent/`, { cents: 2 })).status).toBe(202);
    await client.follow(json["run_id"]);
    expect(textOf((await client.get(path)).json)).toBe('[{"cents":2}]');
  }),
  fact(
    "a message may be any JSON value",
    async (client) => {
      const values = [null, 7, "text", "", true, [], {}];
      const { json } = await client.run("mailbox", String(values.length), { mode: "async" });
      for (const value of values) {
        const body = JSON.stringify(value);
        const headers = { "content-type": "application/json" };
        expect((await client.send("POST", `/runs/${json["run_id"]}/messages/payment`, { body, headers })).status).toBe(
          202,
        );
      }
      await client.follow(json["run_id"]);
      expect(textOf((await client.get(`/runs/${json["run_id"]}`)).json)).toBe(JSON.stringify(values));
    },
    "bare values",
  ),
  fact("a message with the same key arrives once, and another with the key is 409", async (client) => {
    const { json } = await client.run("mailbox", "2", { mode: "async" });
    const send = (n: number, key: string) =>
      client.post(`/runs/${json["run_id"]}/messages/payment`, { n }, { "idempotency-key": key });
    for (const _ of [1, 2]) expect((await send(1, "a")).status).toBe(202);
    refused(await send(2, "a"), 409, "invalid_input", "idempotency_conflict");
    refused(await send(2, "k".repeat(256)), 422, "invalid_input", "invalid_argument");
    expect((await send(2, "b")).status).toBe(202);
    await client.follow(json["run_id"]);
    expect(textOf((await client.get(`/runs/${json["run_id"]}`)).json)).toBe('[{"n":1},{"n":2}]');
  }),
  fact("a run that has ended takes no messages", async (client) => {
    for (const agent of ["echo", "failing"]) {
      const { json } = await client.run(agent, "x");
      const reply = await client.post(`/runs/${json["run_id"]}/messages/payment`, {});
      refused(reply, 403, "invalid_input", "run_finished");
    }
  }),
  fact("a message needs an existing run, and a name of at most 255 characters", async (client) => {
    refused(await client.post(`/runs/${UNKNOWN_ID}/messages/payment`, {}), 404, "not_found", "run_not_found");
    const { json } = await client.run("asker", "x");
    for (const [path, field] of [
      ["/runs/42/messages/payment", "run_id"],
      [`/runs/${json["run_id"]}/messages/${"n".repeat(256)}`, "message_name"],
    ] as const) {
      const reply = await client.post(path, {});
      refused(reply, 422, "invalid_input", "invalid_argument");
      expect((reply.json["data"] as Json)["issues"]).toMatchObject([{ path: [field] }]);
    }
    refused(await client.post(`/runs/${json["run_id"]}/messages/`, {}), 404, "not_found", "path_not_found");
    expect((await client.post(`/runs/${json["run_id"]}/messages/${"n".repeat(255)}`, {})).status).toBe(202);
  }),
  fact("a message that is nested too deeply, or is too large, is refused", async (client) => {
    const { json } = await client.run("asker", "x");
    const path = `/runs/${json["run_id"]}/messages/payment`;
    refused(
      await client.post(path, JSON.parse(`${"[".repeat(65)}${"]".repeat(65)}`)),
      422,
      "invalid_input",
      "too_deep",
    );
    refused(await client.post(path, { long: "x".repeat(200_000) }), 413, "invalid_input", "body_too_large");
  }),
  fact(
    "a message that is no JSON is 400",
    async (client) => {
      const { json } = await client.run("asker", "x");
      for (const body of ["", "{", "undefined", new Uint8Array([0x22, 0xff, 0x22])])
        refused(
          await client.post(`/runs/${json["run_id"]}/messages/payment`, body),
          400,
          "invalid_input",
          "malformed_body",
        );
    },
    "malformed bodies",
  ),
  fact(
    "a message with a key that could change a prototype is refused",
    async (client) => {
      const { json } = await client.run("asker", "x");
      const reply = await client.post(`/runs/${json["run_id"]}/messages/payment`, '{"a":[{"__proto__":{}}]}');
      refused(reply, 422, "invalid_input", "forbidden_key");
    },
    "forbidden keys",
  ),
  fact(
    "a message that is no JSON by its type is 415",
    async (client) => {
      const { json } = await client.run("asker", "x");
      const sending = { body: "{}", headers: { "content-type": "text/plain" } };
      const reply = await client.send("POST", `/runs/${json["run_id"]}/messages/payment`, sending);
      refused(reply, 415, "invalid_input", "unsupported_media_type");
    },
    "other media types",
  ),
  fact("the details of a run are what its record has no field for", async (client) => {
    const { json } = await client.run("delegate", "x");
    const { status, headers, json: details } = await client.get(`/runs/${json["run_id"]}/details`);
    expect(status).toBe(200);
    expect(headers.get("run-id")).toBe(json["run_id"]);
    expect(details).toMatchObject({
      ...{ run_id: json["run_id"], agent_name: "delegate", version: null, durable: false, metadata: null, labels: {} },
      ...{ parent_run_id: null, root_run_id: json["run_id"], children: [expect.any(String)] },
    });
    const [child] = details["children"] as unknown as string[];
    expect((await client.get(`/runs/${child}/details`)).json).toMatchObject({
      ...{ run_id: child, agent_name: "asker", parent_run_id: json["run_id"], root_run_id: json["run_id"] },
    });
    refused(await client.get(`/runs/${UNKNOWN_ID}/details`), 404, "not_found", "run_not_found");
    refused(await client.get("/runs/42/details"), 422, "invalid_input", "invalid_argument");
    const posted = await client.post(`/runs/${json["run_id"]}/details`, {});
    refused(posted, 405, "invalid_input", "method_not_allowed");
    expect(posted.headers.get("allow")).toBe("GET");
  }),
  fact("events with detail=true have what ACP has no event for, and the others as they are", async (client) => {
    const { json } = await client.run("twofold", "x");
    const path = `/runs/${json["run_id"]}`;
    await client.post(path, { decline: {}, await_id: "ask#2" });
    await client.follow(json["run_id"]);
    const plain = await client.get(`${path}/events`);
    const detailed = await client.get(`${path}/events?detail=true`);
    expect(detailed.status).toBe(200);
    const all = detailed.json["events"] as unknown as Json[];
    const details = all.filter((event) => "position" in event);
    expect({ events: all.filter((event) => !("position" in event)) }).toEqual(plain.json);
    const texts = details.map(({ type, position, question, await_id, how }) =>
      [type, position, question?.["await_id"] ?? await_id, how].join(" "),
    );
    expect(texts.slice(0, 3)).toEqual([
      ...["question.asked 1 ask#1 ", "question.asked 2 ask#2 ", "question.settled 3 ask#2 declined"],
    ]);
    expect((await client.get(`${path}/events?detail=false`)).text).toBe(plain.text);
    refused(await client.get(`${path}/events?detail=yes`), 422, "invalid_input", "invalid_argument");
  }),
  fact("a stream with detail=true gives the details without an id", async (client) => {
    const { json } = await client.run("twofold", "x");
    const path = `/runs/${json["run_id"]}/events`;
    const sse = { accept: "text/event-stream" };
    const plain = await client.get(path, sse);
    const { text, events } = await client.get(`${path}?detail=true`, sse);
    const frames = text.split("\n\n").filter((frame) => frame !== "");
    expect(frames.filter((frame) => frame.startsWith("id: "))).toEqual(plain.text.split("\n\n").filter(Boolean));
    expect(frames.filter((frame) => !frame.startsWith("id: "))).toEqual([
      expect.stringMatching(/^event: question.asked\ndata: \{"type":"question.asked",.*"position":1,"at":"[^"]*"\}$/),
      expect.stringMatching(/^event: question.asked\ndata: \{"type":"question.asked",.*"position":2,"at":"[^"]*"\}$/),
    ]);
    // A browser reconnects from the last id, and gets what follows it once more.
    const again = await client.get(`${path}?detail=true`, { ...sse, "last-event-id": "2" });
    const seen = events.findLastIndex(({ id }) => id === "2");
    expect(again.events.map(({ data }) => data)).toEqual(events.slice(seen + 1).map(({ data }) => data));
  }),
  fact("a question is declined in all three modes, and the run fails with the reason", async (client) => {
    const declined = { status: "failed", error: { code: "server_error", data: { reason: "answer_declined" } } };
    for (const mode of ["sync", "async", "stream"]) {
      const { json } = await client.run("asker", "x");
      const reply = await client.post(`/runs/${json["run_id"]}`, { decline: { reason: "Not today." }, mode });
      expect(reply.status).toBe(mode === "async" ? 202 : 200);
      expect(reply.headers.get("run-id")).toBe(json["run_id"]);
      if (mode === "stream") expect(reply.events.map(({ event }) => event)).toEqual(["run.in-progress", "run.failed"]);
      await client.follow(json["run_id"]);
      const run = (await client.get(`/runs/${json["run_id"]}`)).json;
      expect(run).toMatchObject(declined);
      expect((run["error"] as Json)["message"]).toContain("Not today.");
      if (mode === "sync") expect(reply.json).toEqual(run);
    }
  }),
  fact("a decline may be repeated, and another reply to the question is 409", async (client) => {
    const { json } = await client.run("twofold", "x");
    const reply = (body: object) => client.post(`/runs/${json["run_id"]}`, { await_id: "ask#1", ...body });
    for (const _ of [1, 2]) expect((await reply({ decline: { reason: "no" } })).status).toBe(200);
    refused(await reply({ decline: { reason: "never" } }), 409, "invalid_input", "answer_conflict");
    refused(await reply({ await_resume: answer("yes") }), 409, "invalid_input", "answer_conflict");
  }),
  fact("a decline with a fault is refused with its path, and the run goes on waiting", async (client) => {
    const { json } = await client.run("asker", "x");
    for (const [body, path] of [
      [{ decline: {}, await_resume: answer("x") }, ["await_resume"]],
      [{ decline: "no" }, ["decline"]],
      [{ decline: [] }, ["decline"]],
      [{ decline: { reason: 7 } }, ["decline", "reason"]],
      [{ decline: { reason: "" } }, ["decline", "reason"]],
      [{ decline: {}, await_id: "" }, ["await_id"]],
      [{ decline: {}, mode: "later" }, ["mode"]],
      [{ decline: null }, ["await_resume"]],
      [{}, ["await_resume"]],
    ] as const) {
      const reply = await client.post(`/runs/${json["run_id"]}`, body);
      refused(reply, 422, "invalid_input", "invalid_argument");
      expect((reply.json["data"] as Json)["issues"]).toMatchObject([{ path }]);
    }
    const mismatch = await client.post(`/runs/${json["run_id"]}`, { decline: {}, run_id: UNKNOWN_ID });
    refused(mismatch, 400, "invalid_input", "run_mismatch");
    refused(
      await client.post(`/runs/${json["run_id"]}`, { decline: {}, await_id: "ask#9" }),
      403,
      "invalid_input",
      "not_awaiting",
    );
    expect((await client.get(`/runs/${json["run_id"]}`)).json["status"]).toBe("awaiting");
    const nulls = { decline: { reason: null }, await_resume: null, await_id: null, run_id: null, mode: null };
    expect((await client.post(`/runs/${json["run_id"]}`, nulls)).json["status"]).toBe("failed");
  }),
  fact("null in place of decline is no decline", async (client) => {
    const { json } = await client.run("asker", "x");
    const reply = await client.post(`/runs/${json["run_id"]}`, { decline: null, await_resume: answer("this") });
    expect(reply).toMatchObject({ status: 200, json: { status: "awaiting" } });
  }),
];

/** The text of a run's only part. */
function textOf(run: Json): unknown {
  const [message] = run["output"] as unknown as { parts: { content: string }[] }[];
  return message?.parts[0]?.content;
}
