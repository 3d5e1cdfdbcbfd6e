import type { Authorize } from "cadenza/http";
import { describe, expect, test } from "vitest";
import type { Reply } from "./client.ts";
import { Client } from "./client.ts";
import { inProcess, nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

const UNKNOWN_ID = "11111111-1111-4111-8111-111111111111";
const answer = { await_resume: { type: "message", message: { parts: [] } } };

/** The tenant is what the client says it is; agents whose name the client lists are hidden from it. */
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
];

describe.each([inProcess, nodeHttp])("two tenants, $name", (mount) => {
  test("know nothing of each other's runs, in the same bytes as of runs that do not exist", async () => {
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
      // Nothing has happened to the run.
      expect((await one.get(`/runs/${id}`)).json["status"]).not.toMatch(/cancel/);
      if (agent === "stubborn") await one.send("POST", `/runs/${id}/cancel`);
    }
    expect((await two.get("/runs")).json).toEqual({ runs: [] });
    await close();
  });

  test("know nothing of each other's sessions", async () => {
    const { one, two, close } = await open(mount);
    const { json } = await one.run("echo", "secret");
    const id = String(json["session_id"]);
    for (const of of [
      (x: string) => `/sessions/${x}`,
      (x: string) => `/session/${x}`,
      (x: string) => `/resources/${x}.0`,
      (x: string) => `/resources/${x}.state`,
    ]) {
      const foreign = await two.get(of(id));
      expect(foreign.status).toBe(404);
      expect(bytesOf(foreign, id)).toEqual(bytesOf(await two.get(of(UNKNOWN_ID)), UNKNOWN_ID));
    }
    // A session of the same name is another session.
    const named = crypto.randomUUID();
    await one.run("memory", "first", { session_id: named });
    const reply = await two.run("memory", "second", { session_id: named });
    expect(JSON.stringify(reply.json["output"])).not.toContain("first");
    // Nor can it be brought along by the addresses of its contents.
    const session = { id: named, history: [`${two.base}/resources/${id}.0`] };
    expect((await two.run("memory", "x", { session })).status).toBe(422);
    expect((await two.get(`/runs?session_id=${id}`)).json).toEqual({ runs: [] });
    await close();
  });

  test("may use the same idempotency key", async () => {
    const { one, two, close } = await open(mount);
    const key = { "idempotency-key": "k" };
    const body = { agent_name: "echo", input: [] };
    const [first, second] = [await one.post("/runs", body, key), await two.post("/runs", body, key)];
    expect(second.status).toBe(200);
    expect(second.json["run_id"]).not.toBe(first.json["run_id"]);
    expect((await two.post("/runs", { ...body, agent_name: "plain" }, key)).status).toBe(409);
    await close();
  });

  test("an agent that is hidden, and its runs, are missing in the same bytes as what does not exist", async () => {
    const { one, close } = await open(mount);
    const blind = one.with({ "x-hidden": "echo,nobody,asker" });
    const names = ((await blind.get("/agents")).json["agents"] as unknown as { name: string }[]).map(
      ({ name }) => name,
    );
    expect(names).not.toContain("echo");
    expect(names).toContain("plain");
    for (const mode of ["sync", "async", "stream"]) {
      const hidden = await blind.run("echo", "x", { mode });
      const missing = await one.run("nobody", "x", { mode });
      expect(bytesOf(hidden, "echo")).toEqual(bytesOf(missing, "nobody"));
    }
    expect(bytesOf(await blind.get("/agents/echo"), "echo")).toEqual(
      bytesOf(await one.get("/agents/nobody"), "nobody"),
    );
    const { json } = await one.run("asker", "x");
    const id = String(json["run_id"]);
    for (const [index, [method, path, body]] of runOperations(id).entries()) {
      const [, missingPath = ""] = runOperations(UNKNOWN_ID)[index] ?? [];
      const missing = await one.send(method, missingPath, { body });
      expect(bytesOf(await blind.send(method, path, { body }), id)).toEqual(bytesOf(missing, UNKNOWN_ID));
    }
    const seen = await one.run("plain", "x");
    const listed = (await blind.get("/runs?limit=1")).json["runs"] as unknown as { run_id: string }[];
    expect(listed.map(({ run_id }) => run_id)).toEqual([seen.json["run_id"]]);
    await close();
  });
});

async function open(mount: typeof inProcess) {
  const runtime = makeWorld();
  const place = await mount.open(runtime, { authorize });
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

/** Everything that an answer says, with the name that was asked for taken out. */
function bytesOf({ status, headers, text }: Reply, name: string): unknown {
  const all = [...headers].filter(([key]) => key !== "date").sort();
  return [status, JSON.stringify(all).replaceAll(name, "*"), text.replaceAll(name, "*")].map(String).map(withoutLength);
}

/** Names of different lengths make lengths that differ. */
function withoutLength(text: string): string {
  return text.replace(/"content-length","\d+"/, "");
}
