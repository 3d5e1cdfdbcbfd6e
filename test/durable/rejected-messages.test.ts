import { expect, it } from "vitest";
import * as z from "zod";
import { textsOf } from "../harness/runtimes.ts";
import type { Replicas } from "../harness/world/replicas.ts";
import { inMemory } from "../harness/world/replicas.ts";

/** A process whose agent takes a text, and says what it was given first. */
function start(replicas: Replicas, schema: z.ZodType) {
  const replica = replicas.start();
  replica.runtime.register("strict", { durable: true }, async (_input, { receive, step }) => {
    const first = await receive("mail", { schema }).catch(({ message }: Error) => message.split(": ").at(-1));
    await step("note", () => undefined);
    return `${first}, ${await receive("mail")}`;
  });
  return replica;
}

it.each([
  { answers: "at once", schema: z.string("no text"), kept: [{ path: [], message: "no text" }] },
  { answers: "with a promise", schema: z.unknown().refine(async () => false, "no text"), kept: undefined },
])("a message is rejected by a schema that answers $answers", async ({ schema, kept }) => {
  const replicas = inMemory();
  const { runtime, store } = start(replicas, schema);
  const { run_id } = await runtime.createRun({ agent_name: "strict", input: "", mode: "async" });
  await runtime.send({ to: run_id, name: "mail", data: 5 });
  await runtime.send({ to: run_id, name: "mail", data: "end" });
  await replicas.clock.advance(1_000);
  expect(textsOf(await runtime.getRun(run_id))).toEqual(["no text, end"]);
  const log = (await store.read({ tenant: "", run_id }, 0, 100)) ?? [];
  expect(log.flatMap((entry) => (entry.type === "taken" ? [entry.issues] : []))).toEqual([kept, undefined]);
});

it("a rejected message stays rejected when a process with another schema goes on", async () => {
  const replicas = inMemory();
  const first = start(replicas, z.string("no text"));
  const { run_id } = await first.runtime.createRun({ agent_name: "strict", input: "", mode: "async" });
  await first.runtime.send({ to: run_id, name: "mail", data: 5 });
  await replicas.clock.advance(1_000);
  first.kill();
  const second = start(replicas, z.unknown());
  await second.runtime.send({ to: run_id, name: "mail", data: "end" });
  await replicas.clock.advance(5_000);
  expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["no text, end"]);
  expect((await second.runtime.stats()).differences).toBe(0);
});
