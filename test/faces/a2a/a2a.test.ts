import type { AgentFunction, Message } from "cadenza";
import { AgentError, AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { nextTurn } from "../../harness/promises.ts";
import { persistent } from "../../harness/store-proxy.ts";

type Json = Readonly<Record<string, unknown>>;
type A2aOptions = NonNullable<Parameters<typeof createA2aHandler>[1]>;

/** What is answered, with what both bindings say in the same way. */
interface Answer {
  readonly status: number;
  readonly body: Json;
  readonly headers: Headers;
  /** The items of a stream, with the ids of their events. */
  readonly items: readonly (readonly [id: number, item: Json])[];
}

/** A client of an agent, over one binding. */
class A2a {
  readonly runtime: AgentRuntime;
  readonly handler: (request: Request) => Promise<Response>;
  readonly binding: "JSONRPC" | "HTTP+JSON";

  constructor(
    binding: A2a["binding"],
    agent: AgentFunction = (input) => input,
    options: A2aOptions = {},
    described: { readonly inputContentTypes?: readonly string[] } = {},
  ) {
    this.binding = binding;
    this.runtime = new AgentRuntime().register("desk", described, agent).register("other", (input) => input);
    this.handler = createA2aHandler(this.runtime, options);
  }

  async ask(method: string, path: string, body?: unknown, more: Record<string, string> = {}): Promise<Answer> {
    const headers = { "content-type": "application/json", "a2a-version": "1.0", ...more };
    const sent = body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body);
    const response = await this.handler(new Request(`http://a/${path}`, { method, headers, body: sent }));
    const text = await response.text();
    const isStream = response.headers.get("content-type") === "text/event-stream";
    const blocks = isStream ? text.split("\n\n").filter((block) => block.includes("data: ")) : [];
    const items = blocks.map((block) => {
      const item = JSON.parse(/^data: (.*)$/m.exec(block)?.[1] ?? "") as Json;
      return [Number(/^id: (\d+)$/m.exec(block)?.[1]), (item["result"] ?? item["error"] ?? item) as Json] as const;
    });
    const parsed = isStream || text === "" ? {} : (JSON.parse(text) as Json);
    return { status: response.status, body: parsed, headers: response.headers, items };
  }

  /** An operation. The error of JSON-RPC is its body; in REST it has the same code. */
  async call(name: keyof typeof paths, params: Json = {}, more: Record<string, string> = {}): Promise<Answer> {
    if (this.binding === "JSONRPC") {
      const answer = await this.ask("POST", "desk", { jsonrpc: "2.0", id: "7", method: name, params }, more);
      return { ...answer, body: (answer.body["result"] ?? answer.body["error"] ?? answer.body) as Json };
    }
    const { id = "", ...rest } = params;
    const [method, path] = paths[name];
    const query = new URLSearchParams(
      Object.entries(rest).map(([key, value]): [string, string] => [key, String(value)]),
    );
    const place = `desk/${path.replace("ID", encodeURIComponent(String(id)))}`;
    const answer =
      method === "GET"
        ? await this.ask("GET", `${place}?${query}`, undefined, more)
        : await this.ask("POST", place, rest, more);
    return { ...answer, body: (answer.body["error"] ?? answer.body) as Json };
  }

  async send(parts: unknown, about: Json = {}, params: Json = {}, more: Record<string, string> = {}): Promise<Task> {
    const { body } = await this.call("SendMessage", { message: said(parts, about), ...params }, more);
    return (body["task"] ?? body) as unknown as Task;
  }
}

const paths = {
  SendMessage: ["POST", "message:send"],
  SendStreamingMessage: ["POST", "message:stream"],
  GetTask: ["GET", "tasks/ID"],
  ListTasks: ["GET", "tasks"],
  CancelTask: ["POST", "tasks/ID:cancel"],
  SubscribeToTask: ["POST", "tasks/ID:subscribe"],
  GetExtendedAgentCard: ["GET", "extendedAgentCard"],
  ListTaskPushNotificationConfigs: ["GET", "tasks/ID/pushNotificationConfigs"],
} as const;

interface Task {
  readonly id: string;
  readonly contextId: string;
  readonly status: { readonly state: string; readonly message?: Json & { readonly parts: readonly Json[] } };
  readonly artifacts?: readonly { readonly artifactId: string; readonly parts: readonly Json[] }[];
  readonly history?: readonly (Json & { readonly messageId: string; readonly parts: readonly Json[] })[];
  readonly metadata?: Json;
}

