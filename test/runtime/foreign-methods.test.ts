import { AgentRuntime, awaitMessage } from "cadenza";
import { describe, expect, test } from "vitest";

/** Names that the language, Node or a library may give a method of its own, today or tomorrow. */
const NAMES = ["drop", "take", "map", "toArray", "close", "dispose", "leave", "abandon", "end", "destroy"] as const;

/** Methods that count their calls, and refuse to be called without an argument, as `Iterator.prototype.drop` does. */
function strangersMethods(called: string[]): PropertyDescriptorMap {
  const names: readonly PropertyKey[] = [...NAMES, symbolOf("dispose"), symbolOf("asyncDispose")];
  const method = (name: PropertyKey): PropertyDescriptor => ({
    configurable: true,
    value: () => {
      called.push(String(name));
      throw new RangeError(`${String(name)} of a stranger was called`);
    },
  });
  return Object.fromEntries(names.map((name) => [name, method(name)]));
}

/** `Symbol.dispose` and `Symbol.asyncDispose`, which Node 20 has too. */
function symbolOf(name: "dispose" | "asyncDispose"): symbol {
  return (Symbol as unknown as Record<string, symbol>)[name] ?? Symbol.for(`Symbol.${name}`);
}

describe("an agent whose generators inherit methods of their own", () => {
  const forms = {
    "a plain generator": function* () {
      yield awaitMessage("Well?");
    },
    "an async generator": async function* () {
      yield awaitMessage("Well?");
    },
  };

  test.each(Object.entries(forms))("%s is cancelled, and none of them is called", async (_name, agent) => {
    const called: string[] = [];
    Object.defineProperties(agent.prototype as object, strangersMethods(called));
    const runtime = new AgentRuntime();
    runtime.register("asker", agent);
    const { run_id } = await runtime.createRun({ agent_name: "asker", input: "" });
    await runtime.cancel(run_id);
    await runtime.close();

    expect(await statusOf(runtime, run_id)).toBe("cancelled");
    expect(called).toEqual([]);
  });
});

async function statusOf(runtime: AgentRuntime, run_id: string): Promise<string> {
  return (await runtime.getRun(run_id)).status;
}
