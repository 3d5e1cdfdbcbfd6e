import type { AuditRecord } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import type { Grant, Handler } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import type { InspectorGrant } from "cadenza/inspector";
import { createInspectorHandler } from "cadenza/inspector";
import { createMcpHandler } from "cadenza/mcp";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { deferred } from "../harness/promises.ts";

/*
 * Action × object × face and inspector, with grants of four kinds. What may not be seen is answered in the bytes of what does
 * not exist, and what may be seen and not done with 403.
 */

const tenant = "blue";
const ada = { id: "ada", email: "ada@blue.example" };
const bob = { id: "bob", email: "bob@blue.example" };

const grants = {
  tenant: { tenant, principal: ada },
  owner: { tenant, principal: ada, owns: true },
  answerer: { tenant, principal: ada, readOnly: true, answers: ["approval"] },
  reader: { tenant, principal: ada, readOnly: true },
} as const satisfies Record<string, Grant>;

type Kind = keyof typeof grants;
const kinds = Object.keys(grants) as Kind[];

/** Whose a run is, in a session of its own that is also a chat and a thread. */
const owners = { mine: [tenant, ada], theirs: [tenant, bob], red: ["red", ada] } as const;
type Whose = keyof typeof owners | "missing";

interface Thing {
  readonly run_id: string;
  readonly session_id: string;
  readonly chat: string;
}

const missing: Thing = {
  run_id: "00000000-0000-4000-8000-00000000000f",
  session_id: "00000000-0000-4000-8000-00000000000e",
  chat: "chat of no user",
};

/** A service with a run of Ada, one of Bob, and one of another tenant. Each asks. */
async function open(grant: Grant, question = "approval") {
  const records: AuditRecord[] = [];
  const runtime = new AgentRuntime({
    store: durable(new MemoryStore()),
    onAudit: (record) => void records.push(record),
  });
  runtime.register("desk", { durable: true }, async (_input, { ask }) => {
    await ask("Refund 40 €?", { kind: question as "approval" });
  });
  const made = async (whose: keyof typeof owners): Promise<Thing> => {
    const [of, principal] = owners[whose];
    const chat = `chat of ${whose}`;
    const scope = runtime.scope({ tenant: of, principal });
    const run = await scope.createRun({ agent_name: "desk", input: "40 €" }, { sessionKey: chat });
    return { run_id: run.run_id, session_id: run.session_id, chat };
  };
  const things = { mine: await made("mine"), theirs: await made("theirs"), red: await made("red"), missing };
  records.length = 0;
  const options = { authorize: () => grant };
  const faces = {
    acp: createAcpHandler(runtime, { ...options, extensions: true }),
    chat: createChatHandler(runtime, options),
    agUi: createAgUiHandler(runtime, options),
    a2a: createA2aHandler(runtime, options),
    mcp: createMcpHandler(runtime, options),
    inspector: createInspectorHandler(runtime, { authorize: () => grant as InspectorGrant }),
  };
  return { runtime, things, faces, records };
}

type Face = keyof Awaited<ReturnType<typeof open>>["faces"];

async function send(handler: Handler, [method, path, body, more]: Asked) {
  const headers = { "content-type": "application/json", ...more };
  const init = { method, headers, body: body === undefined ? null : JSON.stringify(body) };
  const response = await handler(new Request(`http://service${path}`, init));
  return { status: response.status, headers: [...response.headers], text: await response.text() };
}

type Asked = readonly [method: string, path: string, body?: unknown, headers?: Record<string, string>];
type Needs = "to see" | "to write" | "to answer";

interface Row {
  readonly name: string;
  readonly face: Face;
  readonly needs: Needs;
  /** Whether the run has ended before. */
  readonly isEnded?: true;
  ask(thing: Thing): Asked;
}

const row = (face: Face, name: string, needs: Needs, ask: Row["ask"]): Row => ({ name, face, needs, ask });
const act = (name: string, needs: Needs, body: object = {}): Row =>
  row("inspector", name, needs, ({ run_id }) => ["POST", `/api/${name}`, { tenant, run_id, ...body }]);

