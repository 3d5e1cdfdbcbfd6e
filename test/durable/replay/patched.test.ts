import type { AgentFunction } from "cadenza";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type { Entry } from "cadenza/store";
import { durable } from "cadenza/store";
import { drive, record, replay } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import { refusal, setUp, textsOf } from "../../harness/runtimes.ts";

/* `context.patched` apart from where a run stands, for which see `test/testing/every-upgrade.test.ts`. */

const done = () => "done";

async function logOf(store: MemoryStore, run_id: string): Promise<readonly Entry[]> {
  return (await store.read({ tenant: "", run_id }, 0, 1_000)) ?? [];
}

const patchesIn = (log: readonly Entry[]) => log.flatMap((entry) => (entry.type === "patched" ? [entry.id] : []));

const patching: AgentFunction = async (_input, { step, patched }) => {
  const said = [patched("a")];
  await step("one", done);
  said.push(patched("b"), patched("a"));
  await step("two", done);
  said.push(patched("b"));
  return said.join(" ");
};

describe("a run of the code that asks for a patch", () => {
  it.each([false, true])("has it, and its log says so once: replayed %s", async (alwaysReplay) => {
    const store = new MemoryStore();
    const runtime = new AgentRuntime({ store: durable(store, { alwaysReplay }) });
    runtime.register("agent", { durable: true }, patching);
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(textsOf(run)).toEqual(["true true true true"]);
    expect(patchesIn(await logOf(store, run.run_id))).toEqual(["a", "b"]);
    await runtime.close();
  });

  it("has it without a line in the log if it is not durable", async () => {
    const store = new MemoryStore();
    const runtime = new AgentRuntime({ store });
    runtime.register("agent", patching);
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(textsOf(run)).toEqual(["true true true true"]);
    expect(patchesIn(await logOf(store, run.run_id))).toEqual([]);
  });

  it("has it under test", async () => {
    expect(textsOf(await drive(patching, "").finish())).toEqual(["true true true true"]);
  });
});

describe("an id", () => {
  it.each([
    ["", "patch id: expected"],
    [7, "patch id: expected"],
  ])("%j is refused", async (id, message) => {
    const { runtime } = setUp();
    runtime.register("agent", { durable: true }, (_input, { patched }) => `${patched(id as string)}`);
    const { status, error } = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(status).toBe("failed");
    expect(error?.message).toContain(message);
  });

  it("is refused inside the body of a step of a durable agent", async () => {
    const { runtime } = setUp();
    const agent: AgentFunction = (_input, { step, patched }) => step("body", () => `${patched("a")}`);
    runtime.register("plain", agent);
    runtime.register("durable", { durable: true }, async (input, context) => {
      const error = await refusal(agent(input, context) as Promise<unknown>);
      return error.code;
    });
    expect(textsOf(await runtime.createRun({ agent_name: "durable", input: "" }))).toEqual(["nested_operation"]);
  });
});

describe("a fork", () => {
  const old: AgentFunction = async (_input, { step }) => {
    await step("one", done);
    await step("two", done);
    return "old";
  };
  const young: AgentFunction = async (_input, { step, patched }) => {
    await step("one", done);
    const isNew = patched("new");
    await step("two", done);
    return isNew ? "new" : "old";
  };

  it("has the patch where it begins before the place, and does not where it begins behind it", async () => {
    const { runtime } = setUp();
    runtime.register("agent", { durable: true }, old);
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    runtime.register("agent", { durable: true, replace: true }, young);
    const before = await runtime.fork(run_id, { before: "two#1" });
    expect(textsOf(before)).toEqual(["new"]);
    const behind = await runtime.fork(run_id);
    expect(textsOf(behind)).toEqual(["old"]);
    // What the agent has asked last is asked again.
    const again = await runtime.fork(before.run_id, { before: "two#1" });
    expect(textsOf(again)).toEqual(["new"]);
    expect(textsOf(await runtime.fork(before.run_id))).toEqual(["new"]);
  });
});

describe("a cassette", () => {
  const agentOf = (fn: AgentFunction) => defineAgent("agent", { durable: true }, fn as never);

  it.each([
    [false, "false"],
    [true, "true"],
  ])("is replayed with the patches that its run had: %s", async (isNew, said) => {
    const old: AgentFunction = async (_input, { step }) => {
      await step("one", done);
      return `${false}`;
    };
    const young: AgentFunction = async (_input, { step, patched }) => {
      const has = patched("a");
      await step("one", done);
      return `${has}`;
    };
    const store = new MemoryStore();
    const runtime = new AgentRuntime({ store: durable(store) }).register(agentOf(isNew ? young : old));
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    const replayed = await replay(agentOf(young), await record(store, run));
    expect(textsOf(replayed)).toEqual([said]);
    await runtime.close();
  });
});