let serial = 0;
const said = (parts: unknown, about: Json = {}): Json => ({
  ...{ messageId: `m${++serial}`, role: "ROLE_USER" },
  parts: typeof parts === "string" ? [{ text: parts }] : parts,
  ...about,
});
const info = (reason: string) => [
  { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain: "a2a-protocol.org" },
];
const DECLINING = "https://github.com/cadenza-agents/cadenza/blob/main/docs/guides/a2a.md#declining";
const NO_RUN = "00000000-0000-4000-8000-000000000000";
const approves: AgentFunction = async function* (_input, { ask }) {
  yield "Looking. ";
  const { approved } = await ask("Refund?", { kind: "approval", schema: z.object({ approved: z.boolean() }) });
  yield approved ? "Yes." : "No.";
};

describe.each(["JSONRPC", "HTTP+JSON"] as const)("over %s", (binding) => {
  /** Expects a refusal, in the words of the binding. */
  const refused = ({ status, body }: Answer, code: number, http: number, details: readonly object[] = []): void => {
    if (binding === "JSONRPC") expect([status, body["code"], body["data"] ?? []]).toEqual([200, code, details]);
    else expect([status, body["code"], body["details"]]).toEqual([http, http, details]);
    expect(body["message"]).toEqual(expect.any(String));
  };

  it("parts are mapped in both directions, and neighbouring texts are joined in a task", async () => {
    const client = new A2a(binding, async function* (input) {
      yield "One ";
      yield "two. ";
      for (const part of input[0]?.parts ?? []) yield part;
      yield { content: "Said.", metadata: { kind: "citation", url: "https://example.com" } };
      yield { content: "", metadata: { kind: "trajectory", message: "Hmm." } };
    });
    const parts = [
      { text: "# Hi", mediaType: "text/markdown" },
      { raw: "aGk=", mediaType: "image/png", filename: "chart.png" },
      { url: "https://example.com/a.pdf", mediaType: "application/pdf" },
      { data: { total: 3 }, mediaType: "application/json" },
    ];
    const { artifacts, history } = await client.send(parts);
    expect(history?.[0]?.parts).toEqual(parts);
    expect(artifacts).toEqual([
      {
        artifactId: "output-1",
        parts: [
          { text: "One two. ", mediaType: "text/plain" },
          ...parts,
          { text: "Said.", mediaType: "text/plain", metadata: { citation: { url: "https://example.com" } } },
          { text: "", mediaType: "text/plain", metadata: { reasoning: "Hmm." } },
        ],
      },
    ]);
  });

  it("a stream begins with the task, and tells each event once", async () => {
    const client = new A2a(binding, async function* () {
      yield "One ";
      yield "two.";
      yield { progress: 1 } as never;
    });
    const { items } = await client.call("SendStreamingMessage", { message: said("hi") });
    const ids = { taskId: expect.any(String), contextId: expect.any(String) };
    const [task, working, one, two] = items.map(([, item]) => item);
    expect(task).toMatchObject({ task: { status: { state: "TASK_STATE_SUBMITTED" } } });
    expect(working).toMatchObject({ statusUpdate: { ...ids, status: { state: "TASK_STATE_WORKING" } } });
    const part = (text: string) => ({ artifactId: "output-1", parts: [{ text, mediaType: "text/plain" }] });
    expect(one).toEqual({ artifactUpdate: { ...ids, artifact: part("One ") } });
    expect(two).toEqual({ artifactUpdate: { ...ids, artifact: part("two."), append: true } });
    expect(items.at(-1)?.[1]).toMatchObject({ statusUpdate: { status: { state: "TASK_STATE_COMPLETED" } } });
    const numbers = items.map(([id]) => id);
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  });

  it("a question is the status, an object is its answer, and the same answer again has the same result", async () => {
    const client = new A2a(binding, approves);
    const { id, contextId, status } = await client.send("40 €");
    expect(status.state).toBe("TASK_STATE_INPUT_REQUIRED");
    expect(status.message).toMatchObject({
      messageId: `${id}:ask#1`,
      role: "ROLE_AGENT",
      metadata: { kind: "approval" },
    });
    expect(status.message?.parts[1]).toMatchObject({ mediaType: "application/schema+json", data: { type: "object" } });
    const reply = { message: said([{ data: { approved: "yes" } }], { taskId: id }) };
    const path = { "@type": "type.googleapis.com/google.rpc.BadRequest" };
    const answer = await client.call("SendMessage", reply);
    refused(answer, -32602, 400, [
      { ...path, fieldViolations: [{ field: expect.stringContaining("approved"), description: expect.any(String) }] },
    ]);
    refused(
      await client.call("SendMessage", { message: said("x", { taskId: id, contextId: "another" }) }),
      -32602,
      400,
      [{ ...path, fieldViolations: [{ field: "message.contextId", description: expect.any(String) }] }],
    );
    const yes = said([{ data: { approved: true } }], { taskId: id, contextId });
    for (const _ of [1, 2]) {
      const { body } = await client.call("SendMessage", { message: yes });
      expect(body).toMatchObject({ task: { id, status: { state: "TASK_STATE_COMPLETED" } } });
      const { history = [] } = body["task"] as Task;
      expect(history.slice(1).map(({ messageId }) => messageId)).toEqual([`${id}:ask#1`, `${id}:ask#1:answer`]);
    }
    refused(
      await client.call("SendMessage", { message: said("x", { taskId: id }) }),
      -32004,
      400,
      info("UNSUPPORTED_OPERATION"),
    );
  });

  it("several questions are asked one after the other, and a message to a task at work is refused", async () => {
    const client = new A2a(binding, async (_input, { ask }) => {
      const answers = await Promise.all([ask("One?", { kind: "auth" }), ask("Two?", { timeoutMs: 60_000 })]);
      return answers.map((answer) => (answer as Message).parts[0]?.content).join(" ");
    });
    const { id, status } = await client.send("hi");
    expect(status.state).toBe("TASK_STATE_AUTH_REQUIRED");
    const next = await client.send("a", { taskId: id });
    expect(next.status.state).toBe("TASK_STATE_INPUT_REQUIRED");
    expect(next.status.message?.["metadata"]).toMatchObject({ expires_at: expect.stringMatching(/Z$/) });
    const last = await client.send("b", { taskId: id });
    expect(last.artifacts?.[0]?.parts).toMatchObject([{ text: "a b" }]);
    const slow = new A2a(binding, (_input, { signal }) => {
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve("Stopped.")));
    });
    const { id: at } = await slow.send("hi", {}, { configuration: { returnImmediately: true } });
    refused(
      await slow.call("SendMessage", { message: said("x", { taskId: at }) }),
      -32004,
      400,
      info("UNSUPPORTED_OPERATION"),
    );
    const { body } = await slow.call("CancelTask", { id: at });
    expect(body).toMatchObject({ id: at, status: { state: "TASK_STATE_CANCELED" } });
    expect((await slow.call("CancelTask", { id: at })).body).toMatchObject({
      status: { state: "TASK_STATE_CANCELED" },
    });
  });

  it("a failure has its message, and the reason rejected a state of its own", async () => {
    const client = new A2a(binding, async (input) => {
      throw new AgentError(String(input[0]?.parts[0]?.content), "No seat.");
    });
    for (const [code, state] of [
      ["no_seat", "FAILED"],
      ["rejected", "REJECTED"],
    ] as const) {
      const { id, status } = await client.send(code);
      expect(status).toMatchObject({ state: `TASK_STATE_${state}`, message: { parts: [{ text: "No seat." }] } });
      refused(await client.call("CancelTask", { id }), -32002, 400, info("TASK_NOT_CANCELABLE"));
      refused(await client.call("SubscribeToTask", { id }), -32004, 400, info("UNSUPPORTED_OPERATION"));
      const { body } = await client.call("ListTasks", { status: `TASK_STATE_${state}` });
      expect(body).toMatchObject({ totalSize: 1, tasks: [{ id }] });
    }
    expect((await client.call("ListTasks", { status: "TASK_STATE_UNSPECIFIED" })).body["totalSize"]).toBe(0);
  });

  it("output that does not count any more is replaced", async () => {
    const client = new A2a(binding, async function* (_input, { step }) {
      yield "First. ";
      await step(
        "model",
        async ({ emit, attempt }) => {
          await emit("One ");
          if (attempt === 1) throw new Error("The model broke off.");
          await emit("two.");
        },
        { retry: { attempts: 2 } },
      );
    });
    const { items } = await client.call("SendStreamingMessage", { message: said("hi") });
    const texts = new Map<string, string>();
    for (const [, { artifactUpdate }] of items) {
      const { artifact, append } = (artifactUpdate ?? { artifact: { artifactId: "", parts: [] } }) as {
        artifact: { artifactId: string; parts: { text: string }[] };
        append?: true;
      };
      const text = artifact.parts.map((part) => part.text).join("");
      texts.set(artifact.artifactId, (append ? (texts.get(artifact.artifactId) ?? "") : "") + text);
    }
    expect([...texts.values()].join("")).toBe("First. One two.");
  });

  it("the history has as many messages as are asked for, and a list has no artifacts unless they are", async () => {
    const client = new A2a(binding, approves);
    const { id } = await client.send("40 €");
    await client.send([{ data: { approved: true } }], { taskId: id });
    for (const [historyLength, length] of [
      [0, undefined],
      [1, 1],
      [9, 3],
    ] as const) {
      const { body } = await client.call("GetTask", { id, historyLength });
      expect((body["history"] as readonly unknown[] | undefined)?.length).toBe(length);
    }
    const [bare] = (await client.call("ListTasks")).body["tasks"] as readonly Task[];
    expect(bare).not.toHaveProperty("artifacts");
    const [full] = (await client.call("ListTasks", { includeArtifacts: true })).body["tasks"] as readonly Task[];
    expect(full?.artifacts?.length).toBeGreaterThan(0);
  });

  it("a message declines a question by the extension that the card names, and its words are the reason", async () => {
    const client = new A2a(binding, async (_input, { ask }) => {
      try {
        await ask("Refund?", { schema: z.object({ approved: z.boolean() }) });
      } catch (error) {
        return CadenzaError.is(error) ? `${error.code}: ${error.reason}` : "";
      }
      return "Approved.";
    });
    const { id: taskId } = await client.send("40 €");
    const metadata = { [DECLINING]: true };
    const message = said([{ text: "Too much." }, { data: { approved: true } }], { taskId, metadata });
    for (const named of [undefined, `urn:other, ${DECLINING}`]) {
      const more = named === undefined ? {} : { "a2a-extensions": named };
      const { body, headers } = await client.call("SendMessage", { message }, more);
      const { artifacts, history } = body["task"] as Task;
      expect(artifacts?.[0]?.parts[0]).toMatchObject({ text: "answer_declined: Too much." });
      expect(history?.at(-1)).toMatchObject({ role: "ROLE_USER", parts: [{ text: "Too much." }], metadata });
      expect(headers.get("a2a-extensions")).toBe(named === undefined ? null : DECLINING);
    }
    for (const value of [false, "true", 1]) {
      const { id } = await client.send("40 €");
      const parts = [{ data: { approved: true } }];
      const { artifacts, history } = await client.send(parts, { taskId: id, metadata: { [DECLINING]: value } });
      expect(artifacts?.[0]?.parts[0]).toMatchObject({ text: "Approved." });
      expect(history?.at(-1)).not.toHaveProperty("metadata");
    }
  });

  it("a context is any text, and is given back as it came", async () => {
    const client = new A2a(binding);
    for (const contextId of ["talk 17/ä", "x".repeat(400), "7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "__proto__"]) {
      const first = await client.send("one", { contextId });
      const second = await client.send("two", { contextId });
      expect([first.contextId, second.contextId]).toEqual([contextId, contextId]);
      const { body } = await client.call("ListTasks", { contextId });
      expect(body).toMatchObject({ totalSize: 2, tasks: [{ contextId }, { contextId }] });
      expect((await client.call("GetTask", { id: first.id })).body["contextId"]).toBe(first.contextId);
    }
    const { session_id } = await client.runtime.createRun(
      { agent_name: "desk", input: "x" },
      { sessionKey: "talk 17/ä" },
    );
    expect((await client.send("three", { contextId: session_id })).contextId).toBe(session_id);
    expect((await client.call("ListTasks", { contextId: "talk 17/ä" })).body["totalSize"]).toBe(4);
  });

  it("a list has pages, those first that have changed last", async () => {
    const client = new A2a(binding, async (input, { ask }) => {
      if (input[0]?.parts[0]?.content === "ask") await ask("Well?");
    });
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift((await client.send(i === 0 ? "ask" : "hi")).id);
    const seen: string[] = [];
    let pageToken = "";
    do {
      const { body } = await client.call("ListTasks", { pageSize: 2, pageToken });
      expect(body).toMatchObject({ pageSize: 2, totalSize: 5 });
      seen.push(...(body["tasks"] as readonly Task[]).map(({ id }) => id));
      pageToken = String(body["nextPageToken"]);
    } while (pageToken !== "");
    expect(seen.toSorted()).toEqual(ids.toSorted());
    for (const params of [
      { pageSize: 0 },
      { pageSize: 101 },
      { pageToken: "x" },
      { status: "DONE" },
      { statusTimestampAfter: "x" },
    ])
      expect((await client.call("ListTasks", params)).body["message"]).toContain(Object.keys(params)[0]);
    const after = { statusTimestampAfter: "2999-01-01T00:00:00Z" };
    expect((await client.call("ListTasks", after)).body).toMatchObject({ totalSize: 0, tasks: [], nextPageToken: "" });
    expect((await client.call("ListTasks", { status: "TASK_STATE_INPUT_REQUIRED" })).body["totalSize"]).toBe(1);
    expect((await client.call("ListTasks", { status: "TASK_STATE_AUTH_REQUIRED" })).body["totalSize"]).toBe(0);
  });

  it("a message with the id of an earlier one is an answer of its own", async () => {
    const client = new A2a(binding, async function* (_input, { ask }) {
      for (const question of ["Who?", "Where?"]) yield ((await ask(question)) as Message).parts[0]?.content ?? "";
    });
    const { id } = await client.send("hi");
    const answer = (words: string): Promise<Task> => client.send(words, { taskId: id, messageId: "again" });
    expect((await answer("Ada")).status.state).toBe("TASK_STATE_INPUT_REQUIRED");
    // The same once more is the answer to the first question still.
    expect((await answer("Ada")).status.state).toBe("TASK_STATE_INPUT_REQUIRED");
    expect(await answer("Paris")).toMatchObject({
      status: { state: "TASK_STATE_COMPLETED" },
      artifacts: [{ parts: [{ text: "Ada" }] }, { parts: [{ text: "Paris" }] }],
    });
  });

  it("an idempotency key begins one task", async () => {
    const client = new A2a(binding);
    const key = { "idempotency-key": "k1" };
    const message = said("hi");
    const [first, second] = [
      await client.call("SendMessage", { message }, key),
      await client.call("SendMessage", { message }, key),
    ];
    expect((second.body["task"] as Task).id).toBe((first.body["task"] as Task).id);
    refused(await client.call("SendMessage", { message: said("other") }, key), -32602, 400);
    expect((await client.send("hi")).id).not.toBe((await client.send("hi")).id);
  });

  it("a subscription goes on behind the event that a client names, also when the task has ended since", async () => {
    const client = new A2a(binding, approves);
    const { items } = await client.call("SendStreamingMessage", { message: said("40 €") });
    const { id } = (items[0]?.[1]["task"] ?? {}) as Task;
    await client.send([{ data: { approved: true } }], { taskId: id });
    for (const [at] of items) {
      const again = await client.call("SubscribeToTask", { id }, { "last-event-id": String(at) });
      expect(again.items[0]).toMatchObject([at, { task: { id } }]);
      expect(again.items.slice(1).map(([number]) => number)).toEqual(
        expect.arrayContaining(items.map(([number]) => number).filter((number) => number > at)),
      );
      expect(again.items.at(-1)?.[1]).toMatchObject({ statusUpdate: { status: { state: "TASK_STATE_COMPLETED" } } });
    }
  });

  it("a request in another version is refused, and one that names none is of version 0.3", async () => {
    const client = new A2a(binding);
    for (const version of ["", "0.3", "0.3.0", "2.0", "1", "x"])
      refused(
        await client.call("ListTasks", {}, { "a2a-version": version }),
        -32009,
        400,
        info("VERSION_NOT_SUPPORTED"),
      );
    expect((await client.call("ListTasks", {}, { "a2a-version": "1.0.1" })).status).toBe(200);
  });

  it("what is not declared is refused", async () => {
    const client = new A2a(binding);
    refused(await client.call("GetExtendedAgentCard"), -32004, 400, info("UNSUPPORTED_OPERATION"));
    refused(
      await client.call("ListTaskPushNotificationConfigs", { id: NO_RUN }),
      -32003,
      400,
      info("PUSH_NOTIFICATION_NOT_SUPPORTED"),
    );
    const configuration = { taskPushNotificationConfig: { url: "https://example.com" } };
    refused(
      await client.call("SendMessage", { message: said("x"), configuration }),
      -32003,
      400,
      info("PUSH_NOTIFICATION_NOT_SUPPORTED"),
    );
    expect(await client.runtime.listRuns()).toEqual([]);
  });

  it.each([
    ["no message", {}],
    ["no id", { message: { role: "ROLE_USER", parts: [{ text: "x" }] } }],
    ["another role", { message: said("x", { role: "user" }) }],
    ["no parts", { message: said([]) }],
    ["two contents", { message: said([{ text: "x", url: "https://example.com" }]) }],
    ["no content", { message: said([{ mediaType: "text/plain" }]) }],
    ["an address of another kind", { message: said([{ url: "file:///etc/passwd" }]) }],
    ["a text that is none", { message: said([{ text: 1 }]) }],
    ["a length below 0", { message: said("x"), configuration: { historyLength: -1 } }],
  ])("a message with %s is refused", async (_what, params) => {
    const client = new A2a(binding);
    refused(await client.call("SendMessage", params), -32602, 400, [
      expect.objectContaining({ fieldViolations: expect.any(Array) }),
    ]);
    expect(await client.runtime.listRuns()).toEqual([]);
  });

  it("a media type that the agent does not read is refused", async () => {
    const client = new A2a(binding, (input) => input, {}, { inputContentTypes: ["text/*"] });
    expect((await client.send([{ text: "x", mediaType: "text/markdown; charset=utf-8" }])).status.state).toMatch(
      /COMPLETED/,
    );
    for (const part of [{ data: 1 }, { raw: "aGk=" }, { text: "x", mediaType: "texty/x" }])
      refused(
        await client.call("SendMessage", { message: said([part]) }),
        -32005,
        400,
        info("CONTENT_TYPE_NOT_SUPPORTED"),
      );
  });

  it("a task of another tenant, of another owner or of another agent is refused as one that does not exist", async () => {
    const authorize: NonNullable<A2aOptions["authorize"]> = ({ headers }) => ({
      tenant: headers["x-tenant"] ?? "blue",
      principal: headers["x-user"] ?? "ada",
      owns: true,
    });
    const client = new A2a(binding, approves, { authorize });
    const { id } = await client.send("40 €");
    const { run_id } = await client.runtime
      .scope({ tenant: "blue", principal: "ada" })
      .createRun({ agent_name: "other", input: "x" });
    const strangers: readonly (readonly [string, Record<string, string>])[] = [
      [id, { "x-tenant": "red" }],
      [id, { "x-user": "eve" }],
      [run_id, {}],
      ["no id", {}],
    ];
    for (const name of ["GetTask", "CancelTask", "SubscribeToTask"] as const) {
      const missing = await client.call(name, { id: NO_RUN });
      refused(missing, -32001, 404, info("TASK_NOT_FOUND"));
      for (const [task, headers] of strangers) {
        const { status, body } = await client.call(name, { id: task }, headers);
        expect([status, body]).toEqual([missing.status, missing.body]);
      }
    }
    const missing = await client.call("SendMessage", { message: said("x", { taskId: NO_RUN }) });
    for (const [taskId, headers] of strangers)
      expect((await client.call("SendMessage", { message: said("x", { taskId }) }, headers)).body).toEqual(
        missing.body,
      );
    expect((await client.call("ListTasks", {}, { "x-user": "eve" })).body["totalSize"]).toBe(0);
    expect((await client.call("GetTask", { id })).body).toMatchObject({
      status: { state: "TASK_STATE_INPUT_REQUIRED" },
    });
  });

  it("who may only look begins, answers and cancels nothing, and the role of an agent has to be granted", async () => {
    const grants: Record<string, object> = { reader: { readOnly: true }, gateway: { roles: ["user", "agent"] } };
    const client = new A2a(binding, approves, { authorize: ({ headers }) => grants[headers["x-user"] ?? ""] ?? {} });
    const { id } = await client.send("40 €");
    const reader = { "x-user": "reader" };
    const answer = { message: said([{ data: { approved: true } }], { taskId: id }) };
    for (const tried of [
      await client.call("SendMessage", { message: said("x") }, reader),
      await client.call("SendMessage", answer, reader),
      await client.call("CancelTask", { id }, reader),
      await client.call("SendMessage", { message: said("x", { role: "ROLE_AGENT" }) }),
      await client.call("SendMessage", {
        message: said([{ data: { approved: true } }], { taskId: id, role: "ROLE_AGENT" }),
      }),
    ])
      expect(tried.status).toBe(403);
    expect((await client.call("GetTask", { id }, reader)).body).toMatchObject({
      status: { state: "TASK_STATE_INPUT_REQUIRED" },
    });
    expect(
      (await client.call("SendMessage", { message: said("x", { role: "ROLE_AGENT" }) }, { "x-user": "gateway" }))
        .status,
    ).toBe(200);
  });

  it("authorize is told the action, the agent, the task and the context", async () => {
    const asked: Json[] = [];
    const authorize: NonNullable<A2aOptions["authorize"]> = ({ headers: _, request: _request, ...about }) => {
      asked.push(about as Json);
      return {};
    };
    const client = new A2a(binding, approves, { authorize });
    const { id } = await client.send("40 €", { contextId: "talk" });
    expect(asked.at(-1)).toMatchObject({ action: "create", agent_name: "desk", chat_id: "talk" });
    await client.send([{ data: { approved: true } }], { taskId: id });
    expect(asked.find(({ action }) => action === "answer")).toMatchObject({
      run_id: id,
      question: { kind: "approval" },
    });
    for (const [name, action] of [
      ["GetTask", "read"],
      ["CancelTask", "cancel"],
    ] as const) {
      await client.call(name, { id });
      expect(asked.at(-1)).toEqual({ action, agent_name: "desk", run_id: id });
    }
    await client.call("ListTasks");
    expect(asked.at(-1)).toEqual({ action: "list", agent_name: "desk" });
  });
});