const said = (id: string, text: string) => ({ id, role: "user", content: text, parts: [{ type: "text", text }] });
const approved = { await_resume: { approved: true }, mode: "async" };

const ofA2a = { "a2a-version": "1.0" };
/** A request of A2A in JSON-RPC. */
const inJsonRpc = (method: string, params: object): Asked => [
  ...(["POST", "/desk"] as const),
  { jsonrpc: "2.0", id: 1, method, params },
  ofA2a,
];
const answering = (taskId: string, metadata: object = {}): object => ({
  message: { messageId: "m1", role: "ROLE_USER", taskId, parts: [{ data: { ok: true } }], metadata },
  configuration: { returnImmediately: true },
});

const _meta = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {
    elicitation: {},
    extensions: { "io.modelcontextprotocol/tasks": {} },
  },
};
/** A request about a task, as MCP sends it. */
const ofTask = (method: string, taskId: string, params: object = {}): Asked => {
  const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": taskId };
  return ["POST", "/", { jsonrpc: "2.0", id: 1, method, params: { taskId, ...params, _meta } }, headers];
};
const accepted = { action: "accept", content: { answer: "yes" } };

const rows: readonly Row[] = [
  row("acp", "a run", "to see", ({ run_id }) => ["GET", `/runs/${run_id}`]),
  row("acp", "its events", "to see", ({ run_id }) => ["GET", `/runs/${run_id}/events`]),
  row("acp", "its details", "to see", ({ run_id }) => ["GET", `/runs/${run_id}/details`]),
  row("acp", "a session", "to see", ({ session_id }) => ["GET", `/sessions/${session_id}`]),
  row("acp", "an answer", "to answer", ({ run_id }) => ["POST", `/runs/${run_id}`, approved]),
  row("acp", "a decline", "to answer", ({ run_id }) => ["POST", `/runs/${run_id}`, { decline: {}, mode: "async" }]),
  row("acp", "a cancel", "to write", ({ run_id }) => ["POST", `/runs/${run_id}/cancel`]),
  row("acp", "a message", "to write", ({ run_id }) => ["POST", `/runs/${run_id}/messages/news`, { text: "x" }]),
  row("chat", "a chat", "to see", ({ chat }) => ["GET", `/desk/${encodeURIComponent(chat)}/messages`]),
  row("chat", "its response", "to see", ({ chat }) => ["GET", `/desk/${encodeURIComponent(chat)}/stream`]),
  row("chat", "a stop", "to write", ({ chat }) => ["DELETE", `/desk/${encodeURIComponent(chat)}/stream`]),
  row("chat", "a reply", "to answer", ({ chat, run_id }) => {
    const part = { type: "tool-ask", toolCallId: `${run_id}/ask#1`, state: "output-available", output: { ok: true } };
    const reply = { id: run_id, role: "assistant", parts: [part] };
    return ["POST", "/desk", { id: chat, messages: [said("m1", "40 €"), reply] }];
  }),
  row("agUi", "a thread", "to see", ({ chat }) => ["GET", `/desk?threadId=${encodeURIComponent(chat)}&runId=r1`]),
  row("agUi", "a stop", "to write", ({ chat }) => ["DELETE", `/desk?threadId=${encodeURIComponent(chat)}`]),
  row("agUi", "a resume", "to answer", ({ chat, run_id }) => {
    const resume = [{ interruptId: `${run_id}/ask#1`, status: "resolved", payload: { ok: true } }];
    return ["POST", "/desk", { threadId: chat, runId: "r1", messages: [], resume }];
  }),
  row("a2a", "a task", "to see", ({ run_id }) => ["GET", `/desk/tasks/${run_id}`, undefined, ofA2a]),
  row("a2a", "a task in JSON-RPC", "to see", ({ run_id }) => inJsonRpc("GetTask", { id: run_id })),
  row("a2a", "the tasks of a context", "to see", ({ chat }) => [
    ...(["GET", `/desk/tasks?contextId=${encodeURIComponent(chat)}`, undefined] as const),
    ofA2a,
  ]),
  {
    ...row("a2a", "a stream that broke off", "to see", ({ run_id }) => [
      ...(["GET", `/desk/tasks/${run_id}:subscribe`, undefined] as const),
      { ...ofA2a, "last-event-id": "1" },
    ]),
    isEnded: true,
  },
  row("a2a", "an answer", "to answer", ({ run_id }) => ["POST", "/desk/message:send", answering(run_id), ofA2a]),
  row("a2a", "an answer in JSON-RPC", "to answer", ({ run_id }) => inJsonRpc("SendMessage", answering(run_id))),
  row("a2a", "a decline", "to answer", ({ run_id }) => [
    "POST",
    "/desk/message:send",
    answering(run_id, { "https://github.com/cadenza-agents/cadenza/blob/main/docs/guides/a2a.md#declining": true }),
    ofA2a,
  ]),
  row("a2a", "a cancel", "to write", ({ run_id }) => ["POST", `/desk/tasks/${run_id}:cancel`, undefined, ofA2a]),
  row("a2a", "a cancel in JSON-RPC", "to write", ({ run_id }) => inJsonRpc("CancelTask", { id: run_id })),
  row("mcp", "a task", "to see", ({ run_id }) => ofTask("tasks/get", run_id)),
  row("mcp", "an answer to a task", "to answer", ({ run_id }) =>
    ofTask("tasks/update", run_id, { inputResponses: { "ask#1": accepted } }),
  ),
  row("mcp", "a cancel of a task", "to write", ({ run_id }) => ofTask("tasks/cancel", run_id)),
  {
    ...row("mcp", "the states of a task", "to see", ({ run_id }) => {
      const params = { notifications: { taskIds: [run_id] }, _meta };
      const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen" };
      return ["POST", "/", { jsonrpc: "2.0", id: 1, method: "subscriptions/listen", params }, headers];
    }),
    isEnded: true,
  },
  row("mcp", "an answer from before 2026-07-28", "to answer", ({ run_id }) => [
    ...(["POST", "/"] as const),
    { jsonrpc: "2.0", id: `${run_id}/ask#1`, result: accepted },
  ]),
  row("inspector", "a log", "to see", ({ run_id }) => ["GET", `/api/log?run_id=${run_id}&tenant=${tenant}`]),
  row("inspector", "a cassette", "to see", ({ run_id }) => ["GET", `/api/cassette?run_id=${run_id}&tenant=${tenant}`]),
  act("answer", "to answer", { await_id: "ask#1", answer: { ok: true } }),
  act("decline", "to answer", { await_id: "ask#1" }),
  act("cancel", "to write"),
  act("fork", "to write"),
  { ...act("delete", "to write"), isEnded: true },
  act("send", "to write", { name: "news", data: 1 }),
];

