import type { RuntimeOptions } from "cadenza";
import type { AcpOptions, AuthorizeRequest } from "cadenza/http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { onDurableStore } from "../harness/durable-runtime.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import type { Json, Reply } from "./client.ts";
import { Client } from "./client.ts";
import { extensionFacts } from "./facts/extensions.ts";
import { answer, refused } from "./facts/fact.ts";
import type { OpenPlace } from "./mounts.ts";
import { inProcess, mounts } from "./mounts.ts";
import { extendedOpenApi, openApi } from "./openapi-check.ts";
import { makeWorld } from "./world.ts";

describe.each(mounts)("the extensions, $name", ({ open, keeps }) => {
  const runtime = makeWorld();
  let place: OpenPlace;
  let client: Client;

  beforeAll(async () => {
    place = await open(runtime, { limits: { maxBodyBytes: 200_000 }, extensions: true });
    client = new Client(place);
  });
  afterAll(async () => {
    await place.close();
    await runtime.close({ drainMs: 0 });
  });

  const checked = extensionFacts.filter(({ needs }) => needs === undefined || !keeps.includes(needs));
  it.each(checked)("$name", async ({ check }) => {
    await check(client);
  });
});

/** Two services of one runtime: one without extensions, one with. */
async function pair(options: AcpOptions = {}, world: RuntimeOptions = {}) {
  const clock = new FakeClock();
  const runtime = makeWorld({ clock, ...world });
  const plain = new Client(await inProcess.open(runtime, options));
  const extended = new Client(await inProcess.open(runtime, { ...options, extensions: true }));
  return { clock, runtime, plain, extended };
}

describe("without extensions", () => {
  it("their paths are like any other unknown path", async () => {
    const { plain } = await pair();
    const { json } = await plain.run("asker", "x");
    const unknown = await plain.get(`/runs/${json["run_id"]}/unknown`);
    refused(unknown, 404, "not_found", "path_not_found");
    expect((await plain.get(`/runs/${json["run_id"]}/details`)).text).toBe(unknown.text);
    expect((await plain.post(`/runs/${json["run_id"]}/messages/payment`, {})).text).toBe(unknown.text);
  });

  it("detail=true is ignored, as any other parameter that is unknown", async () => {
    const { plain } = await pair();
    const { json } = await plain.run("twofold", "x");
    const path = `/runs/${json["run_id"]}/events`;
    for (const accept of ["application/json", "text/event-stream"])
      for (const detail of ["true", "false", "nonsense"])
        expect((await plain.get(`${path}?detail=${detail}`, { accept })).text).toBe(
          (await plain.get(path, { accept })).text,
        );
  });

  it("a body with decline is refused, and decline beside an answer is ignored", async () => {
    const { plain } = await pair();
    const { json } = await plain.run("asker", "x");
    const path = `/runs/${json["run_id"]}`;
    refused(await plain.post(path, {}), 422, "invalid_input", "invalid_argument");
    const declined = await plain.post(path, { decline: { reason: "no" } });
    refused(declined, 422, "invalid_input", "invalid_argument");
    expect(declined.json["message"]).toBe(
      "decline: this service takes no declined answers, which are not part of ACP (option extensions)",
    );
    expect((await plain.post(path, { decline: {}, await_resume: answer("a") })).json["status"]).toBe("awaiting");
  });
});

