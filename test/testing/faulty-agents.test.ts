import type { AgentFunction } from "cadenza";
import { everyInterruption } from "cadenza/testing";
import { describe, expect, it } from "vitest";

/* Each of these agents has one fault. Its report names the yield and the fault. */

const faulty: Record<string, { agent: AgentFunction; answers?: unknown[]; said: readonly (string | RegExp)[] }> = {
  "forgets finally": {
    agent: async function* () {
      const timer = setInterval(() => {}, 60_000);
      yield "one";
      yield "two";
      clearInterval(timer);
    },
    said: [
      /^cancelled after yield 1 \(part "one"\): It left an interval of 60000 ms, set at faulty-agents\.test\.ts:\d+:\d+\. Uninterrupted, .* finally/,
      /^cancelled after yield 2 \(part "two"\): It left an interval/,
    ],
  },
  "leaves a timer": {
    agent: async function* () {
      yield "one";
      setTimeout(() => {}, 60_000);
      yield "two";
    },
    said: [/^not interrupted: It left a timer of 60000 ms/, /^cancelled after yield 2 \(part "two"\): It left a timer/],
  },
  "leaves a chain of short timers": {
    agent: async function* () {
      const poll = (): void => void setTimeout(poll, 5);
      poll();
      yield "one";
    },
    said: [/^not interrupted: It left a timer of 5 ms, set at faulty-agents\.test\.ts:\d+:\d+\./],
  },
  "sets an interval in a stream": {
    agent: async function* () {
      const stream = new ReadableStream<string>({
        pull(controller) {
          setInterval(() => {}, 60_000);
          controller.enqueue("one");
        },
      });
      yield (await stream.getReader().read()).value;
    },
    said: [/^not interrupted: It left an interval of 60000 ms/],
  },
  "leaves an abort listener": {
    agent: async function* (_input, { signal }) {
      signal.addEventListener("abort", () => {});
      yield "one";
    },
    said: [/^cancelled after yield 1 \(part "one"\): It left an abort listener/],
  },
  "yields for ever in finally": {
    agent: async function* (_input, { signal }) {
      try {
        yield "one";
      } finally {
        while (signal.aborted) {
          yield "and another thing";
          await new Promise((resolve) => setImmediate(resolve));
        }
      }
    },
    said: [
      /^cancelled after yield 1 \(part "one"\): It did not stop within 500ms, and was abandoned; its finally did not run/,
    ],
  },
  "emits more after the abort, as a function": {
    agent: async (_input, { emit, step }) => {
      for (const word of ["one", "two", "three", "four"]) {
        await step("think", () => undefined);
        await emit(word);
      }
    },
    said: [/^cancelled after yield 1 \(part "one"\): It went on as if nothing had happened, and emitted 3 more things/],
  },
  "goes on after the end of its run": {
    agent: async (_input, { ask, emit }) => {
      await emit("one");
      await ask("More?").catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 60_000));
      await emit("two");
    },
    answers: ["yes"],
    said: [/^cancelled after yield 2 \(question ask#1 "More\?"\): It did not stop within 500ms/],
  },
  "loses an answer": {
    agent: async function* (_input, { ask }) {
      let name = "stranger";
      ask("Your name?").then(
        (answer) => {
          name = String(answer);
        },
        () => {},
      );
      yield `Hello ${name}`;
    },
    answers: ["Ada"],
    said: [
      /^answered as late as possible at yield 1 \(question ask#1 "Your name\?"\): It ended while ask#1 was still shown/,
    ],
  },
  "never reads an answer": {
    agent: async function* (_input, { ask }) {
      void ask("Your name?");
      yield "Hello";
      await ask("Still there?");
    },
    answers: ["Ada", "yes"],
    said: [/The answer to ask#1 is lost: the agent never waited for it/],
  },
  "ignores the deadline": {
    agent: async function* (_input, { ask }) {
      try {
        await ask("Sure?", { timeoutMs: 60_000 });
      } catch {
        // It takes the deadline for a yes.
      }
      yield "Booked.";
    },
    answers: ["yes"],
    said: [
      /^not answered in time at yield 1 \(question ask#1 "Sure\?"\): It caught the error .* yield 2 \(part "Booked\."\)/,
    ],
  },
  "ignores the deadline, as a function": {
    agent: async (_input, { ask, emit }) => {
      await ask("Sure?", { timeoutMs: 60_000 }).catch(() => undefined);
      await emit("Booked.");
      await emit("Enjoy.");
    },
    answers: ["yes"],
    said: [
      /^not answered in time at yield 1 \(question ask#1 "Sure\?"\): It caught the error .* yield 2 \(part "Booked\."\), and would have emitted 1 thing more/,
    ],
  },
  "asks again when it was stopped": {
    agent: async function* (_input, { ask }) {
      for (const name of ["one", "two", "three"]) {
        await ask(`Number ${name}?`).catch(() => undefined);
        yield { parts: [{ content: name }] };
      }
    },
    answers: ["1", "2", "3"],
    said: [
      /^cancelled after yield 1 .*: It caught the error .* yield 2 \(message "one"\), and would have emitted 2 things more/,
    ],
  },
  "leaves two listeners, and a running sub-agent": {
    agent: async function* (_input, { run, signal }) {
      signal.addEventListener("abort", () => {});
      signal.addEventListener("abort", () => {});
      void run("slow", "x");
      yield "Started.";
    },
    said: [/It left 2 abort listeners on its signal/, /^not interrupted: Sub-run run:slow#1 was still at work/],
  },
  "waits for ever": {
    agent: async function* () {
      yield "one";
      await new Promise(() => {});
    },
    said: [/^not interrupted: It does not come to an end\./],
  },
  "emits for ever": {
    agent: async function* () {
      for (;;) yield "and another thing";
    },
    said: [/^not interrupted: It does not come to an end\. It has done 1000 things/],
  },
  "leaves a running step": {
    agent: async function* (_input, { step }) {
      void step("save", () => new Promise(() => {}));
      yield "Saved.";
    },
    said: [/^not interrupted: Step save#1 of agent was still at work/],
  },
  "throws in finally": {
    agent: async function* () {
      try {
        yield "one";
        yield "two";
      } finally {
        // biome-ignore lint/correctness/noUnsafeFinally: this is the fault.
        throw new Error("cannot tidy up");
      }
    },
    said: [/^cancelled after yield 1 \(part "one"\): Its finally threw "Error: cannot tidy up"/],
  },
};

const agents = { slow: () => new Promise(() => {}) };

describe("everyInterruption catches an agent that", () => {
  it.each(Object.entries(faulty))("%s", async (_name, { agent, answers = [], said }) => {
    const report = await everyInterruption(agent, "Hello", { answers, patienceMs: 50, agents });
    for (const text of said) expect(report.problems).toEqual(expect.arrayContaining([expect.stringMatching(text)]));
    expect(report.ok).toBe(false);
    expect(() => report.assert()).toThrow(/went wrong/);
  });
});