it("JSON-RPC answers what is no request with an error and its id", async () => {
  const client = new A2a("JSONRPC");
  const request = { jsonrpc: "2.0", id: 7, method: "ListTasks" };
  const table: readonly (readonly [unknown, number, unknown])[] = [
    ["{", -32700, null],
    ["", -32700, null],
    [[request], -32600, null],
    [{ ...request, jsonrpc: "1.0" }, -32600, 7],
    [{ ...request, id: null }, -32600, null],
    [{ ...request, method: 1 }, -32600, 7],
    [{ ...request, method: "message/send" }, -32601, 7],
    [{ ...request, method: "__proto__" }, -32601, 7],
    [{ ...request, params: [] }, -32602, 7],
    [`{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":${"[".repeat(100)}${"]".repeat(100)}}`, -32602, null],
  ];
  for (const [body, code, id] of table) {
    const answer = await client.ask("POST", "desk/", body);
    expect([answer.status, answer.body["id"], (answer.body["error"] as Json)["code"]]).toEqual([200, id, code]);
  }
  expect((await client.ask("POST", "desk/", request)).body).toMatchObject({ id: 7, result: { tasks: [] } });
  expect((await client.ask("POST", "desk", request, { "content-type": "text/plain" })).body).toMatchObject({
    error: { code: -32005 },
  });
  expect((await client.ask("POST", "missing", { ...request, id: "a" })).body).toMatchObject({
    id: "a",
    error: { code: -32001 },
  });
});