function sees(kind: Kind, whose: Whose): boolean {
  return whose === "mine" || (whose === "theirs" && kind !== "owner");
}

function may(kind: Kind, needs: Needs): boolean {
  if (needs === "to see" || kind === "tenant" || kind === "owner") return true;
  return needs === "to answer" && kind === "answerer";
}

/** A response in the name of the missing thing. */
function nameless({ status, headers, text }: Awaited<ReturnType<typeof send>>, thing: Thing): string {
  const whole = JSON.stringify([status, headers, text]);
  const names = [
    [thing.run_id, "RUN"],
    [thing.session_id, "SESSION"],
    [thing.chat, "CHAT"],
  ] as const;
  return names.reduce((written, [name, to]) => written.replaceAll(name, to), whole);
}

async function answerTo({ face, ask, isEnded }: Row, kind: Kind, whose: Whose) {
  const world = await open(grants[kind]);
  const { runtime, things, faces, records } = world;
  const thing = things[whose];
  if (isEnded === true && whose !== "missing")
    await runtime.scope({ tenant: owners[whose][0] }).cancel(thing.run_id, { wait: true });
  records.length = 0;
  const stateOf = async () => {
    const scopes = Object.values(owners).map(([of]) => runtime.scope({ tenant: of }));
    return JSON.stringify(await Promise.all(scopes.map((scope) => scope.listRuns())));
  };
  const before = await stateOf();
  const answer = await send(faces[face], ask(thing));
  const isChanged = (await stateOf()) !== before;
  return { answer, said: nameless(answer, thing), records: [...records], isChanged };
}

