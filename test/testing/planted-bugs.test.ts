import type { AgentFunction } from "cadenza";
import { AgentRuntime } from "cadenza";
import type { CrashOptions } from "cadenza/testing";
import { everyCrash, everyInterruption } from "cadenza/testing";
import { beforeEach, describe, expect, it } from "vitest";
import * as z from "zod";
import { onDurableStore } from "../harness/durable-runtime.ts";
import { aiSdkAgents } from "./ai-sdk-agents.ts";

/* Agents with a bug in their effects, each with the same agent without the bug. */

const approval = z.object({ ok: z.boolean() });

/** A payment service and a mail service outside of the process: they keep their requests, and know idempotency keys. */
class Outside {
  readonly charges: string[] = [];
  readonly mails: string[] = [];
  readonly refunds: string[] = [];
  readonly #seen = new Set<string>();

  charge(key?: string): string {
    if (this.#isNew("charge", key)) this.charges.push("30 €");
    return "receipt";
  }

  mail(key?: string): void {
    if (this.#isNew("mail", key)) this.mails.push("Thank you");
  }

  refund(key?: string): void {
    if (this.#isNew("refund", key)) this.refunds.push("30 €");
  }

  #isNew(service: string, key: string | undefined): boolean {
    if (key === undefined) return true;
    if (this.#seen.has(`${service} ${key}`)) return false;
    this.#seen.add(`${service} ${key}`);
    return true;
  }
}

let outside: Outside;
beforeEach(() => {
  outside = new Outside();
});

const options: CrashOptions = {
  // Not all of them ask.
  answers: () => ({ ok: true }),
  before: () => {
    outside = new Outside();
  },
  world: () => ({ charges: outside.charges, mails: outside.mails, refunds: outside.refunds }),
};

interface Planted {
  readonly wrong: AgentFunction;
  readonly right: AgentFunction;
  /** The texts in the report. */
  readonly said: readonly RegExp[];
}

const found: Record<string, Planted> = {
  "a charge outside a step, before a question": {
    wrong: async function* (_input, { ask, step }) {
      outside.charge();
      await ask("Ship?", { schema: approval });
      await step("ship", () => "shipped");
      yield "Shipped.";
    },
    right: async function* (_input, { ask, step, run_id }) {
      await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`));
      await ask("Ship?", { schema: approval });
      await step("ship", () => "shipped");
      yield "Shipped.";
    },
    said: [
      /^crashed while it waited for the answer to ask#1 "Ship\?": The world outside is not what it is without the crash/,
      /^crashed in step ship#1, when its work was done and its result was not stored: The world outside/,
      /^replayed after every commit: The world outside/,
    ],
  },
  "a charge in a step without a key": {
    wrong: async function* (_input, { step }) {
      yield await step("charge", () => outside.charge());
    },
    right: async function* (_input, { step, run_id }) {
      yield await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`));
    },
    said: [/^crashed in step charge#1, when its work was done and its result was not stored: The world outside/],
  },
  "a charge and a mail in one step that is retried": {
    wrong: async function* (_input, { step, run_id }) {
      const pay = ({ key }: { readonly key: string }): void => {
        outside.charge(`${run_id} ${key}`);
        outside.mail();
      };
      await step("pay", pay, { retry: { attempts: 3, backoffMs: 1_000 } });
      yield "Paid.";
    },
    right: async function* (_input, { step, run_id }) {
      const retry = { attempts: 3, backoffMs: 1_000 };
      await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`), { retry });
      await step("mail", ({ key }) => outside.mail(`${run_id} ${key}`), { retry });
      yield "Paid.";
    },
    said: [
      /^crashed in step pay#1, .*: The world outside/,
      /^step pay#1 failed when its work was done: The world outside/,
    ],
  },
  "a charge whose error is caught, and that the agent repeats": {
    wrong: async function* (_input, { step, run_id }) {
      const charge = ({ key }: { readonly key: string }): string => outside.charge(`${run_id} ${key}`);
      try {
        await step("charge", charge);
      } catch {
        await step("charge again", charge);
      }
      yield "Paid.";
    },
    right: async function* (_input, { step, run_id }) {
      const charge = (): string => outside.charge(`${run_id} charge`);
      try {
        await step("charge", charge);
      } catch {
        await step("charge again", charge);
      }
      yield "Paid.";
    },
    said: [/^step charge#1 failed when its work was done: The world outside/],
  },
  "a random branch": {
    wrong: async function* (_input, { step, run_id }) {
      const isTest = Math.random() < 0.5;
      if (isTest) await step("offer a discount", () => "10 %");
      await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`));
      yield "Paid.";
    },
    right: async function* (_input, { random, step, run_id }) {
      const isTest = random() < 0.5;
      if (isTest) await step("offer a discount", () => "10 %");
      await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`));
      yield "Paid.";
    },
    said: [
      /^replayed after every commit: It is blocked: its code does not match its history at position \d+ \(history: /,
    ],
  },
};

describe("everyCrash finds", () => {
  it.each(Object.entries(found))("%s", async (_name, { wrong, said }) => {
    const report = await everyCrash(wrong, "Three apples", options);
    for (const line of said) expect(report.problems).toEqual(expect.arrayContaining([expect.stringMatching(line)]));
    expect(report.ok).toBe(false);
    expect(() => report.assert()).toThrow(/went wrong/);
  });

  it("a step with another name each time, before a question", async () => {
    let called = 0;
    const wrong: AgentFunction = async (_input, { ask, step }) => {
      called += 1;
      await step(`call ${called}`, () => 1);
      await ask("Well?");
    };
    const report = await everyCrash(wrong, "x", { answers: ["yes"], patienceMs: 20 });
    expect(report.problems).toEqual(expect.arrayContaining([expect.stringMatching(/It is blocked: /)]));
  });

  it.each(Array.from({ length: 5 }, (_, round) => round))("a random branch, each time (%i)", async () => {
    const report = await everyCrash(found["a random branch"]?.wrong ?? (() => undefined), "x", {
      ...options,
      patienceMs: 20,
    });
    expect(report.ok).toBe(false);
  });
});

describe("without the bug no problem is reported for", () => {
  it.each(Object.entries(found))("%s", async (_name, { right }) => {
    expect((await everyCrash(right, "Three apples", options)).problems).toEqual([]);
    const { world, ...rest } = options;
    expect((await everyInterruption(right, "Three apples", rest)).problems).toEqual([]);
    expect(world).toBeDefined();
  });

  it.each(Object.entries(aiSdkAgents))("an agent of the AI SDK that %s", async (_name, { agent, answers }) => {
    const report = await everyCrash(agent, "How is the weather?", { answers, world: () => outside.charges });
    expect(report.problems).toEqual([]);
    expect(report.results.length).toBeGreaterThan(2);
  });
});

describe("everyInterruption finds", () => {
  const check = { ...options, world: undefined };
  const balanced = (): string | undefined =>
    outside.charges.length === outside.refunds.length + outside.mails.length
      ? undefined
      : `${outside.charges.length} charges, ${outside.refunds.length} refunds, ${outside.mails.length} mails`;
  const { world: _, ...interruption } = { ...check, after: balanced };

  it("that there is no refund when the run is cancelled", async () => {
    const report = await everyInterruption(
      async function* (_input, { ask, step, run_id }) {
        await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`));
        await ask("Ship?", { schema: approval });
        await step("mail", ({ key }) => outside.mail(`${run_id} ${key}`));
        yield "Shipped.";
      },
      "Three apples",
      interruption,
    );
    expect(report.problems).toEqual(
      expect.arrayContaining(['cancelled after yield 1 (question ask#1 "Ship?"): 1 charges, 0 refunds, 0 mails']),
    );
  });

  it("no problem for one that gives the money back", async () => {
    const careful: AgentFunction = async function* (_input, { ask, step, run_id }) {
      let isDone = false;
      try {
        await step("charge", ({ key }) => outside.charge(`${run_id} ${key}`));
        await ask("Ship?", { schema: approval });
        await step("mail", ({ key }) => outside.mail(`${run_id} ${key}`));
        isDone = true;
        yield "Shipped.";
      } finally {
        // The payment service holds the last charge, under the key.
        if (!isDone && outside.charges.length > outside.mails.length) outside.refund(`${run_id} charge#1`);
      }
    };
    expect((await everyInterruption(careful, "Three apples", interruption)).problems).toEqual([]);
    expect((await everyCrash(careful, "Three apples", { ...options, after: balanced })).problems).toEqual([]);
  });
});

it("alwaysReplay repeats a charge outside a step, however quickly the question is answered", async () => {
  const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true } }));
  const agent = found["a charge outside a step, before a question"]?.wrong ?? (() => undefined);
  runtime.register("order", { durable: true }, agent);
  const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
  await runtime.resume({ run_id, await_resume: { ok: true } });
  expect(outside.charges.length).toBeGreaterThan(1);
});
