import type { UIMessage } from "ai";
import { createChatHandler } from "cadenza/ai-sdk";
import { chatOptions, loadChat } from "cadenza/client";
import { beforeEach, expect, it } from "vitest";
import { chatWith } from "../faces/chat-visitor.ts";
import { Desk } from "../faces/desk.ts";

/* What a page takes back with `setMessages`, as it tells the server. test/browser has it with the stock `useChat`. */

let desk: Desk;
/** What the messages named as taken back. */
let named: unknown[];

beforeEach(() => {
  desk = new Desk();
  named = [];
});

const send: typeof fetch = (url, init) => {
  if (init?.method === "POST") named.push((JSON.parse(init.body as string) as { messageId?: unknown }).messageId);
  return createChatHandler(desk.runtime, { basePath: "/chat" })(new Request(url, init));
};
const options = { api: "http://localhost/chat/desk", id: "c1", fetch: send };
const history = async (): Promise<readonly string[]> =>
  (await desk.runtime.getSession(desk.runtime.sessionId("c1"))).history.map(({ parts }) => parts[0]?.content ?? "");

it("a page that takes messages back after a reload names the first of them", async () => {
  const page = chatWith(chatOptions(options));
  for (const text of ["a", "b"]) await page.sendMessage({ text });
  const { messages, ...loaded } = await loadChat(options);
  const again = chatWith(loaded);
  again.messages = messages.slice(0, 2);
  await again.sendMessage({ text: "c" });
  await again.sendMessage({ text: "d" });
  expect(named).toEqual([undefined, undefined, messages[2]?.id, undefined]);
  expect(await history()).toEqual(["a", "You said a.", "c", "You said c.", "d", "You said d."]);
});

it("a message that the server has not got is not named", async () => {
  const page = chatWith(
    chatOptions({ ...options, attempts: 1, fetch: (url, init) => (isAway ? fail() : send(url, init)) }),
  );
  const fail = (): never => {
    throw new TypeError("away");
  };
  let isAway = false;
  await page.sendMessage({ text: "a" });
  isAway = true;
  await page.sendMessage({ text: "b" });
  expect(page.status).toBe("error");
  isAway = false;
  page.messages = page.messages.slice(0, 2);
  await page.sendMessage({ text: "c" });
  expect(named).toEqual([undefined, undefined]);
});

it("messages in the middle are not taken back without those that follow", async () => {
  const page = chatWith(chatOptions(options));
  for (const text of ["a", "b"]) await page.sendMessage({ text });
  const [first, second, ...rest] = page.messages;
  page.messages = rest;
  await page.sendMessage({ text: "c" });
  expect(page.error?.message).toContain("in the middle of the chat");
  page.messages = [first, second, ...rest] as UIMessage[];
  await page.sendMessage({ text: "d" });
  expect(named).toEqual([undefined, undefined, undefined]);
  expect(await history()).toHaveLength(6);
});

it("two pages with the same options take back none of each other's messages", async () => {
  const shared = chatOptions(options);
  const [page, other] = [chatWith(shared), chatWith(shared)];
  await page.sendMessage({ text: "a" });
  await other.sendMessage({ text: "b" });
  await page.sendMessage({ text: "c" });
  await other.regenerate();
  expect(named.slice(0, 3)).toEqual([undefined, undefined, undefined]);
  expect(await history()).toEqual(["a", "You said a.", "b", "You said b."]);
});

it("an answer is sent whatever the page has taken back", async () => {
  const page = chatWith(chatOptions(options));
  await page.sendMessage({ text: "a" });
  await page.sendMessage({ text: "ask" });
  page.messages = page.messages.slice(2);
  const part = page.messages.at(-1)?.parts.find(({ type }) => type === "dynamic-tool") as { toolCallId: string };
  await page.addToolOutput({ tool: "ask", toolCallId: part.toolCallId, output: { approved: true } });
  while (page.status !== "ready" || !JSON.stringify(page.messages).includes("Refunded.")) await desk.clock.turn();
  expect((await history()).slice(0, 3)).toEqual(["a", "You said a.", "ask"]);
});
