import { type } from "arktype";
import type {
  Agent,
  AgentContext,
  AgentInput,
  AgentOutput,
  AgentRuntime,
  AnswerDetails,
  DurableContext,
  JsonObject,
  JsonValue,
  Message,
  RunInput,
} from "cadenza";
import { defineAgent, AgentRuntime as Runtime } from "cadenza";
import * as v from "valibot";
import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";

/* Checked by the compiler. The functions of the agents here are never called. */

const Ticket = z.object({ text: z.string(), age: z.string().transform(Number) });
const Category = z.object({ category: z.enum(["refund", "other"]) });
const Event = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("paid"), cents: z.int() }),
  z.object({ kind: z.literal("closed") }),
]);

describe("a typed agent", () => {
  it("gets the output of its input schema, and returns the input of its output schema, in all four forms", () => {
    const forms = [
      defineAgent("a", { input: Ticket, output: Category }).run(async function* ({ text, age }) {
        expectTypeOf(text).toEqualTypeOf<string>();
        expectTypeOf(age).toEqualTypeOf<number>();
        yield "Looking…";
        yield { content: text };
        return { category: "refund" };
      }),
      defineAgent("b", { input: Ticket, output: Category }).run(function* ({ text }) {
        yield text;
        return { category: "other" };
      }),
      defineAgent("c", { input: Ticket, output: Category }).run(async () => ({ category: "refund" })),
      defineAgent("d", { input: Ticket, output: Category }).run(() => ({ category: "refund" })),
    ];
    expectTypeOf<AgentInput<(typeof forms)[0]>>().toEqualTypeOf<{ text: string; age: string }>();
    expectTypeOf<AgentOutput<(typeof forms)[0]>>().toEqualTypeOf<{ category: "refund" | "other" }>();
    expect(forms).toHaveLength(4);
  });

  it("infers members of a discriminated union in all four forms", () => {
    const forms = [
      defineAgent("a", { output: Event }).run(async function* () {
        yield "";
        return Math.random() > 2 ? { kind: "paid", cents: 5 } : { kind: "closed" };
      }),
      defineAgent("b", { output: Event }).run(function* () {
        yield "";
        if (Math.random() > 2) return { kind: "paid", cents: 5 };
        return { kind: "closed" };
      }),
      defineAgent("c", { output: Event }).run(async () =>
        Math.random() > 2 ? { kind: "paid", cents: 5 } : { kind: "closed" },
      ),
      defineAgent("d", { output: Event }).run(() => ({ kind: "paid", cents: 5 })),
    ];
    expect(forms).toHaveLength(4);
  });

  it("is typed by the schemas of any library", () => {
    const byValibot = defineAgent("a", {
      input: v.object({ size: v.picklist(["s", "m"]) }),
      output: v.variant("kind", [
        v.object({ kind: v.literal("a") }),
        v.object({ kind: v.literal("b"), n: v.number() }),
      ]),
    }).run(async ({ size }) => {
      expectTypeOf(size).toEqualTypeOf<"s" | "m">();
      return { kind: "b", n: 1 };
    });
    const byArktype = defineAgent("b", {
      input: type({ size: "'s' | 'm'", count: "string.integer.parse" }),
      output: type({ kind: "'a' | 'b'" }),
    }).run(async function* ({ size, count }) {
      expectTypeOf(size).toEqualTypeOf<"s" | "m">();
      expectTypeOf(count).toEqualTypeOf<number>();
      yield "";
      return { kind: "a" };
    });
    expectTypeOf<AgentInput<typeof byValibot>>().toEqualTypeOf<{ size: "s" | "m" }>();
    expectTypeOf<AgentInput<typeof byArktype>>().toEqualTypeOf<{ size: "s" | "m"; count: string }>();
    expectTypeOf<AgentOutput<typeof byArktype>>().toEqualTypeOf<{ kind: "a" | "b" }>();
    expect([byValibot.name, byArktype.name]).toEqual(["a", "b"]);
  });

  it("without schemas takes messages and returns what it emits", () => {
    const agent = defineAgent("plain", { version: "1" }).run(async function* (input) {
      expectTypeOf(input).toEqualTypeOf<readonly Message[]>();
      yield* input;
    });
    expectTypeOf<AgentInput<typeof agent>>().toEqualTypeOf<RunInput>();
    expectTypeOf<AgentOutput<typeof agent>>().toEqualTypeOf<readonly Message[]>();
    expectTypeOf(agent).toExtend<Agent>();
    expect(agent.name).toBe("plain");
  });

  it("does not compile when it emits or returns what it must not", () => {
    const written = (): void => {
      // @ts-expect-error a number cannot be emitted
      defineAgent("a", {}).run(async function* () {
        yield 42;
      });
      // @ts-expect-error a number cannot be emitted, also beside an output
      defineAgent("a", { output: Category }).run(async function* () {
        yield 42;
        return { category: "refund" };
      });
      // @ts-expect-error not a category
      defineAgent("a", { output: Category }).run(() => ({ category: "refnd" }));
      // @ts-expect-error not a category
      defineAgent("a", { output: Category }).run(async () => ({ category: "refnd" }));
      // @ts-expect-error nothing is returned
      defineAgent("a", { output: Category }).run(async () => {});
      // @ts-expect-error the input has no such field
      defineAgent("a", { input: Ticket }).run(async ({ txt }) => txt);
      // @ts-expect-error there is no such option
      defineAgent("a", { inputs: Ticket });
      // @ts-expect-error an agent with schemas gets its function by `run`
      defineAgent("a", { input: Ticket }, async () => "");
    };
    expect(written).toBeTypeOf("function");
  });

  it("knows its declared questions and messages", () => {
    const written = defineAgent("desk", {
      questions: { approval: z.object({ approved: z.boolean() }), seats: z.string().transform(Number) },
      messages: { payment: z.object({ cents: z.int() }) },
    }).run(async (_input, context) => {
      const { ask, receive } = context;
      expectTypeOf(await ask("?", { name: "approval" })).toEqualTypeOf<{ approved: boolean }>();
      expectTypeOf(await ask("?", { name: "seats", default: 5 })).toEqualTypeOf<number>();
      expectTypeOf(await ask("?", { name: "seats", details: true })).toEqualTypeOf<AnswerDetails<number>>();
      expectTypeOf(await ask("?", { name: "other", schema: v.number() })).toEqualTypeOf<number>();
      expectTypeOf(await ask("?", { name: "other" })).toEqualTypeOf<Message | JsonObject>();
      expectTypeOf(await ask("?")).toEqualTypeOf<Message | JsonObject>();
      expectTypeOf(await receive("payment", { timeoutMs: 5 })).toEqualTypeOf<{ cents: number }>();
      expectTypeOf(await receive("other")).toEqualTypeOf<JsonValue>();
      expectTypeOf(await receive("other", { schema: v.number() })).toEqualTypeOf<number>();
      // @ts-expect-error the default is no approval
      await ask("?", { name: "approval", default: { approved: "yes" } });
      // @ts-expect-error the default is no payment
      await receive("payment", { default: { cents: "5" } });
    });
    expect(written.name).toBe("desk");
  });

  it("has a context that helpers for any agent take", () => {
    const help = async (context: AgentContext): Promise<unknown> => context.ask("?");
    const helpDurable = async (context: DurableContext): Promise<unknown> => context.ask("?");
    const agent = defineAgent("helped", {
      durable: true,
      questions: { approval: z.object({ approved: z.boolean() }) },
      messages: { payment: z.object({ at: z.string().transform((text) => new Date(text)) }) },
    }).run(async (_input, context) => {
      await help(context);
      await helpDurable(context);
      // @ts-expect-error JSON would lose the date
      await context.step("now", () => new Date());
    });
    expect(agent.options.durable).toBe(true);
  });
});

