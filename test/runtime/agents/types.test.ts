import type {
  AgentContext,
  AgentFunction,
  AgentRuntime,
  DurableContext,
  EventListener,
  JsonObject,
  JsonValue,
  Message,
  RuntimeStats,
} from "cadenza";
import { defineAgent } from "cadenza";
import type { DurabilityOptions, durable } from "cadenza/store";
import * as v from "valibot";
import { expect, expectTypeOf, it } from "vitest";
import * as z from "zod";

/* Checked by the compiler: the functions here are never called. */

it("an answer has the type of the schema's output, with and without a default", () => {
  const written = async ({ ask }: AgentContext): Promise<void> => {
    const schema = z.object({ ok: z.boolean() });
    expectTypeOf(await ask("?", { schema })).toEqualTypeOf<{ ok: boolean }>();
    expectTypeOf(await ask("?", { schema, default: { ok: true }, timeoutMs: 5 })).toEqualTypeOf<{ ok: boolean }>();
    expectTypeOf(await ask("?", { schema: v.picklist(["a", "b"]), default: "a" })).toEqualTypeOf<"a" | "b">();
    const count = z.string().transform(Number);
    expectTypeOf(await ask("?", { schema: count, default: 5 })).toEqualTypeOf<number>();
    // @ts-expect-error the default is of the schema's output, and not of its input
    await ask("?", { schema: count, default: "5" });
    // @ts-expect-error the default has another key
    await ask("?", { schema, default: { okk: true } });
    // @ts-expect-error the default has one more
    await ask("?", { schema, default: { ok: true, because: "why not" } });
    // @ts-expect-error the default is no object
    await ask("?", { schema, default: "yes" });
  };
  expect(written).toBeTypeOf("function");
});

it("an answer without a schema is a message or an object, and so is its default", () => {
  const written = async ({ ask }: AgentContext): Promise<void> => {
    expectTypeOf(await ask("?")).toEqualTypeOf<Message | JsonObject>();
    expectTypeOf(await ask("?", { timeoutMs: 5, default: { ok: true } })).toEqualTypeOf<Message | JsonObject>();
    expectTypeOf(await ask("?", { schema: undefined })).toEqualTypeOf<Message | JsonObject>();
    // @ts-expect-error a text is no answer
    await ask("?", { default: "yes" });
  };
  expect(written).toBeTypeOf("function");
});

it("a default may be null, and then the result may be null too", () => {
  const schema = z.object({ ok: z.boolean() });
  type Ok = { ok: boolean };
  const written = async ({ ask, receive }: AgentContext, fallback: Ok | null): Promise<void> => {
    expectTypeOf(await ask("?", { schema, default: null })).toEqualTypeOf<Ok | null>();
    expectTypeOf(await ask("?", { schema, default: fallback })).toEqualTypeOf<Ok | null>();
    expectTypeOf(await ask("?", { schema: schema.nullable(), default: null })).toEqualTypeOf<Ok | null>();
    expectTypeOf(await ask("?", { default: null })).toEqualTypeOf<Message | JsonObject | null>();
    const detailed = await ask("?", { schema, default: null, details: true });
    expectTypeOf(detailed.value).toEqualTypeOf<Ok | null>();
    expectTypeOf(await receive("mail", { schema, default: null })).toEqualTypeOf<Ok | null>();
    expectTypeOf(await receive("mail", { default: null })).toEqualTypeOf<JsonValue>();
    expectTypeOf((await receive("mail", { schema, details: true })).value).toEqualTypeOf<Ok>();
    expectTypeOf((await receive("mail", { schema, default: null, details: true })).value).toEqualTypeOf<Ok | null>();
    expectTypeOf((await receive("mail", { details: true })).value).toEqualTypeOf<JsonValue>();
    // @ts-expect-error neither the schema's output nor null
    await receive("mail", { schema, default: "none" });
  };
  const declared = defineAgent("declared", { questions: { go: schema }, messages: { mail: schema } });
  declared.run(async (_input, { ask, receive }) => {
    expectTypeOf(await ask("?", { name: "go", default: null })).toEqualTypeOf<Ok | null>();
    expectTypeOf(await ask("?", { name: "go", default: { ok: true } })).toEqualTypeOf<Ok>();
    expectTypeOf(await receive("mail", { default: null })).toEqualTypeOf<Ok | null>();
    expectTypeOf((await receive("mail", { details: true })).value).toEqualTypeOf<Ok>();
    // @ts-expect-error neither the declared output nor null
    await receive("mail", { default: "none" });
    return [];
  });
  expect(written).toBeTypeOf("function");
});