describe("what ACP has", () => {
  it("is the same in the OpenAPI document, with and without extensions", () => {
    const { paths, components, ...rest } = extendedOpenApi;
    const {
      "/runs/{run_id}/details": details,
      "/runs/{run_id}/messages/{message_name}": messages,
      "/runs/{run_id}": run,
      "/runs/{run_id}/events": events,
      ...others
    } = paths;
    const { "/runs/{run_id}": plainRun, "/runs/{run_id}/events": plainEvents, ...plainOthers } = openApi.paths;
    expect(JSON.stringify([events, plainEvents]).match(/Detail/g)).toHaveLength(2);
    expect([Object.keys(details ?? {}), Object.keys(messages ?? {})]).toEqual([["get"], ["post"]]);
    expect(others).toEqual(plainOthers);
    expect(run?.["get"]).toEqual(plainRun?.["get"]);
    expect(run?.["post"]?.responses["200"]).toEqual(plainRun?.["post"]?.responses["200"]);
    const { RunDeclineRequest, RunDetails, OpenQuestion, MessageReceipt, ...more } = components.schemas;
    const { RunDetailedEventsListResponse, DetailedEvent, RunDetailEvent, Usage, ...schemas } = more;
    for (const added of [RunDeclineRequest, RunDetails, OpenQuestion, MessageReceipt]) expect(added).toBeDefined();
    for (const added of [RunDetailedEventsListResponse, DetailedEvent, RunDetailEvent, Usage])
      expect(added).toBeDefined();
    expect(schemas).toEqual(openApi.components.schemas);
    expect({ ...rest, paths: plainOthers, components: { schemas } }).toEqual({ ...openApi, paths: plainOthers });
  });

  it("reads the same, whatever was done with extensions", async () => {
    const { plain, extended, runtime } = await pair();
    const marked = await runtime.createRun(
      { agent_name: "twofold", input: "x" },
      { metadata: { secret: 1 }, labels: { order: "O-17" } },
    );
    await extended.post(`/runs/${marked.run_id}/messages/payment`, { cents: 4_000 });
    await extended.get(`/runs/${marked.run_id}/details`);
    await extended.post(`/runs/${marked.run_id}`, { decline: { reason: "no" }, await_id: "ask#2", mode: "async" });
    const received = await extended.run("mailbox", "1", { mode: "async" });
    await extended.post(`/runs/${received.json["run_id"]}/messages/payment`, { cents: 4_000 });
    await extended.follow(received.json["run_id"]);
    const ids = [marked.run_id, String(received.json["run_id"])];
    const sessions = [marked.session_id, String(received.json["session_id"])];
    const paths = [
      ...["/runs", "/agents", "/agents/mailbox", "/ping"],
      ...ids.flatMap((id) => [`/runs/${id}`, `/runs/${id}/events`]),
      ...sessions.flatMap((id) => [`/sessions/${id}`, `/resources/${id}.0`]),
    ];
    for (const path of paths)
      for (const accept of ["application/json", "text/event-stream"]) {
        const one = await plain.get(path, { accept });
        expect(await extended.get(path, { accept })).toEqual(one);
        expect(one.text).not.toMatch(/secret|O-17/);
      }
  });

  it("answers the same", async () => {
    const answers = async (extensions: boolean): Promise<readonly unknown[]> => {
      const runtime = makeWorld({ clock: new FakeClock() });
      const client = new Client(await inProcess.open(runtime, { extensions }));
      const replies: Reply[] = [];
      const key = { "idempotency-key": "k" };
      for (const mode of ["sync", "async", "stream"]) {
        replies.push(await client.run("echo", "x", { mode }));
        const asked = await client.run("twofold", "x");
        const path = `/runs/${asked.json["run_id"]}`;
        for (const body of [{ await_resume: answer("a"), mode }, { await_resume: 7 }, {}, []])
          replies.push(asked, await client.post(path, body, key));
        replies.push(await client.send("POST", `${path}/cancel`), await client.get(`${path}/events?more=true`));
        replies.push(await client.get(`${path}/other`), await client.send("DELETE", path));
      }
      return normal(replies);
    };
    expect(await answers(true)).toEqual(await answers(false));
  });
});

/** Statuses, headers and texts, with ids by the order in which they first occur. */
function normal(replies: readonly Reply[]): readonly unknown[] {
  const ids: string[] = [];
  return replies.map(({ status, headers, text }) =>
    JSON.stringify([status, [...headers].sort(), text]).replaceAll(
      /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g,
      (id) => {
        if (!ids.includes(id)) ids.push(id);
        return `#${ids.indexOf(id)}`;
      },
    ),
  );
}

