import { AgentRuntime, MemoryStore } from "cadenza";
import type { Entry } from "cadenza/store";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { nextTurn } from "../../harness/promises.ts";
import { hookedStore, persistent } from "../../harness/store-proxy.ts";

const MIB = 1_048_576;

/** A persistent store that answers writes in a later turn, notes how large they are, and can fail or refuse them. */
function slowStore(becomes: (entries: readonly Entry[], n: number) => unknown = () => undefined) {
  const sizes: number[] = [];
  const store = hookedStore(async (call, method, parameters) => {
    if (method !== "append" && method !== "create") return call();
    const { entries } = parameters[method === "create" ? 1 : 2] as { readonly entries: readonly Entry[] };
    sizes.push(JSON.stringify(entries).length);
    await nextTurn();
    const instead = becomes(entries, sizes.length);
    if (instead instanceof Error) throw instead;
    return instead ?? call();
  }, persistent(new MemoryStore()));
  return { store, sizes };
}

const parts = Array.from({ length: 28 }, (_, n) => `${n} ${"x".repeat(MIB / 2)}`);

describe.concurrent.each([["durable"], ["plain"]])("what a %s agent emits in one turn", (kind) => {
  const run = async ({ store }: ReturnType<typeof slowStore>) => {
    const runtime = new AgentRuntime({ store: kind === "durable" ? durable(store) : store });
    const agent = async (_input: unknown, { emit }: { emit(part: string): unknown }) => {
      for (const part of parts) void emit(part);
    };
    if (kind === "durable") runtime.register("large", { durable: true }, agent);
    else runtime.register("large", agent);
    const ended = await runtime.createRun({ agent_name: "large", input: "" });
    const stored = await runtime.getRun(ended.run_id);
    await runtime.close();
    return { ended, stored };
  };

  it("is written in writes of about a mebibyte, in its order", async () => {
    const slow = slowStore();
    const { ended, stored } = await run(slow);
    expect(ended.status).toBe("completed");
    expect(stored.output.flatMap((message) => message.parts.map(({ content }) => content))).toEqual(parts);
    expect(Math.max(...slow.sizes)).toBeLessThan(2 * MIB);
    expect(slow.sizes.length).toBeGreaterThan(8);
  });

  it.each([2, 3, 5])(
    "is complete and in order if every %d-th write fails, before or after it was made",
    async (nth) => {
      let failures = 0;
      const slow = slowStore((_entries, n) => {
        if (n === 1 || n % nth !== 0) return undefined;
        failures += 1;
        return new Error("planted");
      });
      const { ended, stored } = await run(slow);
      expect(ended.status).toBe("completed");
      expect(stored.output.flatMap((message) => message.parts.map(({ content }) => content))).toEqual(parts);
      expect(failures).toBeGreaterThan(0);
      expect(Math.max(...slow.sizes)).toBeLessThan(4 * MIB);
    },
  );
});

describe("what a store can never hold", () => {
  const refusing = (isRefused: (entry: Entry) => boolean) =>
    slowStore((entries) =>
      entries.some(isRefused) ? { conflict: "unwritable", reason: "it is too large." } : undefined,
    );

  it.each([[true], [false]])(
    "fails its run with the kind and the size of the entry, durable: %s",
    async (isDurable) => {
      const { store } = refusing((entry) => entry.type === "emitted" && JSON.stringify(entry).includes("large"));
      const runtime = new AgentRuntime({ store: isDurable ? durable(store) : store });
      let isAborted = false;
      runtime.register("agent", { ...(isDurable && { durable: true }) }, async (_input, { emit, signal, ask }) => {
        signal.addEventListener("abort", () => {
          isAborted = true;
        });
        await emit("small");
        await nextTurn();
        void emit(`large ${"x".repeat(1_000)}`);
        await ask("Well?");
      });
      const failed = await runtime.createRun({ agent_name: "agent", input: "" });
      expect(failed).toMatchObject({
        status: "failed",
        error: {
          data: { reason: "limit_reached" },
          message: expect.stringMatching(
            /can never hold this: it is too large\. .*`emitted`, with about 1\d\d\d characters/,
          ),
        },
      });
      expect(isAborted).toBe(true);
      expect(JSON.stringify((await runtime.getRun(failed.run_id)).output)).toContain("small");
      expect(JSON.stringify(await runtime.getRun(failed.run_id))).not.toContain("xxx");
      await runtime.close();
    },
  );

  it("refuses the run if it is its input", async () => {
    const { store } = refusing(({ type }) => type === "created");
    const runtime = new AgentRuntime({ store: durable(store) }).register("agent", () => "hello");
    await expect(runtime.createRun({ agent_name: "agent", input: "" })).rejects.toMatchObject({
      code: "limit_reached",
      message: "The store can never hold this: it is too large.",
    });
    await runtime.close();
  });
});
