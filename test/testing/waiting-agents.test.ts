import type { AgentFunction } from "cadenza";
import { defineAgent } from "cadenza";
import type { CrashOptions } from "cadenza/testing";
import { decline, everyCrash, everyInterruption } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import * as z from "zod";

/* Agents that wait for time and for messages, in all their interruptions and crashes. */

const order: AgentFunction = async function* (_input, { ask, receive, sleep }) {
  yield "Waiting. ";
  const { cents } = await receive("payment", { schema: z.object({ cents: z.int() }), timeoutMs: 3_600_000 });
  await sleep("24h");
  const gift = await ask("A gift?").catch(({ code }) => code);
  const note = await receive("note", { timeoutMs: 60_000, default: "no note" });
  yield `${cents}, ${gift}, ${note}`;
};
const options: CrashOptions = {
  answers: [decline("Not today.")],
  messages: [{ name: "payment", data: { cents: 900 } }],
};
const wheres = (report: { readonly results: readonly { readonly kind: string; readonly where: string }[] }): string[] =>
  report.results.map(({ kind, where }) => `${kind}: ${where}`);

it("an agent is crashed in and around each sleep, receive and message, and around a question that is declined", async () => {
  const report = await everyCrash(order, "", {
    ...options,
    after: ({ output }) => {
      const text = output.flatMap(({ parts }) => parts.map(({ content }) => content)).join("");
      return text === "Waiting. 900, answer_declined, no note" ? undefined : text;
    },
  });
  expect(report.problems).toEqual([]);
  expect(wheres(report)).toEqual([
    "none: left alone",
    "crash: crashed before it began",
    "crash: crashed while receive:payment#1 waited for a message",
    'crash: crashed when a message "payment" arrived, before it was stored',
    'crash: crashed after a message "payment" had arrived',
    "crash: crashed when receive:payment#1 took a message, before that was stored",
    "crash: crashed after receive:payment#1 had taken a message",
    "crash: crashed while it waited for the end of sleep#1",
    "crash: crashed when sleep#1 was over, before that was stored",
    "crash: crashed after sleep#1",
    'crash: crashed while it waited for the answer to ask#1 "A gift?"',
    "crash: crashed when the answer to ask#1 was declined, before that was stored",
    "crash: crashed after the answer to ask#1 was declined, and that was stored",
    "crash: crashed while receive:note#1 waited for a message",
    "crash: crashed when receive:note#1 got no message in time, before that was stored",
    "crash: crashed after receive:note#1 had got no message in time",
    "crash: crashed before its end was stored",
    "replay: replayed after every commit",
  ]);
});

it("an agent is interrupted in each sleep and receive, and gets its messages early, late and not in time", async () => {
  const report = await everyInterruption(order, "", options);
  expect(wheres(report)).toEqual([
    "none: not interrupted",
    "cancel: cancelled before its first yield",
    "message early: got its messages before it began",
    'cancel: cancelled after yield 1 (part "Waiting. ")',
    'cancel: cancelled during receive:payment#1, after yield 1 (part "Waiting. ")',
    'message late: receive:payment#1 got its message as late as possible, after yield 1 (part "Waiting. ")',
    'expire: receive:payment#1 got no message in time, after yield 1 (part "Waiting. ")',
    'cancel: cancelled during sleep#1, after yield 1 (part "Waiting. ")',
    'cancel: cancelled after yield 2 (question ask#1 "A gift?")',
    'answer twice: answered twice at yield 2 (question ask#1 "A gift?")',
    'answer late: answered as late as possible at yield 2 (question ask#1 "A gift?")',
    'cancel: cancelled during receive:note#1, after yield 2 (question ask#1 "A gift?")',
    'cancel: cancelled after yield 3 (part "900, answer_declined, no note")',
  ]);
  expect(report.problems).toEqual([]);
  expect(report.results.find(({ kind }) => kind === "expire")?.status).toBe("failed");
});

