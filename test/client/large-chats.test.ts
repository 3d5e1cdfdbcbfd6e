import type { UIMessage } from "ai";
import { AgentRuntime } from "cadenza";
import { createChatHandler } from "cadenza/ai-sdk";
import { chatOptions, loadChat } from "cadenza/client";
import { beforeEach, expect, it } from "vitest";
import { chatWith } from "../faces/chat-visitor.ts";

/* Chats that are larger than any request may be: a page sends its last message alone. */

let runtime: AgentRuntime;
/** The lengths of the bodies that the page has sent. */
let lengths: number[];

beforeEach(() => {
  lengths = [];
  runtime = new AgentRuntime().register("desk", async (input, { session }) => {
    const history = await session.history();
    const parts = [...history, ...input].flatMap((message) => message.parts);
    const pictures = parts.filter(({ content_type }) => content_type === "image/png");
    return `${history.length} messages and ${pictures.length} pictures.`;
  });
});

const send: typeof fetch = (url, init) => {
  if (init?.method === "POST") lengths.push((init.body as string).length);
  return createChatHandler(runtime, { basePath: "/chat" })(new Request(url, init));
};
const options = { api: "http://localhost/chat/desk", id: "c1", fetch: send };

const lastText = (messages: readonly UIMessage[]): unknown =>
  messages.at(-1)?.parts.find((part) => part.type === "text")?.text;

it("a chat of 5,000 messages is loaded and goes on", async () => {
  const history = Array.from({ length: 5_000 }, (_, index) => ({
    role: index % 2 === 0 ? "user" : "agent",
    parts: [{ content_type: "text/plain", content: `This is message ${index}.` }],
  }));
  await runtime.createRun(
    { agent_name: "desk", input: "Begin", mode: "sync" },
    { sessionKey: "c1", session: { history } },
  );
  const loaded = await loadChat(options);
  expect(loaded.messages).toHaveLength(5_002);
  const page = chatWith(loaded);
  page.messages = loaded.messages;
  await page.sendMessage({ text: "Go on" });
  expect([page.error, lastText(page.messages)]).toEqual([undefined, "5002 messages and 0 pictures."]);
  expect(Math.max(...lengths)).toBeLessThan(1_000);
});

it("a chat with ten pictures of 3 MB goes on, though no request may have so much", async () => {
  const page = chatWith(chatOptions(options));
  const url = `data:image/png;base64,${"iVBOR///".repeat(500_000)}`;
  for (let nth = 1; nth <= 10; nth++) {
    const files = [{ type: "file", mediaType: "image/png", filename: `${nth}.png`, url } as const];
    await page.sendMessage({ text: "Look", files });
    expect([page.error, lastText(page.messages)]).toEqual([
      undefined,
      `${2 * (nth - 1)} messages and ${nth} pictures.`,
    ]);
  }
  await page.sendMessage({ text: "Go on" });
  expect([page.error, lastText(page.messages)]).toEqual([undefined, "20 messages and 10 pictures."]);
  expect(lengths.map((length) => Math.round(length / 1_000_000))).toEqual([...Array<number>(10).fill(4), 0]);
});