it("REST says with a status that a stream breaks off because its process stops", async () => {
  const runtime = new AgentRuntime({ store: durable(persistent(new MemoryStore())) });
  runtime.register("desk", { durable: true }, (_input, { sleep }) => sleep(60_000));
  const handler = createA2aHandler(runtime);
  const { run_id } = await runtime.createRun({ agent_name: "desk", input: "", mode: "async" });
  const headers = { "a2a-version": "1.0" };
  const response = await handler(new Request(`http://a/desk/tasks/${run_id}:subscribe`, { method: "POST", headers }));
  const told = response.text();
  await nextTurn();
  await runtime.close({ drainMs: 0 });
  expect(JSON.parse((await told).split("data: ").at(-1) ?? "")).toMatchObject({
    error: { code: 503, status: "UNAVAILABLE" },
  });
});

it("REST answers in the type that a request names, and with a status", async () => {
  const client = new A2a("HTTP+JSON");
  const own = { "content-type": "application/a2a+json" };
  const sent = await client.ask("POST", "desk/message:send", { message: said("x") }, own);
  expect([sent.status, sent.headers.get("content-type")]).toEqual([200, "application/a2a+json"]);
  const refused = await client.ask("POST", "desk/message:send", {}, own);
  expect([refused.status, refused.headers.get("content-type")]).toEqual([400, "application/a2a+json"]);
  for (const [method, path, status] of [
    ["GET", "nowhere/at/all/x", 404],
    ["PUT", "desk/tasks", 405],
    ["POST", "desk/message:fetch", 404],
  ] as const)
    expect((await client.ask(method, path)).status).toBe(status);
  expect((await client.ask("POST", "desk/message:send", "x", { "content-type": "text/plain" })).body).toMatchObject({
    error: { code: 400, status: "INVALID_ARGUMENT", details: info("CONTENT_TYPE_NOT_SUPPORTED") },
  });
  expect((await client.ask("GET", "desk/tasks?pageSize=&contextId=&status=")).body).toMatchObject({ pageSize: 50 });
});

