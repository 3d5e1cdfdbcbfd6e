import type { AuditRecord } from "cadenza";
import type { Authorize } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import { describe, expect, it } from "vitest";
import { setUp } from "../harness/runtimes.ts";

/* What the host learns of requests that are refused for want of rights: a line, and a record. */

const SECRET = "Bearer s3cret-of-eve";
const RUN = "00000000-0000-4000-8000-0000000000ff";

function open(authorize: Authorize) {
  const records: AuditRecord[] = [];
  const setup = setUp({ onAudit: (record) => void records.push(record) });
  setup.runtime.register("echo", (input) => input);
  const handler = createAcpHandler(setup.runtime, { authorize, extensions: true });
  const ask = async (path: string, method = "GET"): Promise<number> => {
    const headers = { authorization: SECRET };
    const { status } = await handler(new Request(`http://localhost/${path}?key=${SECRET}`, { method, headers }));
    return status;
  };
  return { ...setup, records, ask };
}

const refused = "A request was refused.";

describe.each<[string, Authorize, number, string, string]>([
  ["refuses with false", () => false, 403, "forbidden", refused],
  ["refuses with a status", () => ({ status: 401 }), 401, "unauthorized", refused],
  ["hides what is there", () => ({ status: 404 }), 404, "forbidden", refused],
  ["throws", () => Promise.reject(new Error("No.")), 403, "forbidden", "authorize failed; the request was refused."],
  [
    "gives what are no rights",
    () => ({ tenants: "blue" }) as never,
    403,
    "forbidden",
    "authorize returned what are no rights; the request was refused.",
  ],
])("an authorize that %s", (_name, authorize, status, code, message) => {
  it("is told in one line and one record for each request, without secrets", async () => {
    const { ask, said, records } = open(authorize);
    expect(await ask(`runs/${RUN}/cancel`, "POST")).toBe(status);
    expect(said.map((line) => line.message)).toEqual([message]);
    const [line] = said;
    if (message === refused)
      expect(line).toEqual({
        level: "info",
        message,
        fields: { action: "cancel", status, reason: code, run_id: RUN },
      });
    expect(records).toEqual([
      {
        ...{ action: "access", outcome: "refused", at: "2026-01-01T00:00:00.000Z", by: null, tenant: null },
        ...{ asked: "cancel", status, code, run_id: RUN },
      },
    ]);
    await ask(`runs/${RUN}/messages/news`, "POST");
    expect(records[1]).toMatchObject({ asked: "send", run_id: RUN, message_name: "news" });
    await ask("agents/echo");
    expect(records[2]).toMatchObject({ agent_name: "echo" });
    expect(said).toHaveLength(3);
    expect(JSON.stringify([said, records])).not.toContain("s3cret");
  });
});

it("an authorize that lets a client in is no refusal, and neither is a path that is none", async () => {
  const { ask, said, records } = open(({ action }) => action !== "ping" && {});
  await ask("agents/echo");
  await ask("agents/other");
  await ask("nowhere");
  expect([said, records]).toEqual([[], []]);
});

it("what exists, and not for the client, is told with the client; what does not exist is not", async () => {
  const ada = { name: "Ada" };
  const { ask, said, records, runtime } = open(() => ({ tenant: "blue", principal: ada, agents: ["other"] }));
  const { run_id } = await runtime.scope({ tenant: "blue" }).createRun({ agent_name: "echo", input: "x" });
  records.length = 0;
  for (const [path, method] of [
    [`runs/${run_id}/cancel`, "POST"],
    ["agents/echo", "GET"],
    [`sessions/${run_id}`, "GET"],
    [`runs/${RUN}`, "GET"],
  ] as const)
    expect(await ask(path, method)).toBe(404);
  const known = { action: "access", outcome: "refused", by: ada, tenant: "blue", status: 404 };
  expect(records).toEqual(
    [
      { asked: "cancel", code: "run_not_found", run_id },
      { asked: expect.any(String), code: "agent_not_found", agent_name: "echo" },
      { asked: expect.any(String), code: "session_not_found" },
    ].map((record) => ({ ...known, ...record, at: "2026-01-01T00:00:00.000Z" })),
  );
  expect(said.map(({ message, fields }) => [message, fields["status"]])).toEqual([
    [refused, 404],
    [refused, 404],
    [refused, 404],
  ]);
});

it("an answer that authorize refuses is told with its run, and the call is refused", async () => {
  const records: AuditRecord[] = [];
  const { runtime } = setUp({ onAudit: (record) => void records.push(record) });
  runtime.register("asks", async (_input, { ask }) => void (await ask("Well?")));
  const handler = createAcpHandler(runtime, { authorize: ({ question }) => question === undefined && {} });
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "x" });
  const message = { role: "user", parts: [{ content_type: "text/plain", content: "Yes." }] };
  const body = JSON.stringify({ run_id, mode: "async", await_resume: { type: "message", message } });
  const headers = { "content-type": "application/json" };
  const response = await handler(new Request(`http://localhost/runs/${run_id}`, { method: "POST", headers, body }));
  expect(response.status).toBe(403);
  expect(records.filter(({ action }) => action !== "create")).toMatchObject([
    { action: "answer", outcome: "refused", run_id },
    { action: "access", outcome: "refused", asked: "answer", run_id, agent_name: "asks" },
  ]);
  expect((await runtime.getRun(run_id)).status).toBe("awaiting");
});

it("a handler gives the logger a bounded number of lines a minute, and the hook each record", async () => {
  const { ask, said, records, clock } = open(() => false);
  for (let count = 0; count < 250; count++) await ask("agents");
  expect(said).toHaveLength(100);
  expect(records).toHaveLength(250);
  await clock.advance(60_000);
  await ask("agents");
  await ask("agents");
  expect(said.slice(100).map(({ fields }) => fields["unlogged"])).toEqual([150, undefined]);
});

describe("an inspector", () => {
  it("without authorize refuses all, and says so", async () => {
    const { runtime, said, records } = open(() => false);
    const handler = createInspectorHandler(runtime);
    for (const path of ["", "api/start"]) await handler(new Request(`http://localhost/${path}`));
    expect(said).toMatchObject([
      { level: "info", message: refused, fields: { status: 403, reason: "no_authorize" } },
      { level: "info", message: refused, fields: { status: 403, reason: "no_authorize" } },
    ]);
    expect(records).toMatchObject([
      { action: "access", code: "no_authorize" },
      { action: "access", code: "no_authorize" },
    ]);
  });

  it("with authorize says what authorize refuses", async () => {
    const { runtime, said, records } = open(() => false);
    const handler = createInspectorHandler(runtime, { authorize: () => ({ status: 401 }) });
    await handler(new Request("http://localhost/api/start"));
    expect(said).toMatchObject([{ message: refused, fields: { status: 401 } }]);
    expect(records).toMatchObject([{ action: "access", status: 401, code: "unauthorized" }]);
  });
});
