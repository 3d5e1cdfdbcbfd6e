import type { AgentFunction, StepScope } from "cadenza";
import { AgentError, awaitMessage, defineAgent } from "cadenza";
import type { InterruptionOptions } from "cadenza/testing";
import { everyCrash, everyInterruption } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { aiSdkAgents } from "./ai-sdk-agents.ts";

/* Correct agents of every form. The kit may report no problem for any of them. */

interface Correct {
  readonly agent: AgentFunction;
  readonly options?: InterruptionOptions;
  /** The least number of ways to run it. */
  readonly ways: number;
}

const confirm = z.object({ ok: z.boolean() });

const correct: Record<string, Correct> = {
  "a plain function": { agent: () => "Hello", ways: 2 },
  "a function that returns nothing": { agent: () => undefined, ways: 2 },
  "an async function": { agent: async () => ["one", "two", { three: 3 }], ways: 4 },
  "a generator": {
    agent: function* () {
      yield "one";
      yield { content: "<p>", content_type: "text/html", name: "page.html" };
      return "three";
    },
    ways: 5,
  },
  "an async generator": {
    agent: async function* (input) {
      yield* input;
      yield "one";
      yield null;
      yield { parts: [{ content: "two" }] };
    },
    ways: 5,
  },
  "a function that drains a stream": {
    agent: () =>
      (async function* () {
        yield "a";
        yield "b";
      })(),
    ways: 4,
  },
  "a generator of lists": {
    agent: async function* () {
      yield ["a", "b"];
      yield new Set(["c"]);
    },
    ways: 5,
  },
  "finally that emits": {
    agent: async function* () {
      try {
        yield "one";
        yield "two";
      } finally {
        yield "good";
        yield "bye";
      }
    },
    ways: 6,
  },
  "a resource closed in finally": {
    agent: async function* (_input, { signal }) {
      const timer = setInterval(() => {}, 60_000);
      const onAbort = (): void => clearInterval(timer);
      signal.addEventListener("abort", onAbort);
      try {
        yield "one";
        yield "two";
      } finally {
        clearInterval(timer);
        signal.removeEventListener("abort", onAbort);
      }
    },
    ways: 4,
  },
  "steps and a question": {
    agent: async function* (_input, { ask, step }) {
      const plan = await step("plan", async () => "via Brussels");
      const price = await step("price", () => 49);
      const { ok } = await ask(`${plan} for ${price}?`, { schema: confirm });
      if (ok) yield await step("book", () => "Booked.");
    },
    options: { answers: [{ ok: true }] },
    ways: 12,
  },
  "a deadline with a default": {
    agent: async function* (_input, { ask }) {
      const answer = await ask("Sure?", { schema: confirm, timeoutMs: 86_400_000, default: { ok: false } });
      yield answer.ok ? "Done." : "Left as it is.";
    },
    options: { answers: [{ ok: true }] },
    ways: 7,
  },
  "a deadline without a default": {
    agent: async function* (_input, { ask }) {
      try {
        await ask("Sure?", { timeoutMs: 86_400_000 });
        yield "Done.";
      } finally {
        yield "Closed.";
      }
    },
    options: { answers: ["yes"] },
    ways: 8,
  },
  "a late emission in catch": {
    agent: async function* (_input, { ask }) {
      try {
        await ask("Sure?", { timeoutMs: 1_000 });
      } catch {
        yield "Too late.";
        return;
      }
      yield "Done.";
    },
    options: { answers: ["yes"] },
    ways: 7,
  },
  "the protocol's own question": {
    agent: async function* () {
      for (const name of ["first", "last"]) {
        const answer = yield awaitMessage(`Your ${name} name?`);
        yield { [name]: answer !== undefined };
      }
    },
    options: { answers: ["Ada", "Lovelace"] },
    ways: 10,
  },
  "questions side by side": {
    agent: async (_input, { ask }) => {
      const answers = await Promise.all([ask("One?"), ask("Two?"), ask("Three?")]);
      return `${answers.length} answers`;
    },
    options: { answers: ["1", "2", "3"] },
    ways: 10,
  },
  "steps side by side, with retry": {
    agent: async (_input, { step }) => {
      const fetch = (page: number) => step(`fetch:${page}`, () => `page ${page}`, { retry: { attempts: 3 } });
      return Promise.all([fetch(1), fetch(2), fetch(3)]);
    },
    ways: 10,
  },
  "a step that streams and heeds its signal": {
    agent: async function* (_input, { step }) {
      const text = await step("model", async ({ emit, signal }) => {
        const tokens = ["so", " it", " goes"];
        for (const token of tokens) {
          signal.throwIfAborted();
          await emit(token);
        }
        return tokens.join("");
      });
      yield { length: text.length };
    },
    ways: 7,
  },
  "a function that checks its signal": {
    agent: async (_input, { emit, signal, step }) => {
      for (const word of ["one", "two", "three", "four"]) {
        signal.throwIfAborted();
        await step("think", () => undefined);
        await emit(word);
      }
    },
    ways: 10,
  },
  "a function that cleans up": {
    agent: async (_input, { emit, signal, step }) => {
      try {
        await step("open", () => undefined);
        signal.throwIfAborted();
        await emit("at work");
        signal.throwIfAborted();
      } finally {
        await emit("closing");
        await emit("closed");
        await step("close", () => undefined);
      }
    },
    ways: 8,
  },
  "sub-agents that ask": {
    agent: async function* (_input, { run }) {
      const [hotel, train] = await Promise.all([run("hotel", "Paris"), run("train", "Paris")]);
      yield `${hotel.status} and ${train.status}`;
    },
    options: {
      agents: {
        hotel: defineAgent("hotel", async function* (_input, { ask, step }) {
          const room = await step("room", () => 12);
          await ask(`Room ${room}?`);
          yield "Room booked.";
        }),
        train: "Seat booked.",
      },
      answers: ["yes"],
    },
    ways: 10,
  },
  "a sub-agent and a question in the background": {
    agent: async function* (_input, { ask, run, step }) {
      const hotel = run("hotel", "Paris");
      const question = ask("Sure?");
      yield await step("look", () => "Looking.");
      yield "Still looking.";
      await Promise.all([hotel, question]);
      yield "Done.";
    },
    options: { agents: { hotel: "Room booked." }, answers: ["yes"] },
    ways: 10,
  },
  "an agent that fails": {
    agent: async function* (_input, { step }) {
      try {
        yield "one";
        await step("look", () => {
          throw new AgentError("not_found", "There is no such thing.");
        });
      } finally {
        yield "two";
      }
    },
    ways: 6,
  },
  "an agent that goes on after a failed step": {
    agent: async function* (_input, { step }) {
      for (const shop of ["a", "b"]) {
        try {
          yield await step(`offer:${shop}`, () => `offer of ${shop}`);
        } catch {
          yield `${shop} is closed`;
        }
      }
    },
    ways: 8,
  },
  "real files, really read": {
    agent: async function* (_input, { step, signal }) {
      const { readFile } = await import("node:fs/promises");
      const text = await step("read", () => readFile(new URL(import.meta.url), { encoding: "utf8", signal }));
      yield { size: text.length > 0 };
    },
    ways: 4,
  },
  "a wait in real time that is cut short": {
    agent: async function* (_input, { signal }) {
      const { setTimeout: sleep } = await import("node:timers/promises");
      yield "one";
      await sleep(3, undefined, { signal });
      yield "two";
    },
    ways: 4,
  },
  "a wait between two attempts of a step": {
    agent: async function* (_input, { step }) {
      let tries = 0;
      const fetch = (): string => {
        tries += 1;
        if (tries < 3) throw new Error("busy");
        return `after ${tries}`;
      };
      yield await step("fetch", fetch, { retry: { attempts: 3, backoffMs: 3_600_000 } });
    },
    ways: 4,
  },
  "a wait between two attempts beside a question that expires": {
    agent: async function* (_input, { ask, step }) {
      let tries = 0;
      const fetch = (): string => {
        tries += 1;
        if (tries === 1) throw new Error("busy");
        return "fetched";
      };
      const [fetched] = await Promise.all([
        step("fetch", fetch, { retry: { attempts: 2, backoffMs: 1_000 } }),
        ask("Sure?", { timeoutMs: 60_000 }),
      ]);
      yield fetched;
    },
    options: { answers: ["yes"] },
    ways: 8,
  },
  "a wait between two attempts of a step of a sub-agent": {
    agent: async function* (_input, { run }) {
      yield (await run("retries", "x")).status;
    },
    options: {
      agents: {
        retries: defineAgent("retries", async (_input, { step }) => {
          let tries = 0;
          const fetch = (): string => {
            tries += 1;
            if (tries === 1) throw new Error("busy");
            return "fetched";
          };
          return step("fetch", fetch, { retry: { attempts: 2, backoffMs: 50 } });
        }),
      },
    },
    ways: 5,
  },
  "attempts at a step with a time limit": {
    agent: async function* (_input, { step }) {
      const fetch = async ({ attempt, signal, idempotencyKey }: StepScope): Promise<string> => {
        const { setTimeout: sleep } = await import("node:timers/promises");
        await sleep(3, undefined, { signal });
        if (attempt === 1) throw new Error("busy");
        return idempotencyKey.length === 36 ? "fetched" : "without a key";
      };
      const when = (error: unknown): boolean => error instanceof Error && error.message === "busy";
      yield await step("fetch", fetch, { timeoutMs: 60_000, retry: { attempts: 2, backoffMs: 1_000, when } });
    },
    ways: 4,
  },
  "a web stream that reads ahead": {
    agent: async function* (_input, { signal }) {
      let n = 0;
      const stream = new ReadableStream<string>({
        async pull(controller) {
          await new Promise((resolve) => setTimeout(resolve, 1));
          if (n < 5) controller.enqueue(`${++n}`);
          else controller.close();
        },
      });
      for await (const chunk of stream) {
        signal.throwIfAborted();
        yield chunk;
      }
    },
    ways: 6,
  },
  "a slow web stream that reads ahead": {
    agent: async function* () {
      let isFirst = true;
      const stream = new ReadableStream<string>({
        async pull(controller) {
          if (!isFirst) await new Promise((resolve) => setTimeout(resolve, 60_000));
          isFirst = false;
          controller.enqueue("one");
        },
      });
      const { value } = await stream.getReader().read();
      yield value;
    },
    ways: 2,
  },
  "a short timer that fires by itself": {
    agent: async function* () {
      yield "one";
      setTimeout(() => {}, 5);
      yield "two";
    },
    ways: 4,
  },
  "a listener that is added to a signal which has aborted": {
    agent: async function* (_input, { signal }) {
      const onAbort = (): void => {};
      try {
        yield "one";
        yield "two";
      } finally {
        if (signal.aborted) signal.addEventListener("abort", onAbort);
      }
    },
    ways: 4,
  },
  "session, usage, time and random values": {
    agent: async function* (_input, { now, random, session, usage, uuid }) {
      const state = await session.getState();
      await session.setState({ before: state });
      usage.add({ input_tokens: 1, output_tokens: 1 });
      yield { now: now(), uuid: uuid(), random: random(), history: (await session.history()).length };
    },
    options: { session: { history: "Hello", state: 1 } },
    ways: 3,
  },
};

describe("everyCrash finds no problem in", () => {
  it.each(Object.entries(correct))("%s", async (_name, { agent, options = {} }) => {
    const report = await everyCrash(agent, "Hello", options);

    expect(report.problems).toEqual([]);
    expect(report.results.at(-1)?.kind).toBe("replay");
  });
});

describe("everyInterruption finds no problem in", () => {
  it.each(Object.entries(correct))("%s", async (_name, { agent, options = {}, ways }) => {
    const report = await everyInterruption(agent, "Hello", options);

    expect(report.problems).toEqual([]);
    expect(report.ok).toBe(true);
    expect(report.results.length).toBeGreaterThanOrEqual(ways);
  });

  it.each(Object.entries(aiSdkAgents))("an agent of the AI SDK that %s", async (_name, { agent, answers }) => {
    const report = await everyInterruption(agent, "How is the weather?", { answers });
    expect(report.problems).toEqual([]);
    expect(report.results.length).toBeGreaterThan(4);
  });

  it("any of more than twenty agents", () => {
    expect(Object.keys(correct).length).toBeGreaterThan(20);
  });
});