it("each agent has a card, and the root has one of them", async () => {
  const runtime = new AgentRuntime();
  const links = [{ type: "documentation", url: "https://example.com/docs" }] as const;
  runtime.register("desk", { description: "Refunds.", metadata: { tags: ["money"], links } }, (input) => input);
  runtime.register("secret", (input) => input);
  const card = { version: "2.1.0" };
  const options: A2aOptions = { basePath: "/a2a", root: "desk", card, authorize: () => ({ agents: ["desk"] }) };
  const handler = createA2aHandler(runtime, options);
  const get = (path: string, headers: Record<string, string> = {}) =>
    handler(new Request(`https://a.example/a2a/${path}`, { headers }));
  const root = await get(".well-known/agent-card.json");
  const url = "https://a.example/a2a/desk";
  expect(await root.json()).toEqual({
    name: "desk",
    description: "Refunds.",
    version: "2.1.0",
    supportedInterfaces: ["JSONRPC", "HTTP+JSON"].map((protocolBinding) => ({
      url,
      protocolBinding,
      protocolVersion: "1.0",
    })),
    capabilities: {
      ...{ streaming: true, pushNotifications: false, extendedAgentCard: false },
      extensions: [{ uri: DECLINING }],
    },
    defaultInputModes: ["text/plain", "application/json"],
    defaultOutputModes: ["text/plain", "application/json"],
    skills: [{ id: "desk", name: "desk", description: "Refunds.", tags: ["money"] }],
    documentationUrl: "https://example.com/docs",
  });
  expect(root.headers.get("content-type")).toBe("application/json");
  expect(root.headers.get("cache-control")).toBe("private, max-age=300");
  expect(Date.parse(root.headers.get("last-modified") ?? "")).not.toBeNaN();
  const etag = root.headers.get("etag") ?? "";
  expect((await get("desk/.well-known/agent-card.json", { "if-none-match": `"x", W/${etag}` })).status).toBe(304);
  expect((await get("secret/.well-known/agent-card.json")).status).toBe(404);
  expect((await createA2aHandler(runtime)(new Request("https://a.example/.well-known/agent-card.json"))).status).toBe(
    404,
  );
  expect(() => createA2aHandler(runtime, { root: 1 } as never)).toThrow("root");
});

