import type {
  AgentContext,
  AnnouncedType,
  DurabilityOptions,
  EventOf,
  JsonObject,
  Message,
  ParkedEvent,
  ParkedRun,
  RunsReport,
  RuntimeOptions,
  RuntimeStats,
} from "cadenza";
import * as v from "valibot";
import { expect, expectTypeOf, test } from "vitest";
import * as z from "zod";

/* For the compiler: the functions here are never called. */

test("an answer has the type that the schema makes, whatever the default", () => {
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

test("an answer without a schema is a message or an object, and so is its default", () => {
  const written = async ({ ask }: AgentContext): Promise<void> => {
    expectTypeOf(await ask("?")).toEqualTypeOf<Message | JsonObject>();
    expectTypeOf(await ask("?", { timeoutMs: 5, default: { ok: true } })).toEqualTypeOf<Message | JsonObject>();
    expectTypeOf(await ask("?", { schema: undefined })).toEqualTypeOf<Message | JsonObject>();
    // @ts-expect-error a text is no answer
    await ask("?", { default: "yes" });
  };
  expect(written).toBeTypeOf("function");
});

test("what can be written of options, events and reports has a name", () => {
  expectTypeOf<NonNullable<RuntimeOptions["durability"]>>().toEqualTypeOf<DurabilityOptions>();
  expectTypeOf<RuntimeStats>().toExtend<RunsReport>();
  expectTypeOf<RunsReport["parked"][number]>().toEqualTypeOf<ParkedRun>();
  expectTypeOf<EventOf<"run.parked">>().toEqualTypeOf<ParkedEvent>();
  expectTypeOf<"run.parked">().toExtend<AnnouncedType>();
});