describe.each(rows.map((one) => [`${one.face}: ${one.name}`, one] as const))("%s", (_name, one) => {
  it.each(kinds.filter((kind) => one.face !== "inspector" || kind !== "owner"))(
    "with the grant of a %s",
    async (kind) => {
      const unknown = await answerTo(one, kind, "missing");
      expect(unknown.answer.status).not.toBe(500);
      for (const whose of ["mine", "theirs", "red"] as const) {
        const { answer, said, records, isChanged } = await answerTo(one, kind, whose);
        const what = `${whose}: ${answer.text.slice(0, 200)}`;
        if (!sees(kind, whose)) {
          expect(said, what).toBe(unknown.said);
          expect([what, isChanged]).toEqual([what, false]);
        } else if (!may(kind, one.needs)) {
          expect([what, answer.status, isChanged]).toEqual([what, 403, false]);
          const refused = records.filter(({ action }) => action === "access");
          expect(refused).toMatchObject([{ outcome: "refused", status: 403, by: ada, tenant }]);
        } else {
          expect([what, answer.status < 300]).toEqual([what, true]);
        }
      }
    },
  );
});

it("the inspector refuses a grant of authorize that names an owner", async () => {
  const { faces } = await open(grants.owner);
  expect((await send(faces.inspector, ["GET", "/api/start"])).status).toBe(403);
});

describe("a new run", () => {
  const input = [{ parts: [{ content: "40 €" }] }];
  const posts: Readonly<Record<string, (thing: Thing) => readonly [Face, Asked]>> = {
    acp: ({ session_id }) => ["acp", ["POST", "/runs", { agent_name: "desk", input, session_id, mode: "async" }]],
    inspector: ({ session_id }) => [
      "inspector",
      ["POST", "/api/create", { tenant, agent_name: "desk", input: "40 €", session_id }],
    ],
  };

  it.each(Object.keys(posts))("over %s, in a session", async (name) => {
    for (const kind of kinds.filter((one) => name !== "inspector" || one !== "owner"))
      for (const whose of ["mine", "theirs", "missing"] as const) {
        const { faces, things, runtime } = await open(grants[kind]);
        const [face, asked] = posts[name]?.(things[whose]) ?? expect.fail();
        const { status } = await send(faces[face], asked);
        const expected = may(kind, "to write") ? (kind === "owner" && whose === "theirs" ? 404 : 200) : 403;
        expect([kind, whose, status === 202 ? 200 : status]).toEqual([kind, whose, expected]);
        const count = (await runtime.scope({ tenant }).listRuns()).length;
        expect([kind, whose, count]).toEqual([kind, whose, expected === 200 ? 3 : 2]);
      }
  });

  it.each(["chat", "agUi", "a2a"] as const)("over %s, in words", async (face) => {
    for (const kind of kinds)
      for (const whose of ["theirs", "missing"] as const) {
        const { faces, things, runtime } = await open(grants[kind], "input");
        const { chat } = things[whose];
        const message = said("m9", "Hello");
        const asked: Readonly<Record<typeof face, Asked>> = {
          chat: ["POST", "/desk", { id: chat, messages: [message] }],
          agUi: ["POST", "/desk", { threadId: chat, runId: "r1", messages: [message] }],
          a2a: [
            ...(["POST", "/desk/message:send"] as const),
            { message: { messageId: "m9", role: "ROLE_USER", contextId: chat, parts: [{ text: "Hello" }] } },
            ofA2a,
          ],
        };
        const { status } = await send(faces[face], asked[face]);
        // Over a chat the words answer the question of a run that the client sees. Over AG-UI an open question refuses them.
        const expected = may(kind, "to write") ? (kind === "owner" && whose === "theirs" ? 404 : 200) : 403;
        if (!(face === "agUi" && whose === "theirs" && sees(kind, whose)))
          expect([kind, whose, status]).toEqual([kind, whose, expected]);
        if (expected !== 200) expect(await runtime.scope({ tenant }).listRuns()).toHaveLength(2);
      }
  });
});

