import { defineAgent, textOf } from "cadenza";
import { drive, everyCrash, everyInterruption } from "cadenza/testing";
import { expect, it } from "vitest";
import * as z from "zod";

interface Order {
  readonly order: string;
}

const refund = defineAgent("refund", { input: z.object({ order: z.string() }) }).run(async function* (
  { order },
  { ask },
) {
  const { ok } = await ask("Refund it?", { schema: z.object({ ok: z.boolean() }) });
  yield `${order}: ${ok}`;
});

const order: Order = { order: "O-1" };
const options = { answers: [{ ok: true }] };

it("a typed agent is driven with its value", async () => {
  const t = drive(refund, order);
  await t.finish();
  await t.answer({ ok: true });
  expect(textOf(await t.finish())).toBe("O-1: true");
});

it("a typed agent is interrupted and crashed with its value", async () => {
  const after = ({ error }: { readonly error?: { readonly code: string } | null }) =>
    error?.code === "invalid_input" ? "The value was refused." : undefined;
  expect((await everyInterruption(refund, order, { ...options, after })).problems).toEqual([]);
  expect((await everyCrash(refund, order, { ...options, after })).problems).toEqual([]);
});

it("a sub-run of a typed agent takes its value", async () => {
  const parent = defineAgent("parent", async (_input, { run }) => textOf(await run("greet", { name: "Ada" })));
  const greet = defineAgent("greet", { input: z.object({ name: z.string() }) }).run(({ name }) => `Hello, ${name}.`);
  expect(textOf(await drive(parent, "x", { agents: { greet } }).finish())).toBe("Hello, Ada.");
});
