import { createHash } from "node:crypto";
import { join } from "node:path";
import type { AgentContext, CreateRunOptions, ListRunsQuery } from "cadenza";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { describe, expect, it, onTestFinished } from "vitest";
import { replays } from "../../harness/always-replay.ts";
import { drain, refusal, setUp, textOf, textsOf } from "../../harness/runtimes.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";
import { lastingStore } from "../../harness/store-proxy.ts";

/* What the creator of a run gives it beside its input: metadata, labels and the key of its session. */

const SESSION = "00000000-0000-4000-8000-0000000000a1";
const given: CreateRunOptions = {
  metadata: { ticket: 17, tags: ["a", null] },
  labels: { order: "O-17", customer: "Zoë" },
};

function sqlite(): Store {
  const folder = temporaryFolder();
  const store = new SqliteStore(openDatabase(join(folder.path, "runs.db")), { closeDatabase: true });
  onTestFinished(() => {
    store.close();
    folder.remove();
  });
  return store;
}

/** What an agent sees. */
const shows = (_input: unknown, { metadata, labels }: AgentContext) => JSON.stringify([metadata, labels]);

describe.each([
  ["in memory", () => setUp()],
  ["on SQLite", () => setUp({ store: sqlite() })],
] as const)("a run %s", (_where, make) => {
  it("gives its agent the metadata and the labels of its creator, as copies", async () => {
    const { runtime } = make();
    runtime.register("agent", shows);
    const metadata = { list: [1] };
    const labels = { order: "O-17" };
    const creating = runtime.createRun({ agent_name: "agent", input: "x", mode: "async" }, { metadata, labels });
    metadata.list.push(2);
    labels.order = "changed";
    const { run_id } = await creating;
    await drain(runtime.events(run_id));
    expect(textsOf(await runtime.getRun(run_id))).toEqual(['[{"list":[1]},{"order":"O-17"}]']);
  });

  it("has neither by default, nor when they are empty", async () => {
    const { runtime } = make();
    runtime.register("agent", shows);
    for (const options of [undefined, {}, { metadata: null, labels: {} }, { metadata: undefined, labels: undefined }])
      expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "x" }, options))).toEqual(["[null,{}]"]);
  });

  it("keeps any JSON, and labels with any name", async () => {
    const { runtime } = make();
    runtime.register("agent", shows);
    const labels = JSON.parse('{"__proto__":"p","constructor":"\\u0000\\ud800\\"","a b":"ä"}');
    for (const metadata of [0, false, "", "text", [[]], JSON.parse('{"__proto__":1}')]) {
      const run = await runtime.createRun({ agent_name: "agent", input: "x" }, { metadata, labels });
      expect(textsOf(run)).toEqual([JSON.stringify([metadata, labels])]);
    }
  });

  it("shares neither with its sub-runs", async () => {
    const { runtime } = make();
    runtime.register("child", shows);
    runtime.register("agent", async (_input, { run }) => (await run("child", "x")).output[0]?.parts);
    expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "x" }, given))).toEqual(["[null,{}]"]);
  });

  it("shows neither to clients", async () => {
    const { runtime } = make();
    runtime.register("agent", () => "ok");
    const request = { agent_name: "agent", input: "x" } as const;
    const run = await runtime.createRun(request, given);
    const plain = await runtime.createRun(request);
    const events = await drain(runtime.createRun({ ...request, mode: "stream" }, given));

    expect(Object.keys(run)).toEqual(Object.keys(plain));
    expect(JSON.stringify([run, events])).not.toMatch(/O-17|ticket/);
  });

  it("tells them in its details, with its agent, also when it has ended", async () => {
    const { runtime } = make();
    runtime.register("agent", { version: "2" }, ({ length }, { ask }) => ask(`${length}?`));
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x" }, given);
    const details = await runtime.details(run_id);
    expect(details).toMatchObject({ run_id, agent_name: "agent", version: "2", durable: replays, ...given });
    await runtime.resume({ run_id, await_resume: { ok: true } });
    const { finished_at } = await runtime.getRun(run_id);
    const changed = { status: "completed", finished_at, last_event_id: 6, await_requests: [], waits_for: [] };
    expect(await runtime.details(run_id)).toEqual({ ...details, ...changed });
    runtime.register("bare", { durable: true }, () => "ok");
    const bare = await runtime.createRun({ agent_name: "bare", input: "x" });
    expect(await runtime.details(bare.run_id)).toMatchObject({
      agent_name: "bare",
      version: null,
      durable: true,
      metadata: null,
      labels: {},
    });
  });

  it("joins the session that a key names, which is the same for each call", async () => {
    const { runtime } = make();
    runtime.register("agent", async (_input, { session }) => `${(await session.history()).length}`);
    const create = (sessionKey: string, mode?: "sync") =>
      runtime.createRun({ agent_name: "agent", input: "x", mode }, { sessionKey });
    const first = await create("chat-17");
    const second = await create("chat-17", "sync");
    const other = await create("chat-18");

    expect([first, second, other].map((run) => textsOf(run)[0])).toEqual(["0", "2", "0"]);
    expect(second.session_id).toBe(first.session_id);
    expect(other.session_id).not.toBe(first.session_id);
    expect(runtime.sessionId("chat-17")).toBe(first.session_id);
    expect(runtime.scope({ tenant: "other" }).sessionId("chat-17")).not.toBe(first.session_id);
    expect((await runtime.getSession(first.session_id ?? "")).history).toHaveLength(4);
    const joined = await runtime.createRun({ agent_name: "agent", input: "x", session_id: first.session_id });
    expect(textsOf(joined)).toEqual(["4"]);
  });
});