describe.each([
  ["everyCrash", everyCrash],
  ["everyInterruption", everyInterruption],
] as const)("%s lets time pass and sends messages", (tool, every) => {
  it("in sub-agents", async () => {
    const child = defineAgent("child", async (_input, { receive, sleep }) => {
      await sleep("2h", { name: "nap" });
      return `${await receive("word")}`;
    });
    const parent: AgentFunction = async (_input, { run }) => {
      const [first, second] = await Promise.all([run("child", ""), run("child", "")]);
      return [first, second].map(({ output }) => output[0]?.parts[0]?.content).join(", ");
    };
    const messages: CrashOptions["messages"] = (name, index) => `${name} ${index > 1 ? "two" : "one"}`;
    const report = await every(parent, "", { agents: { child }, messages });
    expect(report.problems).toEqual([]);
    const where = wheres(report).join("\n");
    expect(where).toMatch(/sleep:nap#1.* of child/);
    expect(where).toMatch(/receive:word#1.* of child/);
  });

  it("while a question is open, and no longer than the question", async () => {
    const reminding: AgentFunction = async function* (_input, { ask, sleep }) {
      const done = new AbortController();
      const remind = async (): Promise<void> => {
        await sleep("1h", { signal: done.signal });
        await sleep("1h", { signal: done.signal });
      };
      const answered = ask("Ready?", { timeoutMs: 9_000_000 }).finally(() => done.abort());
      await Promise.allSettled([answered, remind()]);
      yield JSON.stringify(await answered);
    };
    const report = await every(reminding, "", { answers: ["Yes"] });
    expect(report.problems).toEqual([]);
  });

  it("while nothing is at work", async () => {
    const stopped: AgentFunction = async (_input, { receive, sleep, step }) => {
      const done = new AbortController();
      const { signal } = done;
      const work = step("work", () => new Promise((resolve) => setTimeout(() => resolve("worked"), 30)));
      const first = Promise.race([work, receive("stop", { signal }), sleep("1h", { signal }).then(() => "late")]);
      return `${await first.finally(() => done.abort())}`;
    };
    const report = await every(stopped, "", {});
    expect(report.problems).toEqual([]);
  });

  it("to an agent that polls", async () => {
    const polling: AgentFunction = async (_input, { now, sleep, step }) => {
      const begun = now();
      while (!(await step("look", () => now() >= begun + 7_200_000))) await sleep("1h");
    };
    const report = await every(polling, "");
    expect(report.problems).toEqual([]);
    expect(wheres(report).join("\n")).toContain("sleep#2");
  });

  it("and says what is missing", async () => {
    const deaf: AgentFunction = async (_input, { receive }) => receive("payment");
    await expect(every(deaf, "", { messages: [{ name: "note", data: 1 }] })).rejects.toThrow(
      `${tool}: the agent waits for receive:payment#1, and there is no message "payment" for it. ` +
        'Add one: { messages: [{ name: "payment", data: … }] }.',
    );
    const wrong = { messages: [{ name: "payment", data: undefined }] };
    await expect(every(deaf, "", wrong)).rejects.toThrow("options.messages[0].data: expected a JSON value");
    await expect(every(deaf, "", { messages: JSON.parse('{"payment":1}') })).rejects.toThrow("options.messages");
  });
});

describe("what agents do wrong while they wait is found:", () => {
  it("a sleep that is not cleaned up", async () => {
    const leaky: AgentFunction = async (_input, { sleep }) => {
      const timer = setInterval(() => undefined, 60_000);
      await sleep("1h");
      clearInterval(timer);
    };
    const report = await everyInterruption(leaky, "");
    expect(report.problems).toEqual([
      expect.stringMatching(/^cancelled during sleep#1, before its first yield: It left an interval of 60000 ms/),
    ]);
  });

  it("a side effect after a sleep that is not in a step", async () => {
    let mails = 0;
    const eager: AgentFunction = async (_input, { receive, sleep }) => {
      await sleep("1h");
      mails += 1;
      await receive("done");
    };
    const report = await everyCrash(eager, "", {
      messages: [{ name: "done", data: null }],
      before: () => (mails = 0),
      world: () => mails,
    });
    expect(report.problems.map((line) => line.split("\n")[0])).toContain(
      "crashed while receive:done#1 waited for a message: The world outside is not what it is without the crash: - left alone, + here",
    );
  });

  it("another receive when a step fails, for which there is no message", async () => {
    const sulking: AgentFunction = async (_input, { receive, step }) => {
      await step("work", () => 1).catch(() => receive("help"));
    };
    const report = await everyInterruption(sulking, "");
    expect(report.results.find(({ kind }) => kind === "fail")?.status).toBe("cancelled");
    const crashes = await everyCrash(sulking, "");
    expect(crashes.results.find(({ kind }) => kind === "lost reply")?.status).toBe("cancelled");
  });
});
