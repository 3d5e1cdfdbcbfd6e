import type { UIMessage } from "ai";
import { createChatHandler } from "cadenza/ai-sdk";
import { chatOptions, createClient } from "cadenza/client";
import { createAcpHandler } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { chatWith } from "../faces/chat-visitor.ts";
import { Desk } from "../faces/desk.ts";

type Send = (request: Request) => Promise<Response>;

/** A network that breaks each body of the first `times` streams off after some events. */
function cutting(send: Send, after: number, times: number): { fetch: typeof fetch; readonly cuts: number } {
  let cuts = 0;
  const wire: typeof fetch = async (url, init) => {
    const response = await send(new Request(url, init));
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
    if (!isStream || response.body === null || cuts >= times) return response;
    cuts += 1;
    const text = await response.text();
    const blocks = text.split("\n\n").slice(0, after);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(blocks.map((block) => `${block}\n\n`).join("")));
      },
      pull: (controller) => controller.error(new TypeError("terminated")),
    });
    return new Response(body, response);
  };
  return {
    fetch: wire,
    get cuts() {
      return cuts;
    },
  };
}

const inputs = ["stream", "artifacts", "ask", "fail"];

describe("a chat page with chatOptions", () => {
  async function talk(input: string, after: number, times: number): Promise<{ messages: unknown; cuts: number }> {
    const desk = new Desk();
    const handler = createChatHandler(desk.runtime, { basePath: "/chat" });
    const network = cutting(handler, after, times);
    const page = chatWith(
      chatOptions({ api: "http://localhost/chat/desk", id: "c", fetch: network.fetch, backoffMs: 0 }),
    );
    await page.sendMessage({ text: input });
    if (input === "ask") {
      const part = page.messages.at(-1)?.parts.find(({ type }) => type === "dynamic-tool") as { toolCallId: string };
      await page.addToolOutput({ tool: "ask", toolCallId: part.toolCallId, output: { approved: true } });
      while (page.status !== "ready" || textOf(page.messages) !== "Looking. Refunded.") await desk.clock.turn();
    }
    return { messages: shown(page.messages), cuts: network.cuts };
  }

  it.each(inputs)("%s: shows the same, wherever the connection breaks off", async (input) => {
    const whole = await talk(input, 0, 0);
    let isCut = true;
    for (let after = 0; isCut && after < 40; after++) {
      const broken = await talk(input, after, 1);
      isCut = broken.cuts > 0;
      expect({ after, messages: broken.messages }).toEqual({ after, messages: whole.messages });
    }
  });
});

describe("the events of a run", () => {
  it.each(inputs)("%s: come once each, wherever the connection breaks off", async (input) => {
    const desk = new Desk();
    const handler = createAcpHandler(desk.runtime, { extensions: true });
    const read = async (run_id: string, after: number, times: number): Promise<unknown[]> => {
      const network = cutting(handler, after, times);
      const client = createClient({ url: "http://localhost", fetch: network.fetch, backoffMs: 0 });
      const events: unknown[] = [];
      for await (const event of client.attach("desk", run_id).events({ detail: true })) events.push(event);
      return events;
    };
    const client = createClient({ url: "http://localhost", fetch: (url, init) => handler(new Request(url, init)) });
    const run = await client.run("desk", input);
    await desk.clock.settle();
    if (input === "ask") await run.answer("approval", { approved: true });
    const whole = await read(run.run_id, 0, 0);
    expect(whole.length).toBeGreaterThan(3);
    for (let after = 0; after <= whole.length; after++) expect(await read(run.run_id, after, 1)).toEqual(whole);
  });
});

function textOf(messages: readonly UIMessage[]): string {
  return (messages.at(-1)?.parts ?? []).map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** What a page shows, without the ids of the run. */
function shown(messages: readonly UIMessage[]): unknown {
  const parts = messages.flatMap((message) => message.parts).filter(({ type }) => type !== "step-start");
  return JSON.parse(JSON.stringify(parts).replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "run"));
}
