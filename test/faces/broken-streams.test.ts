import { AgentRuntime } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import { createAgUiHandler } from "cadenza/ag-ui";
import type { Handler } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import { expect, it } from "vitest";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import { nextTurn } from "../harness/promises.ts";
import type { Random } from "../harness/random.ts";

/*
 * Clients whose connections break off at any byte, and who come back, over the faces that have a way to come back. They
 * miss nothing, and get nothing twice.
 */

const words = Array.from({ length: 30 }, (_, index) => `wörd${index} `);
const whole = words.join("");

/** A client that knows what it has got so far. */
interface Client {
  /** The first request. */
  begin(): Request;
  /** The request of a client that comes back. Undefined: it has all. */
  again(): Request | undefined;
  /** Takes an item of a stream. `isFirst`: it is the first one of a response. */
  take(item: Record<string, unknown>, id: number | undefined, isFirst: boolean): void;
  readonly text: string;
}

interface Face {
  readonly name: string;
  readonly handler: (runtime: AgentRuntime) => Handler;
  readonly client: (serial: number) => Client;
}

const base = "http://localhost";
const typed = { "content-type": "application/json" };
const post = (path: string, body: object, headers: Record<string, string> = {}): Request =>
  new Request(base + path, { method: "POST", headers: { ...typed, ...headers }, body: JSON.stringify(body) });

/** The numbers of events, each higher than the one before. */
class Numbers {
  last = 0;

  next(id: number | undefined): void {
    if (id === undefined) return;
    expect(id).toBeGreaterThan(this.last);
    this.last = id;
  }
}

interface A2aItem {
  readonly task?: { readonly id: string; readonly status: { readonly state: string }; readonly artifacts?: Artifacts };
  readonly statusUpdate?: { readonly status: { readonly state: string } };
  readonly artifactUpdate?: { readonly artifact: Artifacts[number] };
}
type Artifacts = readonly { readonly parts: readonly { readonly text: string }[] }[];

const textIn = (artifacts: Artifacts = []): string =>
  artifacts.flatMap(({ parts }) => parts.map(({ text }) => text)).join("");

function a2aClient(isRpc: boolean): Client {
  const headers = { "a2a-version": "1.0" };
  const numbers = new Numbers();
  let [taskId, text, state] = ["", "", ""];
  const rpc = (method: string, params: object): object => ({ jsonrpc: "2.0", id: 1, method, params });
  const message = { messageId: "m1", role: "ROLE_USER", parts: [{ text: "count" }] };
  return {
    begin: () =>
      isRpc
        ? post("/counts", rpc("SendStreamingMessage", { message }), headers)
        : post("/counts/message:stream", { message }, headers),
    again() {
      if (taskId === "") return this.begin();
      if (state === "TASK_STATE_COMPLETED") return undefined;
      const last = { ...headers, "last-event-id": String(numbers.last) };
      return isRpc
        ? post("/counts", rpc("SubscribeToTask", { id: taskId }), last)
        : new Request(`${base}/counts/tasks/${taskId}:subscribe`, { headers: last });
    },
    take(item, id, isFirst) {
      const { task, statusUpdate, artifactUpdate } = (isRpc ? item["result"] : item) as A2aItem;
      if (task !== undefined && isFirst && taskId !== "") {
        // The task is shown as it was at the last event that the client has.
        expect([id, textIn(task.artifacts)]).toEqual([numbers.last, text]);
        return;
      }
      numbers.next(id);
      if (task !== undefined) {
        taskId = task.id;
        text = textIn(task.artifacts);
      }
      if (artifactUpdate !== undefined) text += textIn([artifactUpdate.artifact]);
      state = statusUpdate?.status.state ?? task?.status.state ?? state;
    },
    get text() {
      return text;
    },
  };
}

