import { useChat } from "@ai-sdk/react";
import type { UIMessage } from "ai";
import { DefaultChatTransport, parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema } from "ai";
import { useChat as useChat5 } from "ai-sdk-react-5";
import { useChat as useChat7 } from "ai-sdk-react-7";
import { createChatHandler } from "cadenza/ai-sdk";
import type { LoadedChat, UseChatOptions } from "cadenza/client";
import { chatOptions, loadChat } from "cadenza/client";
import { act, createElement } from "react";
import { beforeEach, expect, it } from "vitest";
import { reactPage } from "../../harness/react-page.ts";
import { Desk } from "../desk.ts";

type Chat = ReturnType<typeof useChat>;

const API = "http://localhost/chat/desk";
/** Each version takes what the client gives as it is. */
type Hook = (options: UseChatOptions | LoadedChat) => Chat;
const page7: Hook = (options) => useChat7(options) as unknown as Chat;
const versions: Record<string, Hook> = {
  "ai 5": (options) => useChat5(options) as unknown as Chat,
  "ai 6": (options) => useChat(options) as unknown as Chat,
  "ai 7": page7,
};

let desk: Desk;

const render = reactPage();
beforeEach(() => {
  desk = new Desk();
});

const send: typeof fetch = async (url, init) =>
  createChatHandler(desk.runtime, { basePath: "/chat" })(new Request(url, init));

/** A page with the hook. Gives what the hook gave last. */
async function show<Options>(hook: (options: Options) => Chat, options: Options): Promise<() => Chat> {
  let used: Chat | undefined;
  function Page(): null {
    used = hook(options);
    return null;
  }
  await render(createElement(Page));
  return () => used as Chat;
}

/** Does something on the page, and waits for what follows. */
async function does(what: () => unknown): Promise<void> {
  await act(async () => void (await what()));
  await act(() => desk.clock.settle());
  await act(() => desk.clock.settle());
}

