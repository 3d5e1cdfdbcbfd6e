import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { StreamResponse, Task } from "@a2a-js/sdk";
import { TaskState } from "@a2a-js/sdk";
import type { Client } from "@a2a-js/sdk/client";
import { AgentRuntime } from "cadenza";
import { createA2aNodeListener } from "cadenza/a2a";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as z from "zod";
import type { Binding } from "../a2a-visitor.ts";
import { clientOf, sending, textOf } from "../a2a-visitor.ts";

/* Each operation of the official client, over a socket. */

const runtime = new AgentRuntime();
runtime.register("desk", { description: "Refunds." }, async function* (_input, { ask }) {
  yield "Looking. ";
  const { approved } = await ask("Refund 40 €?", { schema: z.object({ approved: z.boolean() }) });
  yield approved ? "Refunded." : "Refused.";
});
const server = createServer(createA2aNodeListener(runtime, { basePath: "/a2a", root: "desk" }));
let url = "";

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/a2a/`;
});

afterAll(async () => {
  await runtime.close({ drainMs: 0 });
  server.closeAllConnections();
  server.close();
});

const hi = { $case: "text", value: "I want my money back." } as const;
const yes = { $case: "data", value: { approved: true } } as const;

async function all(items: AsyncIterable<StreamResponse>): Promise<readonly StreamResponse[]> {
  const list: StreamResponse[] = [];
  for await (const item of items) list.push(item);
  return list;
}

describe.each(["JSONRPC", "HTTP+JSON"] satisfies Binding[])("the official client over %s", (binding) => {
  const open = (): Promise<Client> => clientOf(url, binding, fetch);

  it("reads the card, sends, gets, answers and lists", async () => {
    const client = await open();
    expect(await client.getAgentCard()).toMatchObject({ name: "desk", description: "Refunds.", version: "1.0.0" });
    const contextId = `talk ${binding}`;
    const asked = (await client.sendMessage(sending([hi], { contextId }))) as Task;
    expect(asked).toMatchObject({ contextId, status: { state: TaskState.TASK_STATE_INPUT_REQUIRED } });
    expect(textOf(asked.status?.message?.parts.slice(0, 1))).toBe("Refund 40 €?");
    const got = await client.getTask({ tenant: "", id: asked.id });
    expect(got).toEqual(asked);
    const done = (await client.sendMessage(sending([yes], { contextId, taskId: asked.id }))) as Task;
    expect(done.status?.state).toBe(TaskState.TASK_STATE_COMPLETED);
    expect(done.artifacts.map(({ parts }) => textOf(parts)).join("")).toBe("Looking. Refunded.");
    const query = { tenant: "", contextId, status: 0, pageToken: "", statusTimestampAfter: undefined };
    const listed = await client.listTasks({ ...query, includeArtifacts: true });
    expect(listed).toMatchObject({ nextPageToken: "", pageSize: 50, totalSize: 1, tasks: [{ id: asked.id }] });
  });

  it("streams, follows again and cancels", async () => {
    const client = await open();
    const items = await all(client.sendMessageStream(sending([hi])));
    expect(items.map(({ payload }) => payload?.$case)).toEqual([
      "task",
      "statusUpdate",
      "artifactUpdate",
      "statusUpdate",
    ]);
    const { id } = (items[0]?.payload?.value ?? {}) as Task;
    const followed: StreamResponse[] = [];
    for await (const item of client.resubscribeTask({ tenant: "", id })) {
      followed.push(item);
      if (followed.length === 1) {
        const cancelled = await client.cancelTask({ tenant: "", id, metadata: undefined });
        expect(cancelled.status?.state).toBe(TaskState.TASK_STATE_CANCELED);
      }
    }
    expect(followed.map(({ payload }) => payload?.$case)).toEqual(["task", "statusUpdate"]);
    expect(followed.at(-1)?.payload?.value).toMatchObject({ status: { state: TaskState.TASK_STATE_CANCELED } });
  });

  it("is refused by the errors of A2A", async () => {
    const client = await open();
    const id = "00000000-0000-4000-8000-000000000000";
    await expect(client.getTask({ tenant: "", id })).rejects.toThrow("The task does not exist");
    await expect(client.cancelTask({ tenant: "", id, metadata: undefined })).rejects.toThrow("does not exist");
    const push = { tenant: "", taskId: id, id: "", url: "https://example.com", token: "", authentication: undefined };
    // The client reads in the card that there are none.
    await expect((async () => client.createTaskPushNotificationConfig(push))()).rejects.toThrow(/push/i);
    await expect(all(client.resubscribeTask({ tenant: "", id }))).rejects.toThrow("does not exist");
  });
});