describe("who may answer", () => {
  const answers = async (grant: Grant, kind: string, whose: "mine" | "theirs" = "theirs") => {
    const { faces, things, runtime } = await open(grant, kind);
    const { status, text } = await send(faces.acp, ["POST", `/runs/${things[whose].run_id}`, approved]);
    const inInspector = await send(faces.inspector, [
      "POST",
      "/api/answer",
      { tenant, run_id: things[whose].run_id, await_id: "ask#1", answer: { approved: true } },
    ]);
    const run = await runtime.scope({ tenant }).getRun(things[whose].run_id);
    expect(text).not.toContain("bob@");
    return [status, inInspector.status, run.await_request === null];
  };
  const [yes, no] = [
    [202, 200, true],
    [403, 403, false],
  ];

  it.each([
    [["approval"], "approval", yes],
    [["approval"], "input", no],
    [["input", "auth"], "approval", no],
    [["input", "auth"], "auth", yes],
    [[], "input", no],
  ] as const)("the kinds %j, of a question of kind %s", async (allowed, kind, expected) => {
    expect(await answers({ tenant, principal: ada, answers: allowed }, kind)).toEqual(expected);
    expect(await answers({ tenant, principal: ada, readOnly: true, answers: allowed }, kind)).toEqual(expected);
  });

  it("four eyes: one who has begun a run may not approve it", async () => {
    const grant: Grant = {
      tenant,
      principal: ada,
      answers: ({ kind, creator }) => kind !== "approval" || creator !== "ada",
    };
    expect(await answers(grant, "approval", "mine")).toEqual(no);
    expect(await answers(grant, "approval", "theirs")).toEqual(yes);
    expect(await answers(grant, "input", "mine")).toEqual(yes);
  });

  it.each<[string, () => unknown]>([
    ["later", async () => true],
    ["with a text", () => "yes"],
    ["with nothing", () => undefined],
    [
      "with an error",
      () => {
        throw new Error("No.");
      },
    ],
  ])("a function that answers %s refuses", async (_how, allowed) => {
    expect(await answers({ tenant, principal: ada, answers: allowed as () => boolean }, "approval")).toEqual(no);
  });

  it("the grant that is given for the question counts", async () => {
    const { runtime, things } = await open({});
    const acp = createAcpHandler(runtime, {
      authorize: ({ question: asked }) => ({ tenant, principal: ada, readOnly: asked !== undefined }),
    });
    expect((await send(acp, ["POST", `/runs/${things.mine.run_id}`, approved])).status).toBe(403);
  });
});

it("a client that may only answer does not cancel a run by leaving it", async () => {
  const runtime = new AgentRuntime();
  const [answered, left] = [deferred<void>(), deferred<void>()];
  runtime.register("slow", async (_input, { ask }) => {
    await ask("Well?");
    answered.resolve();
    await left.promise;
    return "done";
  });
  const { run_id } = await runtime.createRun({ agent_name: "slow", input: "a" });
  const acp = createAcpHandler(runtime, {
    authorize: () => ({ readOnly: true, answers: ["input"] }),
    onDisconnect: "cancel",
  });
  const client = new AbortController();
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ await_resume: { ok: true }, mode: "sync" });
  const request = new Request(`http://service/runs/${run_id}`, {
    method: "POST",
    headers,
    body,
    signal: client.signal,
  });
  const answer = acp(request).catch(() => {});
  await answered.promise;
  client.abort();
  await answer;
  left.resolve();
  for await (const _ of runtime.events(run_id, { until: "end" })) {
    // The loop ends when the run has ended.
  }
  expect((await runtime.getRun(run_id)).status).toBe("completed");
});