function acpClient(): Client {
  const numbers = new Numbers();
  let [runId, text, isEnded] = ["", "", false];
  const accept = { accept: "text/event-stream" };
  return {
    begin: () => post("/runs", { agent_name: "counts", input: [{ parts: [{ content: "count" }] }], mode: "stream" }),
    again() {
      if (runId === "") return this.begin();
      if (isEnded) return undefined;
      const headers = { ...accept, "last-event-id": String(numbers.last) };
      return new Request(`${base}/runs/${runId}/events`, { headers });
    },
    take(item, id) {
      const { type, run, part } = item as { type: string; run?: { run_id: string }; part?: { content: string } };
      numbers.next(id);
      runId = run?.run_id ?? runId;
      if (type === "message.part") text += part?.content ?? "";
      isEnded = type === "run.completed";
    },
    get text() {
      return text;
    },
  };
}

function agUiClient(serial: number): Client {
  const threadId = `thread ${serial}`;
  let [text, isSent, isEnded] = ["", false, false];
  return {
    begin: () => post("/counts", { threadId, runId: "r1", messages: [{ id: "m1", role: "user", content: "count" }] }),
    again() {
      if (!isSent) return this.begin();
      if (isEnded) return undefined;
      return new Request(`${base}/counts?threadId=${encodeURIComponent(threadId)}&runId=r2`);
    },
    take(item) {
      const { type, delta = "", messages = [] } = item as { type: string; delta?: string; messages?: AgUiMessages };
      isSent = true;
      if (type === "MESSAGES_SNAPSHOT") {
        // What the open run has said follows the snapshot.
        const shown = messages.filter(({ role }) => role === "assistant").map(({ content }) => content);
        text = shown.join("");
      }
      if (type === "TEXT_MESSAGE_CONTENT") text += delta;
      isEnded = type === "RUN_FINISHED";
      expect(whole.startsWith(text)).toBe(true);
    },
    get text() {
      return text;
    },
  };
}
type AgUiMessages = readonly { readonly role: string; readonly content: string }[];

const faces: readonly Face[] = [
  { name: "A2A in REST", handler: (runtime) => createA2aHandler(runtime), client: () => a2aClient(false) },
  { name: "A2A in JSON-RPC", handler: (runtime) => createA2aHandler(runtime), client: () => a2aClient(true) },
  { name: "AG-UI", handler: (runtime) => createAgUiHandler(runtime), client: agUiClient },
  { name: "ACP", handler: (runtime) => createAcpHandler(runtime, { extensions: true }), client: acpClient },
];

/** Reads a response up to some byte. Whether it broke off before its end. */
async function read(response: Response, client: Client, bytes: number): Promise<boolean> {
  expect(response.status).toBe(200);
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let [text, left, isFirst] = ["", bytes, true];
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done || value === undefined) return false;
    text += decoder.decode(value.subarray(0, left), { stream: true });
    left -= value.length;
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const [, data = ""] = /^data: (.*)$/m.exec(block) ?? [];
      const [, id] = /^id: (\d+)$/m.exec(block) ?? [];
      if (data !== "") client.take(JSON.parse(data) as Record<string, unknown>, id ? Number(id) : undefined, isFirst);
      isFirst = false;
    }
    if (left > 0) continue;
    await reader?.cancel();
    return true;
  }
}

it.each(faces.map((face) => [face.name, face] as const))(
  "a client that breaks off at any byte and comes back gets everything once, over %s",
  async (_name, { handler: handlerOf, client: clientOf }) => {
    const random: Random = seededRandom();
    const runtime = new AgentRuntime({ retention: { maxRuns: 100 } });
    runtime.register("counts", async function* () {
      for (const word of words) {
        yield word;
        await nextTurn();
      }
    });
    const handler = handlerOf(runtime);
    let breaks = 0;
    for (let serial = 0; breaks < amount(10_000, 200); serial++) {
      const client = clientOf(serial);
      let request: Request | undefined = client.begin();
      while (request !== undefined) {
        // Enough for the longest event at times: one who never gets it does not come to the end.
        const bytes = 1 + random.below(random.chance(0.2) ? 20_000 : 1_500);
        if (await read(await handler(request), client, bytes)) breaks += 1;
        request = client.again();
      }
      expect(client.text).toBe(whole);
    }
    await runtime.close({ drainMs: 0 });
  },
  LONG_MS,
);
