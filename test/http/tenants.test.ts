import type { Authorize } from "cadenza/http";
import { describe, expect, it } from "vitest";
import type { Reply } from "./client.ts";
import { Client } from "./client.ts";
import { inProcess, nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

const UNKNOWN_ID = "11111111-1111-4111-8111-111111111111";
const answer = { await_resume: { type: "message", message: { parts: [] } } };

/** The tenant, and the agents that are hidden, come from the client's headers. */
const authorize: Authorize = ({ headers }) => ({
  tenant: headers["x-tenant"],
  agents: (name) => !(headers["x-hidden"] ?? "").split(",").includes(name),
});

/** Every operation on a run. */
const runOperations = (id: string): readonly (readonly [method: string, path: string, body?: unknown])[] => [
  ["GET", `/runs/${id}`],
  ["POST", `/runs/${id}`, answer],
  ["POST", `/runs/${id}`, { ...answer, mode: "async" }],
  ["POST", `/runs/${id}`, { ...answer, mode: "stream" }],
  ["POST", `/runs/${id}/cancel`],
  ["GET", `/runs/${id}/events`],
  ["POST", `/runs/${id}`, { decline: {} }],
  ["POST", `/runs/${id}`, { decline: { reason: "no" }, await_id: "await#1", mode: "stream" }],
  ["GET", `/runs/${id}/details`],
  ["POST", `/runs/${id}/messages/payment`, { cents: 4_000 }],
];

/** Every path to a session. */
const sessionPaths = [
  (id: string) => `/sessions/${id}`,
  (id: string) => `/session/${id}`,
  (id: string) => `/resources/${id}.0`,
  (id: string) => `/resources/${id}.state`,
];

describe.each([inProcess, nodeHttp])("two tenants, $name", (mount) => {
  it("get the same bytes for each other's runs as for runs that do not exist", async () => {
    const { one, two, close } = await open(mount);
    for (const agent of ["echo", "asker", "stubborn"]) {
      const { json } = await one.run(agent, "secret", { mode: agent === "stubborn" ? "async" : "sync" });
      const id = String(json["run_id"]);
      for (const [index, [method, path, body]] of runOperations(id).entries()) {
        const [, missingPath = ""] = runOperations(UNKNOWN_ID)[index] ?? [];
        const foreign = await two.send(method, path, { body });
        const missing = await two.send(method, missingPath, { body });
        expect(foreign.status).toBe(404);
        expect(bytesOf(foreign, id)).toEqual(bytesOf(missing, UNKNOWN_ID));
      }
      const streams = await two.get(`/runs/${id}/events`, { accept: "text/event-stream", "last-event-id": "1" });
      expect(streams.status).toBe(404);
      // The run is unchanged.
      expect((await one.get(`/runs/${id}`)).json["status"]).not.toMatch(/cancel/);
      if (agent === "stubborn") await one.send("POST", `/runs/${id}/cancel`);
    }
    expect((await two.get("/runs")).json).toEqual({ runs: [] });
    await close();
  });

  it("cannot see each other's sessions", async () => {
    const { one, two, close } = await open(mount);
    const { json } = await one.run("echo", "secret");
    const id = String(json["session_id"]);
    for (const of of sessionPaths) {
      const foreign = await two.get(of(id));
      expect(foreign.status).toBe(404);
      expect(bytesOf(foreign, id)).toEqual(bytesOf(await two.get(of(UNKNOWN_ID)), UNKNOWN_ID));
    }
    // A session of the same name is another session.
    const named = crypto.randomUUID();
    await one.run("memory", "first", { session_id: named });
    const reply = await two.run("memory", "second", { session_id: named });
    expect(JSON.stringify(reply.json["output"])).not.toContain("first");
    // The URLs of its contents cannot be used in a session of another tenant.
    const session = { id: named, history: [`${two.base}/resources/${id}.0`] };
    expect((await two.run("memory", "x", { session })).status).toBe(422);
    expect((await two.get(`/runs?session_id=${id}`)).json).toEqual({ runs: [] });
    await close();
  });

  it("may use the same idempotency key", async () => {
    const { one, two, close } = await open(mount);
    const key = { "idempotency-key": "k" };
    const body = { agent_name: "echo", input: [] };
    const [first, second] = [await one.post("/runs", body, key), await two.post("/runs", body, key)];
    expect(second.status).toBe(200);
    expect(second.json["run_id"]).not.toBe(first.json["run_id"]);
    expect((await two.post("/runs", { ...body, agent_name: "plain" }, key)).status).toBe(409);
    const { json } = await one.run("asker", "x");
    const path = `/runs/${json["run_id"]}`;
    expect((await one.post(path, answer, key)).status).toBe(200);
    // A key of one tenant does not find its run for another tenant.
    const foreign = await two.post(path, answer, key);
    const missing = await two.post(`/runs/${UNKNOWN_ID}`, answer, key);
    expect(bytesOf(foreign, String(json["run_id"]))).toEqual(bytesOf(missing, UNKNOWN_ID));
    await close();
  });

  it("a hidden agent and its runs give the same bytes as ones that do not exist", async () => {
    const { one, close } = await open(mount);
    const blind = one.with({ "x-hidden": "echo,missing,asker" });
    const names = ((await blind.get("/agents")).json["agents"] as unknown as { name: string }[]).map(
      ({ name }) => name,
    );
    expect(names).not.toContain("echo");
    expect(names).toContain("plain");
    for (const mode of ["sync", "async", "stream"]) {
      const hidden = await blind.run("echo", "x", { mode });
      const missing = await one.run("missing", "x", { mode });
      expect(bytesOf(hidden, "echo")).toEqual(bytesOf(missing, "missing"));
    }
    expect(bytesOf(await blind.get("/agents/echo"), "echo")).toEqual(
      bytesOf(await one.get("/agents/missing"), "missing"),
    );
    const { json } = await one.run("asker", "x");
    const id = String(json["run_id"]);
    for (const [index, [method, path, body]] of runOperations(id).entries()) {
      const [, missingPath = ""] = runOperations(UNKNOWN_ID)[index] ?? [];
      const missing = await one.send(method, missingPath, { body });
      expect(bytesOf(await blind.send(method, path, { body }), id)).toEqual(bytesOf(missing, UNKNOWN_ID));
    }
    const key = { "idempotency-key": "k" };
    const answered = await blind.post(`/runs/${id}`, answer, key);
    expect(bytesOf(answered, id)).toEqual(bytesOf(await one.post(`/runs/${UNKNOWN_ID}`, answer, key), UNKNOWN_ID));
    const seen = await one.run("plain", "x");
    await one.run("echo", "x");
    const listed = (await blind.get("/runs?limit=1")).json["runs"] as unknown as { run_id: string }[];
    expect(listed.map(({ run_id }) => run_id)).toEqual([seen.json["run_id"]]);
    await close();
  });
});

describe.each([inProcess, nodeHttp])("a session with a run of a hidden agent, $name", (mount) => {
  it.each(["echo", "asker"])("gives the same bytes as one that does not exist (%s)", async (agent) => {
    const { one, close } = await open(mount);
    const blind = one.with({ "x-hidden": "echo,asker" });
    const own = await one.run(agent, "secret");
    const session_id = crypto.randomUUID();
    await one.run("plain", "x", { session_id });
    expect((await blind.get(`/sessions/${session_id}`)).status).toBe(200);
    await one.run(agent, "secret", { session_id });
    for (const id of [String(own.json["session_id"]), session_id]) {
      for (const of of sessionPaths) {
        const missing = await one.get(of(UNKNOWN_ID));
        expect(bytesOf(await blind.get(of(id)), id)).toEqual(bytesOf(missing, UNKNOWN_ID));
      }
      // A client that cannot see it can neither join nor replace it, nor use its URLs.
      for (const more of [{ session_id: id }, { session: { id, history: [] } }])
        expect((await blind.run("memory", "x", more)).status).toBe(404);
      const session = { history: [`${one.base}/resources/${id}.0`] };
      expect((await blind.run("memory", "x", { session })).status).toBe(422);
    }
    expect((await one.get(`/sessions/${session_id}`)).status).toBe(200);
    await close();
  });

  it("stays hidden when its runs have been removed", async () => {
    const { one, close } = await open(mount, { retention: { maxRuns: 0 } });
    const session_id = crypto.randomUUID();
    for (const agent of ["plain", "echo", "plain"]) await one.run(agent, "x", { session_id });
    expect((await one.get(`/runs?session_id=${session_id}`)).json).toEqual({ runs: [] });
    expect((await one.get(`/sessions/${session_id}`)).json["history"]).toHaveLength(6);
    expect((await one.with({ "x-hidden": "echo" }).get(`/sessions/${session_id}`)).status).toBe(404);
    await close();
  });

  it("is not joined by a client that cannot see the agent: it gets a new session", async () => {
    const { one, close } = await open(mount);
    const seeing = one.with({ "x-hidden": "echo" });
    const session_id = crypto.randomUUID();
    const first = await seeing.run("memory", "x", { session_id });
    expect((await seeing.run("memory", "y", { session_id })).json["output"]).toMatchObject([
      { parts: [{ content: "user:x|agent/memory:" }] },
    ]);
    expect((await seeing.get(`/sessions/${first.json["session_id"]}`)).json["history"]).toHaveLength(4);
    await close();
  });
});

async function open(mount: typeof inProcess, world: Parameters<typeof makeWorld>[0] = {}) {
  const runtime = makeWorld(world);
  const place = await mount.open(runtime, { authorize, extensions: true });
  const client = new Client(place);
  return {
    one: client.with({ "x-tenant": "one" }),
    two: client.with({ "x-tenant": "two" }),
    close: async () => {
      await place.close();
      await runtime.close({ drainMs: 0 });
    },
  };
}

/** A whole answer, without the requested name. */
function bytesOf({ status, headers, text }: Reply, name: string): unknown {
  const all = [...headers].filter(([key]) => key !== "date").sort();
  return [status, JSON.stringify(all).replaceAll(name, "*"), text.replaceAll(name, "*")].map(String).map(withoutLength);
}

/** Leaves out the length, which depends on the name. */
function withoutLength(text: string): string {
  return text.replace(/"content-length","\d+"/, "");
}