describe("a call", () => {
  const triage = defineAgent("triage", { input: Ticket, output: Category }).run(() => ({ category: "refund" }));

  it("is typed by the agent", () => {
    const written = async (runtime: AgentRuntime): Promise<void> => {
      expectTypeOf(await runtime.call(triage, { text: "", age: "5" })).toEqualTypeOf<{
        category: "refund" | "other";
      }>();
      // @ts-expect-error the input side of the schema is a text
      await runtime.call(triage, { text: "", age: 5 });
      // @ts-expect-error a field is missing
      await runtime.call(triage, { text: "" });
      defineAgent("caller", async (_input, { call }) => {
        expectTypeOf(await call(triage, { text: "", age: "5" })).toEqualTypeOf<{ category: "refund" | "other" }>();
        // @ts-expect-error the input side of the schema is a text
        await call(triage, { text: "", age: 5 });
      });
    };
    expect(written).toBeTypeOf("function");
  });

  it("of agents that the runtime knows is completed by name", () => {
    const runtime = new Runtime({ agents: [triage, defineAgent("echo", (input) => input)] });
    expectTypeOf(runtime).toEqualTypeOf<AgentRuntime<"triage" | "echo">>();
    const more = runtime.register("third", () => "").register(defineAgent("fourth", () => ""));
    expectTypeOf(more).toEqualTypeOf<AgentRuntime<"triage" | "echo" | "third" | "fourth">>();
    expectTypeOf(more).toExtend<AgentRuntime>();
    const dynamic: string = "echo";
    expectTypeOf(more.getAgent).toBeCallableWith(dynamic);
    expectTypeOf(more.getAgent).toBeCallableWith("fourth");
    expect(more).toBe(runtime);
  });
});

describe("a run", () => {
  it("is narrowed by its status", () => {
    const written = async (runtime: AgentRuntime): Promise<void> => {
      const run = await runtime.getRun("");
      if (run.status === "awaiting") expectTypeOf(run.await_request.await_id).toEqualTypeOf<string>();
      if (run.status === "failed") expectTypeOf(run.error.message).toEqualTypeOf<string>();
      if (run.status === "completed") expectTypeOf(run.finished_at).toEqualTypeOf<string>();
      if (run.status === "in-progress") expectTypeOf(run.finished_at).toEqualTypeOf<null>();
    };
    expect(written).toBeTypeOf("function");
  });
});