it("metadata and an answer may be typed by an interface", () => {
  interface Order {
    readonly id: string;
    readonly note?: string;
  }
  const written = async (runtime: AgentRuntime, order: Order): Promise<void> => {
    await runtime.createRun({ agent_name: "agent", input: "" }, { metadata: order });
    await runtime.createRun({ agent_name: "agent", input: "" }, { metadata: [order] });
    await runtime.resume({ run_id: "", await_resume: order });
    // @ts-expect-error JSON has no such numbers
    await runtime.createRun({ agent_name: "agent", input: "" }, { metadata: 5n });
    // @ts-expect-error an answer is an object
    await runtime.resume({ run_id: "", await_resume: "yes" });
  };
  expect(written).toBeTypeOf("function");
});

it("the types of options are exported, and parts of events and reports are reached through them", () => {
  expectTypeOf<NonNullable<Parameters<typeof durable>[1]>>().toEqualTypeOf<DurabilityOptions>();
  expectTypeOf<RuntimeStats["blocked"][number]["version"]>().toEqualTypeOf<string | null>();
  expectTypeOf<Parameters<EventListener<"run.blocked">>[0]["position"]>().toEqualTypeOf<number>();
});

it("the step of a durable agent gives its JSON, and no other result compiles", () => {
  interface Tree {
    readonly value: number;
    readonly note?: string | undefined;
    readonly children: readonly Tree[];
  }
  const written = (runtime: AgentRuntime, tree: Tree, anything: unknown, load: <T>(value: T) => Promise<T>): void => {
    runtime.register("taken", { durable: true }, async (_input, { step }) => {
      expectTypeOf(await step("a tree", () => tree)).toEqualTypeOf<Tree>();
      expectTypeOf(await step("later", () => load({ price: 99, seats: [1, 2] }))).toEqualTypeOf<{
        price: number;
        seats: number[];
      }>();
      expectTypeOf(await step("one or none", () => load(tree as Tree | null))).toEqualTypeOf<Tree | null>();
      expectTypeOf(await step("nothing", () => {})).toEqualTypeOf<void>();
      expectTypeOf(await step("a pair", () => ["a", 1] as const)).toEqualTypeOf<readonly ["a", 1]>();
      expectTypeOf(await step("anything", () => anything)).toEqualTypeOf<unknown>();
      expectTypeOf(await step("fails", () => Promise.reject(new Error()))).toEqualTypeOf<never>();
      const found = await step("either", () =>
        load({ ok: true, value: 1 } as { ok: true; value: number } | { ok: false; error?: never }),
      );
      expectTypeOf(found).toEqualTypeOf<{ ok: true; value: number } | { ok: false; error?: never }>();
    });
    runtime.register("refused", { durable: true }, async (_input, { step }) => {
      // @ts-expect-error a date becomes text
      await step("a date", () => new Date());
      // @ts-expect-error a map becomes an empty object
      await step("a map", () => load(new Map([["a", 1]])));
      // @ts-expect-error the bytes become an object
      await step("bytes", () => new Uint8Array(4));
      // @ts-expect-error a function is lost
      await step("a function", () => () => 1);
      // @ts-expect-error JSON has no such numbers
      await step("a bigint", () => 5n);
      // @ts-expect-error undefined becomes null
      await step("a hole", () => [1, undefined]);
      // @ts-expect-error a set, far below
      await step("deep", () => ({ items: [{ tags: new Set(["a"]) }] }));
    });
    defineAgent("defined", { durable: true }, async (_input, { step }) => {
      // @ts-expect-error a date becomes text
      await step("a date", () => new Date());
    });
  };
  expect(written).toBeTypeOf("function");
});

it("the step of any other agent gives the type of its function's result", () => {
  const written = (runtime: AgentRuntime): void => {
    runtime.register("plain", { version: "1" }, async (_input, { step }) => {
      expectTypeOf(await step("a date", () => new Date())).toEqualTypeOf<Date>();
    });
    runtime.register("plainest", async (_input, { step }) => {
      expectTypeOf(await step("a date", () => new Date())).toEqualTypeOf<Date>();
    });
  };
  expect(written).toBeTypeOf("function");
});

it("the context of a durable agent can be passed on as that of any agent", () => {
  const helper = async <T>(context: AgentContext, load: () => Promise<T>): Promise<T> => context.step("help", load);
  const agent: AgentFunction = async (_input, context) => helper(context, async () => 1);
  const written = (runtime: AgentRuntime): void => {
    runtime.register("inline", { durable: true }, async (_input, context) => {
      expectTypeOf(context).toEqualTypeOf<DurableContext>();
      return [await helper(context, async () => 1)];
    });
    runtime.register("typed", { durable: true }, agent);
    runtime.register("of any kind", { durable: Math.random() > 0.5 }, agent);
    defineAgent("defined", { durable: true }, agent);
  };
  expect(written).toBeTypeOf("function");
});