it.each<[card: unknown, message: string]>([
  [[], "card"],
  ["Desk", "card"],
  [{ versoin: "2.0" }, "card.versoin"],
  [{ version: 2 }, "card.version"],
  [{ version: null }, "card.version"],
  [{ provider: ["Example"] }, "card.provider"],
  [{ securityRequirements: { token: [] } }, "card.securityRequirements"],
  [{ provider: { since: new Date(0) } }, "card.provider.since"],
  [{ skills: [1n] }, "card.skills.0"],
])("refuses the card %o, where it is wrong", (card, message) => {
  expect(() => createA2aHandler(new AgentRuntime(), { card } as never)).toThrow(message);
});

it("a field of a card without a value is that of the agent, and later changes of the object change nothing", async () => {
  const card = { version: undefined, iconUrl: "https://example.com/icon.png" };
  const handler = createA2aHandler(
    new AgentRuntime().register("desk", () => ""),
    { card } as never,
  );
  card.iconUrl = "https://example.com/other.png";
  const response = await handler(new Request("http://a/desk/.well-known/agent-card.json"));
  expect(await response.json()).toMatchObject({ version: "1.0.0", iconUrl: "https://example.com/icon.png" });
});

it("pages of other origins may send the headers of A2A", async () => {
  const handler = createA2aHandler(new AgentRuntime(), { cors: true, allowedOrigins: ["https://app.example"] });
  const headers = { origin: "https://app.example", "access-control-request-method": "POST" };
  const response = await handler(new Request("http://a/desk", { method: "OPTIONS", headers }));
  expect(response.headers.get("access-control-allow-headers")).toContain("A2A-Version");
});

it("what an agent emits ends no process", async () => {
  const client = new A2a("JSONRPC", async function* () {
    await nextTurn();
    yield { content_type: "application/json", content: "{" };
    yield { content: "half \ud800" };
    yield { content_type: "application/json", content: '{"__proto__":{"isAdmin":true}}' };
  });
  const { artifacts } = await client.send("x");
  expect(artifacts?.[0]?.parts).toMatchObject([
    { data: "{" },
    { text: expect.stringContaining("half") },
    { data: expect.any(String) },
  ]);
});