function textOf(messages: readonly UIMessage[]): string {
  const parts = messages.flatMap(({ role, parts }) => (role === "assistant" ? parts : []));
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

function questionIn({ messages }: Chat): { readonly toolCallId: string; readonly input: unknown } | undefined {
  const parts = messages.at(-1)?.parts ?? [];
  return parts.find((part) => part.type === "dynamic-tool" && part.state === "input-available") as never;
}

for (const [name, hook] of Object.entries(versions)) {
  it(`useChat of ${name} with chatOptions shows tokens, a question, its answer, a failure and a stop`, async () => {
    const used = await show(hook, chatOptions({ api: API, id: "c1", fetch: send }));
    await does(() => used().sendMessage({ text: "stream" }));
    expect(textOf(used().messages)).toBe("One two three.");
    await does(() => used().sendMessage({ text: "ask" }));
    const { toolCallId = "", input } = questionIn(used()) ?? {};
    expect(input).toMatchObject({ question: "Refund 40 €?" });
    await does(() => used().addToolOutput({ tool: "ask", toolCallId, output: { approved: true } }));
    expect(textOf(used().messages)).toBe("One two three.Looking. Refunded.");
    await does(() => used().sendMessage({ text: "fail" }));
    expect(used().error?.message).toBe("The train is full.");
    void used().sendMessage({ text: "slow" });
    await does(() => undefined);
    expect(used().status).toBe("streaming");
    await does(() => used().stop());
    expect(used().status).toBe("ready");
    const runs = await desk.runtime.listRuns({ agent_name: "desk", limit: 1 });
    expect(runs[0]?.status).toBe("cancelled");
  });
}

for (const [name, hook] of Object.entries(versions))
  for (const where of ["kept", "in the render"])
    it(`useChat of ${name} drops what an attempt at a step has shown when the step is tried again, options ${where}`, async () => {
      const make = (): never => chatOptions({ api: API, id: "c1", fetch: send }) as never;
      const kept = make();
      let used: Chat | undefined;
      const statuses: string[] = [];
      function Page(): null {
        used = hook(where === "kept" ? kept : make());
        statuses.push(used.status);
        return null;
      }
      await render(createElement(Page));
      let isSent = false;
      await does(() => {
        used?.sendMessage({ text: "again" }).then(() => {
          isSent = true;
        });
      });
      expect(textOf(used?.messages ?? [])).toBe("First. One two ");
      expect(isSent).toBe(false);
      statuses.length = 0;
      desk.gate.open();
      for (let turn = 0; turn < 50 && !isSent; turn++) await does(() => desk.clock.advance(1_000));
      expect(textOf(used?.messages ?? [])).toBe("First. One two three. Last.");
      expect(used?.messages).toHaveLength(2);
      expect(used?.error).toBeUndefined();
      // The page never looks as if the run rested.
      expect(statuses.slice(0, -1)).not.toContain("ready");
      expect(statuses.at(-1)).toBe("ready");
      expect(isSent).toBe(true);
      expect(await desk.runtime.listRuns()).toHaveLength(1);
    });

for (const [name, hook] of Object.entries(versions)) {
  it(`useChat of ${name} keeps the failure of a message when its request to follow the chat is answered later`, async () => {
    const arrive: (() => void)[] = [];
    const slowly: typeof fetch = async (url, init) => {
      if (init?.method === "GET") await new Promise<void>((resolve) => arrive.push(resolve));
      return send(url, init);
    };
    const used = await show(hook, chatOptions({ api: API, id: "c1", fetch: slowly }));
    await does(() => used().sendMessage({ text: "fail" }));
    expect(arrive).toHaveLength(1);
    for (const go of arrive) await does(go);
    expect(used()).toMatchObject({ status: "error", error: { message: "The train is full." } });
    expect(textOf(used().messages)).toBe("Half ");
    await does(() => used().clearError());
    void used().sendMessage({ text: "slow" });
    await does(() => undefined);
    await does(() => used().stop());
    expect(used().status).toBe("ready");
  });

  it(`useChat of ${name} comes to rest when its request to follow the chat is answered after a message`, async () => {
    const arrive: (() => void)[] = [];
    const slowly: typeof fetch = async (url, init) => {
      if (init?.method === "GET") await new Promise<void>((resolve) => arrive.push(resolve));
      return send(url, init);
    };
    const used = await show(hook, chatOptions({ api: API, id: "c1", fetch: slowly }));
    let isFollowed = false;
    void used()
      .resumeStream()
      .then(() => {
        isFollowed = true;
      });
    void used().sendMessage({ text: "slow" });
    await does(() => undefined);
    for (const go of arrive) await does(go);
    expect(used().status).toBe("streaming");
    desk.gate.open();
    await does(() => undefined);
    expect([used().status, isFollowed]).toEqual(["ready", true]);
  });
}

// Version 5 is not ready for an answer until it follows the run; version 7 says that it is.
for (const first of ["GET", "POST"])
  it(`useChat of ai 7 takes an answer before it follows the run, and ${first} is answered first`, async () => {
    const asked = await show(page7, chatOptions({ api: API, id: "c1", fetch: send }));
    await does(() => asked().sendMessage({ text: "ask" }));
    const { toolCallId = "" } = questionIn(asked()) ?? {};
    const arrive: (() => void)[] = [];
    const slowly: typeof fetch = async (url, init) => {
      const isHeld = init?.method === "POST" || String(url).includes("/stream");
      const response = isHeld && init?.method === first ? undefined : await send(url, init);
      if (isHeld)
        await new Promise<void>((resolve) => (init?.method === first ? arrive.unshift(resolve) : arrive.push(resolve)));
      return response ?? send(url, init);
    };
    const loaded = await loadChat({ api: API, id: "c1", fetch: slowly });
    const used = await show(page7, loaded);
    void used().addToolOutput({ tool: "ask", toolCallId, output: { approved: true } });
    await does(() => undefined);
    expect(arrive).toHaveLength(2);
    for (const go of arrive) await does(go);
    await does(() => undefined);
    expect(textOf(used().messages)).toBe("Looking. Refunded.");
    expect(used().status).toBe("ready");
  });

it("useChat with the stock transport shows tokens, and takes an answer", async () => {
  const used = await show((options: object) => useChat(options), {
    id: "c1",
    transport: new DefaultChatTransport({ api: API, fetch: send }),
  });
  await does(() => used().sendMessage({ text: "ask" }));
  const { toolCallId = "" } = questionIn(used()) ?? {};
  await does(() => used().addToolOutput({ tool: "ask", toolCallId, output: { approved: false } }));
  // The stock transport sends no answer by itself.
  await does(() => used().sendMessage());
  expect(textOf(used().messages)).toBe("Looking. Refused.");
});

it("readUIMessageStream of the AI SDK reads a response", async () => {
  const message = { id: "m1", role: "user", parts: [{ type: "text", text: "artifacts" }] };
  const body = JSON.stringify({ id: "c1", messages: [message], trigger: "submit-message" });
  const { body: stream } = await send(API, { method: "POST", headers: { "content-type": "application/json" }, body });
  const chunks = parseJsonEventStream({ stream: stream as ReadableStream<Uint8Array>, schema: uiMessageChunkSchema });
  const valid = chunks.pipeThrough(
    new TransformStream({
      transform(result, controller) {
        if (!result.success) throw result.error;
        controller.enqueue(result.value);
      },
    }),
  );
  let last: UIMessage | undefined;
  for await (const read of readUIMessageStream({ stream: valid })) last = read;
  expect(last?.parts.map((part) => part.type)).toEqual(["step-start", "text", "file", "text"]);
  expect(textOf(last === undefined ? [] : [last])).toBe("Here: Done.");
});