describe("what clients are not told", () => {
  it("figures, which count the runs of all tenants", async () => {
    const { runtime, faces } = await open({ tenant });
    for (const path of ["/agents/desk", "/agents"]) {
      expect((await send(faces.acp, ["GET", path])).text).not.toContain('"status"');
      expect((await send(createAcpHandler(runtime), ["GET", path])).text).toContain('"status"');
    }
  });

  it("more of a principal than the id of its user", async () => {
    const { runtime, faces, things } = await open(grants.tenant);
    const { run_id } = things.mine;
    const scope = runtime.scope({ tenant, principal: bob });
    await scope.send({ to: run_id, name: "news", data: 1 });
    const fork = await scope.fork(run_id, { mode: "async" });
    await scope.resume({ run_id, await_resume: { ok: true } });
    await scope.cancel(fork.run_id, { wait: true });
    const told: string[] = [];
    for (const id of [run_id, fork.run_id])
      for (const path of ["", "/details", "/events?detail=true"])
        told.push((await send(faces.acp, ["GET", `/runs/${id}${path}`])).text);
    const whole = told.join();
    expect(whole).not.toMatch(/@blue|email/);
    expect(whole.match(/"(?:by|cancelled_by)":"bob"/g)?.length).toBeGreaterThan(4);
  });

  it("which run has used an idempotency key", async () => {
    const { runtime, faces } = await open(grants.tenant);
    const first = await runtime
      .scope({ tenant })
      .createRun({ agent_name: "desk", input: "a" }, { idempotencyKey: "key" });
    const request = new Request("http://service/runs", {
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": "key" },
      body: JSON.stringify({ agent_name: "desk", input: [{ parts: [{ content: "b" }] }] }),
    });
    const response = await faces.acp(request);
    expect(response.status).toBe(409);
    expect(await response.text()).not.toContain(first.run_id);
  });
});

it("a session with a run of a hidden agent stays hidden, however many runs follow", async () => {
  const runtime = new AgentRuntime({ retention: { maxRuns: Number.POSITIVE_INFINITY } });
  runtime.register("hidden", (_input, { ask }) => ask("Well?"));
  runtime.register("echo", (input) => input);
  const { session_id } = await runtime.createRun({ agent_name: "hidden", input: "a" }, { sessionKey: "one" });
  for (let count = 0; count < 1_001; count++) await runtime.createRun({ agent_name: "echo", input: "a", session_id });
  const acp = createAcpHandler(runtime, { authorize: () => ({ agents: ["echo"] }) });
  expect((await send(acp, ["GET", `/sessions/${session_id}`])).status).toBe(404);
});

it("a service with a base path answers below it alone", async () => {
  const { runtime } = await open({});
  const options = { basePath: "/here", authorize: () => ({}) };
  const services: readonly (readonly [Handler, string])[] = [
    [createAcpHandler(runtime, options), "/agents"],
    [createChatHandler(runtime, options), "/desk/c1/messages"],
    [createAgUiHandler(runtime, options), "/desk?threadId=t1&runId=r1"],
    [createInspectorHandler(runtime, options), "/api/start"],
  ];
  for (const [handler, path] of services) {
    expect([path, (await send(handler, ["GET", `/here${path}`])).status]).toEqual([path, 200]);
    for (const elsewhere of ["", "/hereabouts", "/x/here", "/x"])
      expect([path, (await send(handler, ["GET", `${elsewhere}${path}`])).status]).toEqual([path, 404]);
  }
});

describe("refusals that the trail has", () => {
  it("a role that the client may not have", async () => {
    const { faces, records } = await open(grants.tenant);
    const input = [{ role: "agent/desk", parts: [{ content: "yes" }] }];
    expect((await send(faces.acp, ["POST", "/runs", { agent_name: "desk", input }])).status).toBe(403);
    expect(records).toMatchObject([{ action: "access", code: "role_not_allowed", status: 403, by: ada, tenant }]);
  });

  it("what a user of the inspector may not do", async () => {
    const { faces, records } = await open(grants.reader);
    expect((await send(faces.inspector, ["GET", "/api/feed/figures"])).status).toBe(403);
    const other = { tenant: "red", agent_name: "desk", input: "" };
    expect((await send(faces.inspector, ["POST", "/api/create", other])).status).toBe(403);
    const open2 = await open({ tenant, principal: ada });
    expect((await send(open2.faces.inspector, ["POST", "/api/create", other])).status).toBe(403);
    expect([...records, ...open2.records]).toMatchObject([
      { action: "access", asked: "list", code: "forbidden", by: ada, tenant },
      { action: "access", asked: "create", code: "read_only", by: ada, tenant },
      { action: "access", asked: "create", code: "forbidden", by: ada, tenant },
    ]);
  });
});