describe.each([
  ["in memory", () => setUp()],
  ["on SQLite", () => setUp({ store: sqlite() })],
] as const)("listRuns %s", (_where, make) => {
  const list = async (runtime: Pick<AgentRuntime, "listRuns">, query: ListRunsQuery) =>
    (await runtime.listRuns(query)).map(({ run_id }) => run_id);

  it("finds runs by all of the given labels", async () => {
    const { runtime } = make();
    runtime.register("asks", (_input, { ask }) => ask("?")).register("ends", () => "ok");
    const create = async (agent_name: string, labels?: CreateRunOptions["labels"]) =>
      (await runtime.createRun({ agent_name, input: "x" }, { labels })).run_id;
    const a = await create("asks", { order: "1", team: "a" });
    const b = await create("ends", { order: "1", team: "b" });
    const c = await create("asks", { order: "1" });
    const d = await create("asks");

    expect(await list(runtime, { labels: { order: "1" } })).toEqual([c, b, a]);
    expect(await list(runtime, { labels: { order: "1", team: "b" } })).toEqual([b]);
    expect(await list(runtime, { labels: { order: "1" }, agent_name: "asks", limit: 1, offset: 1 })).toEqual([a]);
    expect(await list(runtime, { labels: { order: "2" } })).toEqual([]);
    expect(await list(runtime, { labels: {} })).toEqual([d, c, b, a]);
    const open = { labels: { order: "1" }, status: ["created", "in-progress", "awaiting", "cancelling"] } as const;
    expect(await list(runtime, open)).toEqual([c, a]);
    await runtime.resume({ run_id: c, await_resume: { ok: true } });
    expect(await list(runtime, open)).toEqual([a]);
    expect(await list(runtime.scope({ tenant: "other" }), { labels: { order: "1" } })).toEqual([]);
  });

  it("takes one status or several", async () => {
    const { runtime } = make();
    runtime.register("asks", (_input, { ask }) => ask("?")).register("ends", () => "ok");
    const create = async (agent_name: string) => (await runtime.createRun({ agent_name, input: "x" })).run_id;
    const [a, b, c] = [await create("ends"), await create("asks"), await create("ends")];
    expect(await list(runtime, { status: "completed" })).toEqual([c, a]);
    expect(await list(runtime, { status: ["completed"] })).toEqual([c, a]);
    expect(await list(runtime, { status: ["completed", "awaiting"] })).toEqual([c, b, a]);
    expect(await list(runtime, { status: ["failed", "awaiting"] })).toEqual([b]);
    expect(await list(runtime, { status: [] })).toEqual([]);
  });

  it("finds the direct sub-runs of a run, which its details name in their order", async () => {
    const { runtime } = make();
    runtime.register("leaf", (_input, { ask }) => ask("?"));
    runtime.register("middle", (_input, { run }) => run("leaf", "x"));
    runtime.register("root", async (_input, { run }) => {
      await run("ends", "x");
      await run("middle", "x");
    });
    runtime.register("ends", () => "ok");
    const { run_id } = await runtime.createRun({ agent_name: "root", input: "x" });
    await runtime.createRun({ agent_name: "root", input: "x" });
    const children = await runtime.listRuns({ parent: run_id });

    expect(children.map(({ agent_name }) => agent_name)).toEqual(["middle", "ends"]);
    const [middle = "", ends = ""] = children.map((run) => run.run_id);
    const [leaf = ""] = await list(runtime, { parent: middle });
    expect(await list(runtime, { parent: run_id, status: "awaiting" })).toEqual([middle]);
    expect(await list(runtime, { parent: run_id, roots: true })).toEqual([]);
    expect(await list(runtime, { parent: leaf })).toEqual([]);
    expect(await list(runtime, { parent: ends })).toEqual([]);
    const childrenOf = async (id: string) => (await runtime.details(id)).children;
    expect(await childrenOf(run_id)).toEqual([ends, middle]);
    expect(await childrenOf(middle)).toEqual([leaf]);
    expect(await childrenOf(leaf)).toEqual([]);
    expect(await list(runtime.scope({ tenant: "other" }), { parent: run_id })).toEqual([]);
    // A list of questions leaves sub-runs out by default, also with the status in a list.
    expect(await list(runtime, { status: ["awaiting"] })).toHaveLength(2);
    expect(await list(runtime, { status: ["awaiting"], roots: false })).toHaveLength(6);
    expect(await list(runtime, { status: ["awaiting", "failed"] })).toHaveLength(6);
  });
});