describe("authorize", () => {
  it("is asked for each extension, before the body is read", async () => {
    const requests: AuthorizeRequest[] = [];
    const { extended } = await pair({
      authorize: (request) => {
        requests.push(request);
        return request.action === "create" ? {} : false;
      },
    });
    const { json } = await extended.run("asker", "x");
    const run_id = String(json["run_id"]);
    for (const reply of [
      await extended.get(`/runs/${run_id}/details`),
      await extended.post(`/runs/${run_id}/messages/pay%20me`, "no JSON"),
      await extended.post(`/runs/${run_id}`, { decline: {} }),
    ])
      refused(reply, 403, "invalid_input", "forbidden");
    expect(requests.slice(2)).toMatchObject([
      { action: "read", run_id },
      { action: "send", run_id, message_name: "pay me" },
      { action: "answer", run_id },
    ]);
    expect(requests.map((request) => "message_name" in request)).toEqual([false, false, false, true, false]);
  });

  it("lets a client of a tenant send and decline in its own runs", async () => {
    const { extended, runtime } = await pair({ authorize: () => ({ principal: "ada", tenant: "blue" }) });
    runtime.register("who", async (_, { ask, receive }) => {
      await receive("go");
      return ask("Who?").catch((error: Error) => error.message);
    });
    const { json } = await extended.run("who", "x", { mode: "async" });
    expect((await extended.post(`/runs/${json["run_id"]}/messages/go`, {})).status).toBe(202);
    await extended.follow(json["run_id"]);
    const { json: run } = await extended.post(`/runs/${json["run_id"]}`, { decline: { reason: "not me" } });
    expect(JSON.stringify(run["output"])).toContain("not me");
  });

  it("hides sub-runs of agents that do not exist for the client from the events", async () => {
    const hidden: string[] = [];
    const { extended, runtime, clock } = await pair({
      authorize: () => ({ agents: (name) => !hidden.includes(name) }),
    });
    for (const name of ["first", "second"]) runtime.register(name, { durable: true }, (_, { ask }) => ask("Which?"));
    runtime.register("both", { durable: true }, async (_, { run }) => {
      await run("first", "x");
      await run("second", "x");
    });
    const { json } = await extended.run("both", "x");
    const path = `/runs/${json["run_id"]}/events?detail=true`;
    const typesOf = async (accept: string): Promise<unknown[]> => {
      const reply = await extended.get(path, { accept });
      const events = accept === "application/json" ? reply.json["events"] : reply.events.map(({ data }) => data);
      return (events as unknown as Json[]).flatMap((event) =>
        "position" in event ? [[event["type"], event["agent_name"] ?? event["question"]?.["of"] ?? null]] : [],
      );
    };
    await extended.post(`/runs/${json["run_id"]}`, { await_resume: { ok: true } });
    await clock.settle();
    const all = [
      ...[
        ["sub_run.started", "first"],
        ["question.asked", null],
        ["question.settled", null],
      ],
      ...[
        ["sub_run.ended", "first"],
        ["sub_run.started", "second"],
        ["question.asked", null],
      ],
    ];
    expect(await typesOf("application/json")).toEqual(all);
    hidden.push("first");
    for (const accept of ["application/json", "text/event-stream"])
      expect(await typesOf(accept)).toEqual(all.filter(([, name]) => name !== "first"));
  });

  it("hides sub-runs, parents and roots of agents that do not exist for the client from the details", async () => {
    const hidden: string[] = [];
    const { extended } = await pair({ authorize: () => ({ agents: (name) => !hidden.includes(name) }) });
    const { json } = await extended.run("delegate", "x");
    const details = async (id: unknown): Promise<Json> => (await extended.get(`/runs/${id}/details`)).json;
    const all = await details(json["run_id"]);
    const [child] = all["children"] as unknown as string[];
    expect(all["await_requests"]).toMatchObject([{ of: { run_id: child, await_id: "await#1" } }]);
    hidden.push("asker");
    expect(await details(json["run_id"])).toEqual({
      ...all,
      ...{ children: [], await_requests: [{ ...(all["await_requests"]?.[0] as Json), of: null }] },
    });
    hidden.splice(0, 1, "delegate");
    expect(await details(child)).toMatchObject({ run_id: child, parent_run_id: null, root_run_id: child });
    refused(await extended.get(`/runs/${json["run_id"]}/details`), 404, "not_found", "run_not_found");
  });
});

describe("a run", () => {
  it("has the details over HTTP that it has in process", async () => {
    const { extended, runtime } = await pair();
    const more = { metadata: { channel: "chat" }, labels: { order: "O-17" } };
    const { run_id } = await runtime.createRun({ agent_name: "asker", input: "x" }, more);
    const { json } = await extended.get(`/runs/${run_id.toUpperCase()}/details`);
    expect(json).toEqual(JSON.parse(JSON.stringify(await runtime.details(run_id))));
    expect(json).toMatchObject(more);
  });

  it("that is being cancelled takes neither messages nor declines, and has its details", async () => {
    const { extended, runtime } = await pair();
    const { json } = await extended.run("stubborn", "x", { mode: "async" });
    const path = `/runs/${json["run_id"]}`;
    for await (const { type } of runtime.events(String(json["run_id"]))) if (type === "message.part") break;
    expect((await extended.send("POST", `${path}/cancel`)).json["status"]).toBe("cancelling");
    refused(await extended.post(`${path}/messages/payment`, {}), 403, "invalid_input", "run_cancelling");
    refused(await extended.post(path, { decline: {} }), 403, "invalid_input");
    expect((await extended.get(`${path}/details`)).status).toBe(200);
  });

  it("that was left by a closed runtime takes no decline, with 503, and has its details", async () => {
    const { extended, runtime } = await pair({}, onDurableStore({ store: lastingStore() }));
    runtime.register("lasting", { durable: true }, (_, { ask }) => ask("Yes?"));
    const { json } = await extended.run("lasting", "x");
    await runtime.close({ drainMs: 0 });
    const path = `/runs/${json["run_id"]}`;
    const reply = await extended.post(path, { decline: {} });
    refused(reply, 503, "server_error");
    expect(reply.headers.get("retry-after")).toBe("1");
    expect((await extended.get(`${path}/details`)).json["waits_for"]).toEqual(["ask#1"]);
  });

  it("that has ended with its runtime takes neither messages nor declines", async () => {
    const { extended, runtime } = await pair();
    const { json } = await extended.run("asker", "x");
    await runtime.close({ drainMs: 0 });
    const path = `/runs/${json["run_id"]}`;
    refused(await extended.post(`${path}/messages/payment`, {}), 503, "server_error", "runtime_closed");
    refused(await extended.post(path, { decline: {} }), 403, "invalid_input", "not_awaiting");
    expect((await extended.get(`${path}/details`)).json["waits_for"]).toEqual([]);
  });
});
