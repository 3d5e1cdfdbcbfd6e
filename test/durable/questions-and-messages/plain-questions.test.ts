import { expect, it } from "vitest";
import type { Setup } from "../../harness/runtimes.ts";
import { setUp } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";

function warnings({ said }: Setup): readonly unknown[] {
  const warned = said.filter(({ message }) => message.startsWith("An agent that is not durable waits for an answer."));
  return warned.map(({ level, fields }) => [level, fields["agent_name"], fields["run_id"]]);
}

it("a plain agent that asks on a persistent store: the logger is warned, once, at the first question", async () => {
  const set = setUp({ store: lastingStore() });
  const { runtime } = set;
  for (const name of ["one", "other"]) runtime.register(name, (_input, { ask }) => ask("Well?"));
  runtime.register("quiet", () => "done");
  await runtime.createRun({ agent_name: "quiet", input: "" });
  expect(warnings(set)).toEqual([]);
  const { run_id } = await runtime.createRun({ agent_name: "one", input: "" });
  await runtime.createRun({ agent_name: "one", input: "" });
  await runtime.createRun({ agent_name: "other", input: "" });
  expect(warnings(set)).toEqual([["warn", "one", run_id]]);
});

it.each([
  { of: "a durable agent on such a store", durable: true, isPersistent: true },
  { of: "a plain agent on a store that ends with the process", durable: false, isPersistent: false },
])("no warning is given when $of asks", async ({ durable, isPersistent }) => {
  const set = setUp(isPersistent ? { store: lastingStore() } : {});
  set.runtime.register("agent", { durable }, async (_input, { ask }) => void (await ask("Well?")));
  await set.runtime.createRun({ agent_name: "agent", input: "" });
  expect(warnings(set)).toEqual([]);
});