it("the details of a run name all of its many sub-runs", async () => {
  const { runtime } = setUp();
  runtime.register("child", () => "ok");
  const named: string[] = [];
  runtime.register("agent", async (_input, { run }) => {
    for (let n = 0; n < 201; n++) named.push((await run("child", "x")).run_id);
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x" });
  expect((await runtime.details(run_id)).children).toEqual([...new Set(named)]);
});

describe("listRuns refuses", () => {
  it.each<[what: string, query: object, ...says: readonly string[]]>([
    ["a bad status in a list", { status: ["awaiting", "done"] }, "query.status[1]"],
    ["a number for a status", { status: 5 }, "query.status"],
    ["null for labels", { labels: null }, "query.labels", "an object", "null"],
    ["a label without a value", { labels: { order: undefined } }, "query.labels", '"order"', "undefined"],
    ["a bad parent", { parent: "abc" }, "query.parent", "UUID"],
    ["an unknown key", { label: {} }, "query", '"label"', "labels"],
  ])("%s", async (_what, query, ...says) => {
    const error = await refusal(setUp().runtime.listRuns(query));
    expect(error.code).toBe("invalid_argument");
    for (const text of says) expect(error.message).toContain(text);
  });
});

describe("the session of a key", () => {
  it("has a version 5 UUID of the tenant, with its length, and the key", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    for (const [tenant, key] of [
      ["", "chat-17"],
      ["a", "bc"],
      ["ab", "c"],
      ["1", ":x"],
      ["", "Zoë 🎻"],
      ["", "x".repeat(255)],
    ] as const) {
      const run = await runtime.scope({ tenant }).createRun({ agent_name: "agent", input: "x" }, { sessionKey: key });
      expect(run.session_id).toBe(uuidOf(`${tenant.length}:${tenant}${key}`));
    }
  });

  it("is found in every mode, and with an idempotency key", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    const request = { agent_name: "agent", input: "x" } as const;
    const { session_id } = await runtime.createRun(request, { sessionKey: "k" });
    expect(await runtime.createRun({ ...request, mode: "async" }, { sessionKey: "k" })).toMatchObject({ session_id });
    const events = await drain(runtime.createRun({ ...request, mode: "stream" }, { sessionKey: "k" }));
    expect(events[0]).toMatchObject({ type: "run.created", run: { session_id } });
    const options = { sessionKey: "k", idempotencyKey: "i" };
    const { run_id } = await runtime.createRun(request, options);
    expect(await runtime.createRun(request, options)).toMatchObject({ run_id, session_id });
    // The key names the session as `session_id` does.
    expect((await runtime.createRun({ ...request, session_id }, { idempotencyKey: "i" })).run_id).toBe(run_id);
    expect(await refusal(runtime.createRun(request, { ...options, sessionKey: "l" }))).toMatchObject({
      code: "idempotency_conflict",
    });
  });

  it("takes a session that the caller provides", async () => {
    const { runtime } = setUp();
    runtime.register("agent", async (_input, { session }) => (await session.history()).map(textOf).join());
    const session = { history: [{ role: "user", parts: [{ content: "before" }] }] } as const;
    const run = await runtime.createRun({ agent_name: "agent", input: "x" }, { sessionKey: "k", session });
    expect(textsOf(run)).toEqual(["before"]);
  });
});

