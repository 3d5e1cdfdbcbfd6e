import { AgentRuntime, defineAgent, textOf } from "cadenza";
import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { setUp, setUpOnFile } from "../../harness/runtimes.ts";
import { OUTSIDE, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

/* One application with everything that a run can do in its life: typed agents, questions, time, messages, sub-runs, forks. */

const DAY = 86_400_000;
const HOUR = 3_600_000;
const places = [
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const;

/** The world outside: a bank that is down at first. */
class Bank {
  isUp = false;
  readonly charges: string[] = [];

  charge(idempotencyKey: string, cents: number): string {
    this.charges.push(`${idempotencyKey} ${cents}`);
    if (!this.isUp) throw new Error("The bank is down.");
    return `receipt for ${cents}`;
  }
}

function agentsOf(bank: Bank, givenUp: AbortController) {
  const In = z.object({ text: z.string() });
  const Out = z.object({ category: z.enum(["refund", "other"]) });
  const triage = defineAgent("triage", { input: In, output: Out, durable: true }).run(async function* ({ text }) {
    expectTypeOf(text).toEqualTypeOf<string>();
    yield "Looking… ";
    return { category: text.includes("money") ? "refund" : "other" };
  });
  const desk = defineAgent("desk", {
    durable: true,
    questions: { approval: z.object({ approved: z.boolean() }) },
    messages: { payment: z.object({ cents: z.int() }) },
  }).run(async function* (input, context) {
    const { approved } = await context.ask("Refund 40 €?", {
      name: "approval",
      timeoutMs: DAY,
      default: { approved: false },
    });
    expectTypeOf(approved).toEqualTypeOf<boolean>();
    if (!approved) {
      yield "Not approved.";
      return;
    }
    const { category } = await context.call(triage, { text: input.map((message) => textOf(message)).join("") });
    expectTypeOf(category).toEqualTypeOf<"refund" | "other">();
    const paid = await context.receive("payment", {
      timeoutMs: DAY,
      default: { cents: 0 },
      signal: givenUp.signal,
    });
    expectTypeOf(paid).toEqualTypeOf<{ cents: number }>();
    await context.sleep("1h");
    const receipt = await context.step("charge", ({ idempotencyKey }) => bank.charge(idempotencyKey, paid.cents), {
      timeoutMs: 1_000,
      retry: { attempts: 2, backoffMs: 100, factor: 2, maxBackoffMs: 1_000, when: () => true },
    });
    await context.run("triage", JSON.stringify({ text: "bye" }), { show: true });
    yield `${category}, ${receipt}, ${JSON.stringify(context.metadata)}`;
  });
  return [triage, desk] as const;
}

describe.each(places)("an application %s", (_where, make) => {
  unlessReplayed(TOO_LONG)(
    "asks, calls, receives, sleeps, charges once, shows its sub-runs, and tries again what has failed",
    async () => {
      const { runtime, clock } = make();
      const bank = new Bank();
      const [triage, desk] = agentsOf(bank, new AbortController());
      runtime.register(triage, desk);
      const pass = async (ms: number): Promise<void> => {
        for (let passed = 0; passed < ms; passed += ms / 8) {
          await clock.advance(ms / 8);
          await clock.settle();
        }
      };

      const startAt = new Date(clock.now() + 60_000);
      const { run_id, session_id } = await runtime.createRun(
        { agent_name: "desk", input: "my money back", mode: "async" },
        { metadata: { opened_by: "mail" }, labels: { order: "O-17" }, sessionKey: "chat-17", startAt },
      );
      expect((await runtime.details(run_id)).start_at).toBe(startAt.toISOString());
      await pass(60_000);
      const { await_requests } = await runtime.details(run_id);
      expect(await_requests).toMatchObject([{ name: "approval" }]);
      await runtime.resume({ run_id, await_resume: { approved: true }, mode: "async" });
      await clock.settle();
      const to = { labels: { order: "O-17" }, agent_name: "desk" };
      const sent = await runtime.send({ to, name: "payment", data: { cents: 4000 } }, { idempotencyKey: "payment-1" });
      expect(sent).toEqual({ run_id });
      await clock.settle();
      expect((await runtime.details(run_id)).waits_for).toEqual(["sleep#1"]);
      await pass(HOUR);
      await pass(1_000);
      const failed = await runtime.getRun(run_id);
      expect(failed.status).toBe("failed");
      expect(bank.charges).toHaveLength(2);

      bank.isUp = true;
      const copy = await runtime.fork(run_id);
      expect(copy).toMatchObject({ status: "completed", session_id });
      expect(textOf(copy)).toContain('refund, receipt for 4000, {"opened_by":"mail"}');
      expect(textOf(copy)).toContain("Looking… ");
      expect(new Set(bank.charges).size).toBe(1);
      const other = await runtime.fork(run_id, { before: "charge#1", keys: "new" });
      expect(other.status).toBe("completed");
      expect(new Set(bank.charges).size).toBe(2);
    },
  );

  it("is called with a typed input, and gives a typed output", async () => {
    const { runtime } = make();
    const [triage] = agentsOf(new Bank(), new AbortController());
    runtime.register(triage);
    const { category } = await runtime.call(triage, { text: "my money" });
    expectTypeOf(category).toEqualTypeOf<"refund" | "other">();
    expect(category).toBe("refund");
    const aborted = AbortSignal.abort(new Error("Not now."));
    await expect(runtime.call(triage, { text: "" }, { signal: aborted })).rejects.toThrow("Not now.");
  });

  it("answers the questions of what it calls", async () => {
    const { runtime } = make();
    const agents = agentsOf(new Bank(), new AbortController());
    runtime.register(...agents);
    const asked: (string | null)[] = [];
    const output = await runtime.call(agents[1], "x", {
      onQuestion: ({ name }) => {
        asked.push(name);
        return { approved: false };
      },
    });
    expect(asked).toEqual(["approval"]);
    expect(output.map((message) => textOf(message))).toEqual(["Not approved."]);
  });

  unlessReplayed(OUTSIDE)("gives up a receive whose signal aborts", async () => {
    const { runtime, clock } = make();
    const givenUp = new AbortController();
    runtime.register(...agentsOf(new Bank(), givenUp));
    const { run_id } = await runtime.createRun({ agent_name: "desk", input: "money" });
    await runtime.resume({ run_id, await_resume: { approved: true }, mode: "async" });
    await clock.settle();
    givenUp.abort(new Error("It is not paid."));
    await clock.settle();
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "failed" });
  });
});

it("a runtime that is given its agents knows their names", () => {
  const runtime = new AgentRuntime({ agents: agentsOf(new Bank(), new AbortController()) });
  expectTypeOf(runtime.createRun).parameter(0).toHaveProperty("agent_name");
  expectTypeOf<Parameters<typeof runtime.getAgent>[0]>().toExtend<string>();
  const wrong = (): void => {
    // @ts-expect-error the input is an object with a text
    void runtime.call(agentsOf(new Bank(), new AbortController())[0], { text: 1 });
  };
  expect(wrong).toBeTypeOf("function");
});
