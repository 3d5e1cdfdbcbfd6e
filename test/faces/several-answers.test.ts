import { AgentRuntime } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import { describe, expect, it } from "vitest";
import { z } from "zod";

/* A page answers several questions with one request. The agent may need fewer answers than it gets. */

const schema = z.object({ ok: z.boolean() });
const yes = { ok: true };
const no = { ok: false };

type Item = Readonly<Record<string, unknown>>;

/** A page that has been asked twice, and answers both questions at once. Null declines. */
interface Page {
  answer(first: object | string | null, second: object | string | null): Promise<readonly Item[] | number>;
  run_id: string;
}

function open() {
  const runtime = new AgentRuntime();
  runtime.register("either", async (_input, { ask }) => {
    const enough = new AbortController();
    const asked = ["Ada?", "Grace?"].map((who) => ask(who, { schema, signal: enough.signal }));
    const { ok } = await Promise.race(asked);
    enough.abort(new Error("One of them is enough."));
    await Promise.allSettled(asked);
    return ok ? "yes" : "no";
  });
  runtime.register("both", async (_input, { ask }) => {
    const given = await Promise.all([ask("Ada?", { schema }), ask("Grace?", { schema })]);
    return given.map(({ ok }) => (ok ? "yes" : "no")).join();
  });
  return runtime;
}

async function post(handler: (request: Request) => Promise<Response>, agent: string, body: object) {
  const headers = { "content-type": "application/json" };
  const request = new Request(`http://a/${agent}`, { method: "POST", headers, body: JSON.stringify(body) });
  const response = await handler(request);
  const lines = (await response.text()).split("\n").filter((line) => line.startsWith("data: {"));
  const items = lines.map((line) => JSON.parse(line.slice("data: ".length)) as Item);
  return { status: response.status, items };
}

async function chatPage(runtime: AgentRuntime, agent: string): Promise<Page> {
  const handler = createChatHandler(runtime);
  const user = { id: "m1", role: "user", parts: [{ type: "text", text: "Go" }] };
  const { items } = await post(handler, agent, { id: "c", messages: [user] });
  const calls = items.filter(({ type }) => type === "tool-input-available");
  const [run] = await runtime.listRuns();
  const run_id = run?.run_id ?? "";
  return {
    run_id,
    answer: async (...answers) => {
      const parts = calls.map(({ toolCallId, toolName, input }, index) => {
        const output = answers[index];
        const call = { type: "dynamic-tool", toolCallId, toolName, input };
        if (output === null) return { ...call, state: "output-error", errorText: "No." };
        return { ...call, state: "output-available", output };
      });
      const assistant = { id: run_id, role: "assistant", parts: [{ type: "step-start" }, ...parts] };
      const reply = await post(handler, agent, { id: "c", messages: [user, assistant] });
      return reply.status === 200 ? reply.items : reply.status;
    },
  };
}

/** Errors of AG-UI that have the status 409 in the chat. */
const late: ReadonlySet<unknown> = new Set(["answer_conflict", "not_awaiting"]);

async function agUiPage(runtime: AgentRuntime, agent: string): Promise<Page> {
  const handler = createAgUiHandler(runtime);
  const thread = { threadId: "c", messages: [{ id: "m1", role: "user", content: "Go" }] };
  const { items } = await post(handler, agent, { ...thread, runId: "1" });
  const { interrupts = [] } = (items.at(-1)?.["outcome"] ?? {}) as { interrupts?: { id: string }[] };
  const [run] = await runtime.listRuns();
  return {
    run_id: run?.run_id ?? "",
    answer: async (...answers) => {
      const resume = interrupts.map(({ id: interruptId }, index) => {
        const payload = answers[index];
        return payload === null ? { interruptId, status: "cancelled" } : { interruptId, status: "resolved", payload };
      });
      const reply = await post(handler, agent, { ...thread, runId: "2", resume });
      const failed = reply.items.find(({ type }) => type === "RUN_ERROR");
      return late.has(failed?.["code"]) ? 409 : reply.items;
    },
  };
}

const wordsIn = (items: readonly Item[] | number): unknown =>
  typeof items === "number" ? items : items.map(({ delta }) => delta ?? "").join("");

describe.each([
  ["the chat", chatPage],
  ["AG-UI", agUiPage],
])("over %s", (_face, openPage) => {
  it("an answer that makes another question needless ends the run, and so do both sent again", async () => {
    const runtime = open();
    const page = await openPage(runtime, "either");
    const answered = await page.answer(yes, yes);
    expect(wordsIn(answered)).toBe("yes");
    expect(await page.answer(yes, yes)).toEqual(answered);
    expect((await runtime.getRun(page.run_id)).status).toBe("completed");
  });

  it("an answer to a run that the one before it has made fail is not needed", async () => {
    const runtime = open();
    const page = await openPage(runtime, "both");
    const answered = await page.answer(null, yes);
    expect(JSON.stringify(answered)).toContain("declined");
    expect((await runtime.getRun(page.run_id)).status).toBe("failed");
  });

  it("answers that come when no question is open any more are told so", async () => {
    const runtime = open();
    const page = await openPage(runtime, "both");
    await runtime.cancel(page.run_id, { wait: true });
    expect(wordsIn(await page.answer(yes, yes))).toBe(409);
  });

  it("an answer that was taken beside one that was refused is not changed later", async () => {
    const runtime = open();
    const page = await openPage(runtime, "both");
    await page.answer(yes, { ok: "perhaps" });
    expect(wordsIn(await page.answer(no, yes))).toBe(409);
    expect(wordsIn(await page.answer(yes, no))).toBe("yes,no");
  });
});

it("the chat takes an answer beside one from elsewhere, which its page shows", async () => {
  const runtime = new AgentRuntime();
  runtime.register("both", async (_input, { ask }) => {
    const given = await Promise.all([ask("Ada?"), ask("Grace?")]);
    return given.map((answer) => JSON.stringify(answer)).join();
  });
  const page = await chatPage(runtime, "both");
  const parts = [{ content: "From the " }, { content: "phone." }];
  const message = { role: "user", parts } as const;
  await runtime.resume({ run_id: page.run_id, await_id: "ask#1", await_resume: { type: "message", message } });
  expect(wordsIn(await page.answer("From the tablet.", "Yes."))).toBe(409);
  expect(wordsIn(await page.answer("From the phone.", "Yes."))).toContain("Yes.");
});
