import { AgentRuntime } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import { expect, it } from "vitest";
import { amount, LONG_MS, seededRandom } from "../../harness/fuzz.ts";
import { nextTurn } from "../../harness/promises.ts";
import type { Random } from "../../harness/random.ts";

const headers = { "content-type": "application/json", "a2a-version": "1.0" };

interface Item {
  readonly task?: {
    readonly id: string;
    readonly status: { readonly state: string };
    readonly artifacts?: readonly { readonly parts: readonly { readonly text: string }[] }[];
  };
  readonly statusUpdate?: { readonly status: { readonly state: string } };
  readonly artifactUpdate?: { readonly artifact: { readonly parts: readonly { readonly text: string }[] } };
}

/** What a client has got, over all of its connections. */
class Subscriber {
  readonly ids: number[] = [];
  taskId = "";
  text = "";
  state = "";
  breaks = 0;

  /** Takes a response up to some byte. Whether it has come to its end. */
  async take(response: Response, bytes: number): Promise<boolean> {
    expect(response.status).toBe(200);
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    let left = bytes;
    let text = "";
    let isFirst = true;
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      if (done || value === undefined) return true;
      text += decoder.decode(value.subarray(0, left), { stream: true });
      left -= value.length;
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        this.#note(block, isFirst && this.ids.length > 0);
        isFirst = false;
      }
      if (left > 0) continue;
      this.breaks += 1;
      await reader?.cancel();
      return false;
    }
  }

  #note(block: string, isAgain: boolean): void {
    const id = Number(/^id: (\d+)$/m.exec(block)?.[1]);
    const { task, statusUpdate, artifactUpdate } = JSON.parse(/^data: (.*)$/m.exec(block)?.[1] ?? "") as Item;
    if (task !== undefined) {
      this.taskId = task.id;
      const shown = (task.artifacts ?? []).flatMap(({ parts }) => parts.map(({ text }) => text)).join("");
      // The task is shown as it was at the last event that the client has.
      if (isAgain) expect([id, shown]).toEqual([this.ids.at(-1), this.text]);
      this.state = task.status.state;
      if (isAgain) return;
    }
    this.ids.push(id);
    this.text += artifactUpdate?.artifact.parts.map(({ text }) => text).join("") ?? "";
    this.state = statusUpdate?.status.state ?? this.state;
  }
}

/** Reads a task over connections that break off, until it has ended. */
async function read(handler: (request: Request) => Promise<Response>, random: Random): Promise<Subscriber> {
  const subscriber = new Subscriber();
  const message = { messageId: "m1", role: "ROLE_USER", parts: [{ text: "count" }] };
  const url = "http://localhost/counts";
  const some = (): number => 1 + random.below(1_500);
  const sent = new Request(`${url}/message:stream`, { method: "POST", headers, body: JSON.stringify({ message }) });
  const response = await handler(sent);
  // A client that breaks off before it has the task knows no task to come back to.
  let isEnd = await subscriber.take(response, 500 + some());
  while (!isEnd) {
    const last = { "last-event-id": String(subscriber.ids.at(-1)) };
    const again = new Request(`${url}/tasks/${subscriber.taskId}:subscribe`, { headers: { ...headers, ...last } });
    const next = await handler(again);
    if (next.status === 400) {
      await next.text();
      break;
    }
    isEnd = await subscriber.take(next, some());
  }
  return subscriber;
}

it(
  "a subscriber that breaks off at any byte and comes back gets each event once",
  async () => {
    const random = seededRandom();
    const runtime = new AgentRuntime({ retention: { maxRuns: 100 } });
    const words = Array.from({ length: 30 }, (_, index) => `wörd${index} `);
    runtime.register("counts", async function* () {
      for (const word of words) {
        yield word;
        await nextTurn();
      }
    });
    const handler = createA2aHandler(runtime);
    let breaks = 0;
    while (breaks < amount(10_000, 300)) {
      const subscriber = await read(handler, random);
      breaks += subscriber.breaks;
      expect(subscriber.text).toBe(words.join(""));
      expect(subscriber.state).toBe("TASK_STATE_COMPLETED");
      const { ids } = subscriber;
      expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
    }
    await runtime.close();
  },
  LONG_MS,
);
