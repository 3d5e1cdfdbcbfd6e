import type { Message } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import { chatOptions } from "cadenza/client";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { chatWith } from "./chat-visitor.ts";

/* One key for each action of a user: what is sent again, because its response was lost, is done once. */

interface Answer {
  readonly status: number;
  readonly run: string | null;
  /** The chunks or events of its stream. */
  readonly items: readonly Record<string, unknown>[];
}

/** A desk that pays once for each answer. */
function open(isDurable: boolean) {
  const runtime = new AgentRuntime(isDurable ? { store: durable(new MemoryStore()) } : {});
  const paid: string[] = [];
  const histories: string[][] = [];
  runtime.register("desk", { durable: isDurable }, async function* (input, { ask, session, step }) {
    histories.push((await session.history()).map(textOf));
    const asked = textOf(input.at(-1));
    if (!/^(pay|yes)/.test(asked)) {
      yield `You said ${asked}.`;
      return;
    }
    for (const question of asked === "pay twice" ? ["Pay 40 €?", "Pay 60 €?"] : ["Pay 40 €?"]) {
      const answer = textOf((await ask(question)) as Message);
      await step(`pay ${question}`, () => {
        paid.push(answer);
      });
      if (asked === "pay and fail") throw new Error("The bank is down.");
      yield `Paid: ${answer}.`;
    }
  });
  const handlers = { "/chat": createChatHandler(runtime, { basePath: "/chat" }), "/ag": createAgUiHandler(runtime) };
  const post = async (at: "/chat" | "/ag", body: object, headers: object = {}): Promise<Answer> => {
    const request = new Request(`http://a${at === "/chat" ? at : ""}/desk`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    const response = await handlers[at](request);
    const text = await response.text();
    const lines = text.split("\n").filter((line) => line.startsWith("data: {"));
    const items = lines.map((line) => JSON.parse(line.slice("data: ".length)) as Record<string, unknown>);
    return { status: response.status, run: response.headers.get("run-id"), items };
  };
  const messages = async (chat: string) => {
    const response = await handlers["/chat"](new Request(`http://a/chat/desk/${chat}/messages`));
    return ((await response.json()) as { messages: { role: string; parts: { text?: string }[] }[] }).messages;
  };
  const history = async (chat: string) => (await runtime.getSession(runtime.sessionId(chat))).history;
  return { runtime, paid, histories, post, messages, history, chat: handlers["/chat"] };
}

function textOf(message: Message | undefined): string {
  return message?.parts.map(({ content }) => content ?? "").join("") ?? "";
}

const said = (id: string, text: string) => ({ id, role: "user", parts: [{ type: "text", text }] });
const wordsIn = ({ items }: Answer): string =>
  items.map(({ delta, input }) => delta ?? (input as { question?: string } | undefined)?.question ?? "").join("");

describe.each([
  ["in memory", false],
  ["durable", true],
] as const)("over the chat, %s,", (_name, isDurable) => {
  it("an answer in words that is sent again is given once, whatever has become of its run", async () => {
    const { runtime, paid, post } = open(isDurable);
    await post("/chat", { id: "c", messages: [said("m1", "pay twice")] });
    const yes = { id: "c", messages: [said("m1", "pay twice"), said("m2", "yes")] };
    const first = await post("/chat", yes);
    const second = await post("/chat", yes);
    expect([wordsIn(first), paid]).toEqual(["Paid: yes.Pay 60 €?", ["yes"]]);
    expect(second).toEqual(first);
    await post("/chat", { id: "c", messages: [said("m3", "yes, that too")] });
    const last = await post("/chat", yes);
    expect([last.run, paid]).toEqual([first.run, ["yes", "yes, that too"]]);
    expect(wordsIn(last)).toBe("Paid: yes.Pay 60 €?Paid: yes, that too.");
    expect(await runtime.listRuns()).toHaveLength(1);
  });

  it("an answer in words whose run has failed begins no other run", async () => {
    const { runtime, paid, post } = open(isDurable);
    await post("/chat", { id: "c", messages: [said("m1", "pay and fail")] });
    const yes = { id: "c", messages: [said("m2", "yes")] };
    const answers = [await post("/chat", yes), await post("/chat", yes), await post("/chat", yes)];
    for (const { items } of answers) expect(items.map(({ type }) => type)).toContain("error");
    expect([paid, await runtime.listRuns()]).toMatchObject([["yes"], [{ status: "failed" }]]);
  });

  it("two answers in words at the same time are one", async () => {
    const { runtime, paid, post } = open(isDurable);
    await post("/chat", { id: "c", messages: [said("m1", "pay twice")] });
    const yes = { id: "c", messages: [said("m2", "yes")] };
    const answers = await Promise.all([post("/chat", yes), post("/chat", yes), post("/chat", yes)]);
    expect(new Set(answers.map(({ run }) => run)).size).toBe(1);
    expect([paid, (await runtime.listRuns()).length]).toEqual([["yes"], 1]);
  });

  it("a message whose run is followed by others is not answered with another run", async () => {
    const { runtime, paid, post } = open(isDurable);
    await post("/chat", { id: "c", messages: [said("m1", "pay")] });
    await post("/chat", { id: "c", messages: [said("m2", "yes")] });
    for (const id of ["m3", "m4", "m5"]) await post("/chat", { id: "c", messages: [said(id, "hi")] });
    await post("/chat", { id: "c", messages: [said("m2", "yes")] });
    expect([paid, (await runtime.listRuns()).length]).toEqual([["yes"], 4]);
  });

  it.each([
    ["short", "m1"],
    ["long", "x".repeat(255)],
    ["odd", `"\ud800\u0000${"💥".repeat(100)}`],
  ])("a message with a %s id begins one run", async (_kind, id) => {
    const { runtime, post } = open(isDurable);
    const body = { id: "c".repeat(200), messages: [said(id, "hi")] };
    const runs = await Promise.all([post("/chat", body), post("/chat", body)]);
    runs.push(await post("/chat", body));
    expect(runs.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect([new Set(runs.map(({ run }) => run)).size, (await runtime.listRuns()).length]).toEqual([1, 1]);
  });

  it("another message under the id of an earlier one is refused", async () => {
    const { paid, post } = open(isDurable);
    await post("/chat", { id: "c", messages: [said("m1", "pay twice")] });
    expect((await post("/chat", { id: "c", messages: [said("m1", "hi")] })).status).toBe(409);
    await post("/chat", { id: "c", messages: [said("m2", "yes")] });
    expect((await post("/chat", { id: "c", messages: [said("m2", "no")] })).status).toBe(409);
    expect(paid).toEqual(["yes"]);
  });

  it("a reply as the output of a call that is sent again is followed, and another one refused", async () => {
    const { runtime, paid, post } = open(isDurable);
    const { run } = await post("/chat", { id: "c", messages: [said("m1", "pay twice")] });
    const reply = (question: string, output: string) => ({
      id: "c",
      messages: [
        said("m1", "pay twice"),
        {
          id: run,
          role: "assistant",
          parts: [
            { type: "step-start" },
            {
              type: "dynamic-tool",
              toolName: "ask",
              toolCallId: `${run}/ask#1`,
              state: "output-available",
              output: "yes",
            },
            { type: "step-start" },
            {
              type: "dynamic-tool",
              toolName: "ask",
              toolCallId: `${run}/${question}`,
              state: "output-available",
              output,
            },
          ],
        },
      ],
    });
    const first = await post("/chat", reply("ask#1", "yes"));
    expect(wordsIn(first)).toBe("Paid: yes.Pay 60 €?");
    expect(await post("/chat", reply("ask#1", "yes"))).toEqual(first);
    expect((await post("/chat", reply("ask#1", "no"))).status).toBe(409);
    const second = await post("/chat", reply("ask#2", "that too"));
    expect(wordsIn(second)).toBe("Paid: that too.");
    expect(await post("/chat", reply("ask#2", "that too"))).toEqual(second);
    expect((await post("/chat", reply("ask#3", "yes"))).status).toBe(409);
    expect([paid, (await runtime.listRuns()).length]).toEqual([["yes", "that too"], 1]);
  });

  it("regenerate begins one run for each key, and for each message of the assistant that it takes back", async () => {
    const { runtime, post, history } = open(isDurable);
    const first = await post("/chat", { id: "c", messages: [said("m1", "hi")] });
    const again = { id: "c", messages: [said("m1", "hi")], trigger: "regenerate-message" };
    const key = { "idempotency-key": "k1" };
    const second = await Promise.all([post("/chat", again, key), post("/chat", again, key)]);
    second.push(await post("/chat", again, key));
    const named = { ...again, messageId: second[0]?.run };
    const third = [await post("/chat", named), await post("/chat", named)];
    const fourth = await post("/chat", again, { "idempotency-key": "k2" });
    const runs = [[first], second, third, [fourth]].map((group) => new Set(group.map(({ run }) => run)));
    expect(runs.map(({ size }) => size)).toEqual([1, 1, 1, 1]);
    expect([(await runtime.listRuns()).length, (await history("c")).length]).toEqual([4, 2]);
  });

  it("an edited message that is sent again begins one run", async () => {
    const { runtime, post, history } = open(isDurable);
    const edit = (text: string) =>
      post("/chat", { id: "c", messages: [said("m1", text)], trigger: "submit-message", messageId: "m1" });
    await post("/chat", { id: "c", messages: [said("m1", "a")] });
    const runs: Answer[] = [];
    for (const text of ["b", "b", "a", "a", "b"]) runs.push(await edit(text));
    const [b, sameB, a, sameA, otherB] = runs.map(({ run }) => run);
    expect([sameB, sameA, otherB === b, a === b]).toEqual([b, a, false, false]);
    expect((await runtime.listRuns()).length).toBe(4);
    expect((await history("c")).map(textOf)).toEqual(["b", "You said b."]);
  });

  it("a message whose run has failed may be sent another time as an edit", async () => {
    const { runtime, post } = open(isDurable);
    await post("/chat", { id: "c", messages: [said("m1", "pay and fail")] });
    await post("/chat", { id: "c", messages: [said("m2", "yes")] });
    const edit = { id: "c", messages: [said("m1", "pay and fail")], trigger: "submit-message", messageId: "m1" };
    expect(wordsIn(await post("/chat", edit))).toBe("Pay 40 €?");
    expect(await runtime.listRuns()).toMatchObject([{ status: "awaiting" }, { status: "failed" }]);
  });
});

it("a page with chatOptions pays once for a yes, however many of its responses are lost", async () => {
  const { runtime, paid, chat } = open(false);
  let toLose = 0;
  const keys: (string | null)[] = [];
  const fetch: typeof globalThis.fetch = async (url, init) => {
    const request = new Request(url, init);
    if (request.method === "POST") keys.push(request.headers.get("idempotency-key"));
    const response = await chat(request);
    if (request.method !== "POST" || toLose === 0) return response;
    toLose -= 1;
    await response.text();
    throw new TypeError("fetch failed");
  };
  const page = chatWith(chatOptions({ api: "http://a/chat/desk", id: "c", fetch, backoffMs: 1 }));
  await page.sendMessage({ text: "pay twice" });
  toLose = 3;
  await page.sendMessage({ text: "yes" });
  expect([page.status, paid]).toEqual(["ready", ["yes"]]);
  const shown = page.messages.at(-1)?.parts.map((part) => (part.type === "text" ? part.text : part.type));
  expect(shown).toEqual(["step-start", "Paid: yes.", "dynamic-tool"]);
  toLose = 2;
  await page.regenerate();
  expect((await runtime.listRuns()).length).toBe(2);
  // One key for each action, the same for each time that it is sent.
  expect([keys.length, new Set(keys).size, keys.includes(null)]).toEqual([8, 3, false]);
});

describe.each([
  ["in memory", false],
  ["durable", true],
] as const)("over AG-UI, %s,", (_name, isDurable) => {
  const input = (runId: string, ...messages: readonly object[]) => ({ threadId: "t", runId, messages });
  const user = (id: string, content: string) => ({ id, role: "user", content });
  const outcomeOf = ({ items }: Answer) => items.at(-1)?.["outcome"] as { type: string; interrupts: { id: string }[] };

  it("a message begins one run, under whatever runId it is sent", async () => {
    const { runtime, post } = open(isDurable);
    const both = await Promise.all([
      post("/ag", input("r1", user("m1", "hi"))),
      post("/ag", input("r2", user("m1", "hi"))),
    ]);
    const later = await post("/ag", input("r3", user("m1", "hi")));
    expect(new Set([...both, later].map(({ run }) => run)).size).toBe(1);
    expect([later.items[0]?.["runId"], wordsIn(later)]).toEqual(["r3", "You said hi."]);
    const other = await post("/ag", input("r4", user("m1", "ho")));
    expect(other.items.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "idempotency_conflict" });
    expect(await runtime.listRuns()).toHaveLength(1);
  });

  it("a message that is sent again while its run asks shows the question again", async () => {
    const { runtime, post } = open(isDurable);
    const first = await post("/ag", input("r1", user("m1", "pay")));
    const again = await post("/ag", input("r2", user("m1", "pay")));
    expect([outcomeOf(again), again.run]).toEqual([outcomeOf(first), first.run]);
    const other = await post("/ag", input("r3", user("m1", "pay"), user("m2", "yes")));
    expect(other.items.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "interrupts_open" });
    expect(await runtime.listRuns()).toHaveLength(1);
  });

  it("a resume that is sent again is followed, also when the run asks something else by then", async () => {
    const { paid, post } = open(isDurable);
    const { interrupts } = outcomeOf(await post("/ag", input("r1", user("m1", "pay twice"))));
    const resume = (runId: string, payload: string) => ({
      ...input(runId, user("m1", "pay twice")),
      resume: interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload })),
    });
    const first = await post("/ag", resume("r2", "yes"));
    const again = await post("/ag", resume("r3", "yes"));
    expect([wordsIn(again), outcomeOf(again)]).toEqual([wordsIn(first), outcomeOf(first)]);
    expect(outcomeOf(first)).toMatchObject({ type: "interrupt", interrupts: [{ message: "Pay 60 €?" }] });
    const other = await post("/ag", resume("r4", "no"));
    expect(other.items.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "answer_conflict" });
    expect(paid).toEqual(["yes"]);
  });

  it("messages that the thread has are not given to the agent a second time", async () => {
    const { histories, post, history } = open(isDurable);
    await post("/ag", input("r1", user("m1", "a")));
    // The client has not got the response, and so sends no message of the assistant.
    await post("/ag", input("r2", user("m1", "a"), user("m2", "b")));
    expect((await history("t")).map(textOf)).toEqual(["a", "You said a.", "b", "You said b."]);
    expect(histories.at(-1)).toEqual(["a", "You said a."]);
  });
});
