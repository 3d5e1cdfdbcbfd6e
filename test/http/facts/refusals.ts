import { expect } from "vitest";
import type { Json } from "../client.ts";
import type { Fact } from "./fact.ts";
import { answer, fact, refused } from "./fact.ts";

/** The refusals and their form. */
export const refusalFacts: readonly Fact[] = [
  fact("a resume of a run that does not wait is 403, with the reason", async (client) => {
    const { json } = await client.run("echo", "x");
    refused(
      await client.post(`/runs/${json["run_id"]}`, { await_resume: answer("x") }),
      403,
      "invalid_input",
      "not_awaiting",
    );
  }),
  fact("a cancel of a completed or failed run is 403, with the reason", async (client) => {
    for (const agent of ["echo", "failing"]) {
      const { json } = await client.run(agent, "x");
      refused(await client.send("POST", `/runs/${json["run_id"]}/cancel`), 403, "invalid_input", "run_finished");
    }
  }),
  fact("a method that a path does not have is 405, with the methods that it has", async (client) => {
    const reply = await client.send("DELETE", "/runs");
    refused(reply, 405, "invalid_input", "method_not_allowed");
    expect(reply.headers.get("allow")).toBe("POST, GET");
    refused(await client.send("PUT", "/ping"), 405, "invalid_input", "method_not_allowed");
  }),
  fact("a bad id is 422", async (client) => {
    refused(await client.get("/runs/42"), 422, "invalid_input", "invalid_argument");
    refused(await client.get("/sessions/42"), 422, "invalid_input", "invalid_argument");
  }),
  fact("an invalid body is 422, with the path of the fault", async (client) => {
    const reply = await client.post("/runs", {
      agent_name: "echo",
      input: [{ role: "user", parts: [{ content: 7 }] }],
    });
    refused(reply, 422, "invalid_input", "invalid_argument");
    const data = reply.json["data"] as Json;
    expect(data["issues"]).toEqual([{ path: ["input", 0, "parts", 0, "content"], message: expect.any(String) }]);
  }),
  fact("a fault in a body has its path and what was expected there", async (client) => {
    const { json } = await client.run("asker", "x");
    const bad = async (path: string, body?: object): Promise<unknown> => {
      const reply = body === undefined ? await client.get(path) : await client.post(path, body);
      refused(reply, 422, "invalid_input", "invalid_argument");
      return (reply.json["data"] as Json)["issues"];
    };
    const uuid = { message: "expected a UUID" };
    expect(await bad("/runs?session_id=bad")).toEqual([{ path: ["session_id"], ...uuid }]);
    expect(await bad("/runs/bad")).toEqual([{ path: ["run_id"], ...uuid }]);
    expect(await bad("/runs?status=lost")).toMatchObject([
      { path: ["status"], message: expect.stringMatching(/expected.*awaiting/) },
    ]);
    const empty = await bad(`/runs/${json["run_id"]}`, { await_id: "", await_resume: answer("x") });
    expect(empty).toMatchObject([{ path: ["await_id"], message: expect.not.stringContaining("await_id") }]);
    expect(await bad("/runs?offset=9007199254740992")).toMatchObject([{ path: ["offset"] }]);
    expect((await client.get("/runs?offset=9007199254740991")).json).toEqual({ runs: [] });
    expect((await client.get("/agents?offset=9007199254740990")).json).toEqual({ agents: [] });
  }),
  fact(
    "a whole number that would lose digits is refused; as a text it keeps them",
    async (client) => {
      const send = (value: string) =>
        client.postUntyped("/runs", `{"agent_name":"echo","input":[{"parts":[{"own":${value},"content":"\\\\"}]}]}`);
      for (const value of [
        "12345678901234567890",
        "[-9007199254740993]",
        '{"\\"":9007199254740993}',
        `1${"0".repeat(30)}`,
      ])
        refused(await send(value), 422, "invalid_input", "unsafe_number");
      for (const value of [
        "9007199254740993.5",
        "9007199254740991",
        "1152921504606847000",
        "1e300",
        '"12345678901234567890"',
        '"\\"12345678901234567890"',
      ]) {
        const reply = await send(value);
        expect(reply.json["output"]).toMatchObject([{ parts: [{ own: JSON.parse(value) as unknown }] }]);
      }
    },
    "long numbers",
  ),
  fact("input that is not a list of messages is 422", async (client) => {
    for (const input of ["hi", { role: "user" }, ["hi"], [null], [{ content: "hi" }], undefined])
      refused(await client.post("/runs", { agent_name: "echo", input }), 422, "invalid_input", "invalid_argument");
  }),
  fact("an invalid agent name is 422", async (client) => {
    for (const agent_name of ["with space", "dot.ted", "", 7, null, "x".repeat(64)])
      refused(await client.post("/runs", { agent_name, input: [] }), 422, "invalid_input", "invalid_argument");
  }),
  fact(
    "malformed JSON is 400",
    async (client) => {
      const latin = Buffer.from('{"agent_name":"echo","input":[{"parts":[{"content":"gr\u00fc\u00df"}]}]}', "latin1");
      for (const body of ["{", "", "nope", new Uint8Array([0xff, 0xfe]), latin])
        refused(await client.post("/runs", body), 400, "invalid_input", "malformed_body");
    },
    "malformed bodies",
  ),
  fact(
    "another media type is 415",
    async (client) => {
      for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]) {
        const reply = await client.send("POST", "/runs", { body: "{}", headers: { "content-type": type } });
        refused(reply, 415, "invalid_input", "unsupported_media_type");
      }
    },
    "other media types",
  ),
  fact(
    "a key __proto__ is refused",
    async (client) => {
      const body = '{"agent_name":"echo","input":[{"role":"user","parts":[],"__proto__":{"x":1}}]}';
      refused(await client.post("/runs", body), 422, "invalid_input", "forbidden_key");
    },
    "forbidden keys",
  ),
  fact("a body that is nested too deeply is refused", async (client) => {
    const body = `{"agent_name":"echo","input":${"[".repeat(5000)}${"]".repeat(5000)}}`;
    refused(await client.post("/runs", body), 422, "invalid_input", "too_deep");
  }),
  fact(
    "a body that is too large is 413",
    async (client) => {
      const body = `{"agent_name":"echo","input":[{"parts":[{"content":"${"x".repeat(300_000)}"}]}]}`;
      refused(await client.post("/runs", body), 413, "invalid_input", "body_too_large");
    },
    "large bodies",
  ),
  fact("an unknown path is 404 with an error in JSON", async (client) => {
    for (const path of ["/nothing", "/runs/x/y", "/agents/a/b", "/ping/ping", "/Ping", "//"])
      refused(await client.get(path), 404, "not_found", "path_not_found");
  }),
  fact(
    "a path that cannot be decoded is 404 with an error in JSON",
    async (client) => {
      for (const path of ["/%ff", "/agents/%E0%A4%A", "/runs/%zz"])
        refused(await client.get(path), 404, "not_found", "path_not_found");
    },
    "odd paths",
  ),
  fact("a page of another origin is refused", async (client) => {
    const strange = client.with({ origin: "https://evil.example" });
    refused(await strange.run("echo", "x"), 403, "invalid_input", "cross_site");
    refused(await strange.get("/ping"), 403, "invalid_input", "cross_site");
  }),
];
