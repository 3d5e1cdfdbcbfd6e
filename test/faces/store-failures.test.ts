import { AgentRuntime, CadenzaError } from "cadenza";
import { createAgUiHandler as agUi } from "cadenza/ag-ui";
import { createChatHandler as chat } from "cadenza/ai-sdk";
import { createAcpHandler as acp } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import type { Method } from "../harness/store-proxy.ts";
import { hookedStore, lastingStore } from "../harness/store-proxy.ts";

/* What a database says reaches no client, whichever call of the store fails, over each face. */

const SECRET = "password=hunter2 at 10.0.0.7";
const SESSION = "00000000-0000-4000-8000-0000000000aa";
const METHODS: readonly Method[] = [
  ...(["create", "append", "post", "claim", "find", "read", "findByIdempotencyKey", "list", "moved", "owned"] as const),
  ...(["survey", "tails", "census", "workers", "session", "sessionHead", "makeSession", "putSession"] as const),
  ...(["counters", "blocked", "backlog", "lines", "delete", "deleteSession"] as const),
];

type Ask = readonly [path: string, body?: object];
type Handler = (request: Request) => Promise<Response>;

/** A service with a run that asks and one that has ended. Calls of one method of its store fail. */
async function open() {
  const clock = new FakeClock(8);
  let failing: Method | undefined;
  const hook = (call: () => unknown, method: Method): unknown => {
    if (method === failing) throw new Error(SECRET);
    return call();
  };
  const store: Store = durable(hookedStore(hook, lastingStore(clock)), { leaseMs: 1_000, heartbeatMs: 300 });
  const runtime: AgentRuntime = new AgentRuntime({ clock, store, exposeErrors: true });
  runtime.register("desk", { durable: true }, async function* (_input, { ask }) {
    yield "Hello.";
    await ask("Well?");
  });
  // What the agent is told of the store goes on to its clients.
  runtime.register("leaks", async () => {
    await runtime.getRun("00000000-0000-4000-8000-0000000000ab");
  });
  runtime.register("throws", () => {
    throw new CadenzaError("store_failed", SECRET);
  });
  const { run_id } = await runtime.createRun({ agent_name: "desk", input: "x", session_id: SESSION });
  return {
    clock,
    runtime,
    run_id,
    fail(method: Method | undefined): void {
      failing = method;
    },
  };
}

const user = { id: "m1", role: "user" } as const;
const faces: readonly (readonly [
  name: string,
  make: (runtime: AgentRuntime) => Handler,
  asks: (agent: string, run_id: string) => readonly Ask[],
])[] = [
  [
    "ACP",
    (runtime) => acp(runtime, { extensions: true }),
    (agent_name, run_id) => [
      ["runs", { agent_name, input: [{ role: "user", parts: [{ content: "x" }] }], mode: "sync" }],
      ["runs", { agent_name, input: [{ role: "user", parts: [{ content: "x" }] }], mode: "stream" }],
      [`runs/${run_id}`],
      [`runs/${run_id}/events`],
      [`runs/${run_id}`, { run_id, mode: "sync", await_resume: { type: "message" } }],
      [`runs/${run_id}/cancel`, {}],
      [`session/${SESSION}`],
      ["runs"],
    ],
  ],
  [
    "AI SDK chats",
    (runtime) => chat(runtime, {}),
    (agent) => [
      [agent, { id: "c1", trigger: "submit-message", messages: [{ ...user, parts: [{ type: "text", text: "x" }] }] }],
      [`${agent}/c1/stream`],
      [`${agent}/c1/messages`],
    ],
  ],
  [
    "AG-UI",
    (runtime) => agUi(runtime, {}),
    (agent) => [
      [
        agent,
        {
          ...{ threadId: "t1", runId: "r1", state: {}, tools: [], context: [], forwardedProps: {} },
          messages: [{ ...user, content: "x" }],
        },
      ],
    ],
  ],
  [
    "the inspector",
    (runtime) => createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }),
    (agent_name, run_id) => [
      [`api/log?run_id=${run_id}&tenant=`],
      [`api/feed/run?run_id=${run_id}&tenant=`],
      ["api/feed/questions"],
      ["api/feed/failures"],
      ["api/feed/stuck"],
      ["api/feed/figures"],
      ["api/create", { agent_name, input: "x", tenant: "" }],
      ["api/cancel", { run_id, tenant: "" }],
    ],
  ],
];

it.each(faces)("a failure of the store is told without its text over %s", async (_name, make, asksOf) => {
  const seen: string[] = [];
  for (const agent of ["desk", "leaks", "throws"]) {
    for (const method of agent === "throws" ? [undefined] : METHODS) {
      const { clock, runtime, run_id, fail } = await open();
      const handler = make(runtime);
      fail(method);
      for (const [path, body] of asksOf(agent, run_id)) {
        const headers = { "content-type": "application/json", accept: "text/event-stream" };
        const init = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) };
        const text = await answerTo(handler(new Request(`http://localhost/${path}`, init)), clock);
        seen.push(text.slice(0, 60));
        expect([agent, method, path, text.includes("hunter2"), text]).toEqual([agent, method, path, false, text]);
      }
      fail(undefined);
      const runs = await runtime.listRuns({ output: true });
      expect(JSON.stringify(runs)).not.toContain("hunter2");
      const closed = runtime.close({ drainMs: 0 });
      await clock.advance(15_000);
      await closed;
    }
  }
  // The answers are refusals and streams, and not all the same.
  expect(new Set(seen).size).toBeGreaterThan(2);
});

/** What a client gets within two seconds. */
async function answerTo(asked: Promise<Response>, clock: FakeClock): Promise<string> {
  let text = "";
  let leave = async (): Promise<void> => {};
  const reading = (async () => {
    const response = await asked;
    text += response.status;
    const reader = response.body?.getReader();
    leave = async () => reader?.cancel();
    const decoder = new TextDecoder();
    for (let read = await reader?.read(); read?.done === false; read = await reader?.read())
      text += decoder.decode(read.value);
  })();
  reading.catch(() => {});
  await clock.advance(2_000);
  await leave();
  return text;
}