describe("an idempotency key", () => {
  it("gives the same run to a request with other metadata and labels", async () => {
    const { runtime } = setUp();
    runtime.register("agent", shows);
    const create = (options: CreateRunOptions) =>
      runtime.createRun({ agent_name: "agent", input: "x" }, { idempotencyKey: "key", ...options });
    const first = await create(given);
    expect(await create({})).toEqual(first);
    expect(await create({ metadata: "other", labels: { other: "1" } })).toEqual(first);
  });
});

it("a durable run has its metadata and labels in the next process", async () => {
  const store = lastingStore();
  const start = () => new AgentRuntime({ store: durable(store) }).register("agent", { durable: true }, asks);
  const asks = async (input: unknown, context: AgentContext) => {
    await context.ask("?");
    return shows(input, context);
  };
  const first = start();
  const { run_id } = await first.createRun({ agent_name: "agent", input: "x" }, given);
  await first.close();
  const second = start();
  const run = await second.resume({ run_id, await_resume: { ok: true } });
  expect(textsOf(run)).toEqual([JSON.stringify([given.metadata, given.labels])]);
  await second.close();
});

describe("createRun refuses", () => {
  const nine = Object.fromEntries([..."123456789"].map((n) => [n, n]));
  it.each<[what: string, options: object, ...says: readonly string[]]>([
    ["metadata that is no JSON", { metadata: { at: new Date(0) } }, "options.metadata.at", "a JSON value", "a Date"],
    ["a text for labels", { labels: "order" }, "options.labels", "an object", '"order"'],
    ["null for labels", { labels: null }, "options.labels", "an object", "null"],
    ["a list of labels", { labels: ["order"] }, "options.labels", "an object", "an array"],
    ["a map of labels", { labels: new Map([["a", "b"]]) }, "options.labels", "an object", "a Map"],
    ["nine labels", { labels: nine }, "options.labels", "at most 8", "9"],
    ["a label without a name", { labels: { "": "x" } }, "options.labels", "names of 1 to 64", '""'],
    ["a label with a long name", { labels: { ["n".repeat(65)]: "x" } }, "options.labels", "names of 1 to 64", "65"],
    ["a label without a value", { labels: { order: undefined } }, "options.labels", '"order"', "undefined"],
    ["a label with an empty value", { labels: { order: "" } }, "options.labels", "a string of 1 to 64", '"order"'],
    ["a label with a long value", { labels: { order: "x".repeat(65) } }, "options.labels", "a string of 1 to 64"],
    ["a number for a label", { labels: { order: 17 } }, "options.labels", "a string of 1 to 64", "17"],
    ["a number for a session key", { sessionKey: 17 }, "options.sessionKey", "a string of 1 to 255", "17"],
    ["an empty session key", { sessionKey: "" }, "options.sessionKey", "a string of 1 to 255", '""'],
    ["a long session key", { sessionKey: "x".repeat(256) }, "options.sessionKey", "a string of 1 to 255", "256"],
    ["a session key that UTF-8 cannot carry", { sessionKey: "a\ud800" }, "options.sessionKey", "lone surrogates"],
  ])("%s", async (_what, options, ...says) => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    const error = await refusal(runtime.createRun({ agent_name: "agent", input: "x" }, options));

    expect(error.code).toBe("invalid_argument");
    for (const text of says) expect(error.message).toContain(text);
    expect(await runtime.listRuns()).toEqual([]);
  });

  it("a session key beside a session_id", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    const request = { agent_name: "agent", input: "x", session_id: SESSION, mode: "stream" } as const;
    expect(await refusal(runtime.createRun(request, { sessionKey: "k" }))).toMatchObject({ code: "invalid_argument" });
    expect((await runtime.createRun({ ...request, session_id: null, mode: "sync" }, { sessionKey: "k" })).status).toBe(
      "completed",
    );
  });
});

it("eight labels of 64 characters are accepted", async () => {
  const { runtime } = setUp();
  runtime.register("agent", shows);
  const labels = Object.fromEntries([..."12345678"].map((n) => [n.repeat(64), n.repeat(64)]));
  const run = await runtime.createRun({ agent_name: "agent", input: "x" }, { labels });
  expect(textsOf(run)).toEqual([JSON.stringify([null, labels])]);
});

/** A version 5 UUID in the namespace of session keys, made with Node's own hash. */
function uuidOf(name: string): string {
  const namespace = Buffer.from("ad7f57ac80dc41ab9f02a71c1b41f325", "hex");
  const hash = createHash("sha1").update(namespace).update(name, "utf8").digest().subarray(0, 16);
  hash[6] = ((hash[6] ?? 0) & 15) | 0x50;
  hash[8] = ((hash[8] ?? 0) & 63) | 0x80;
  return hash.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
