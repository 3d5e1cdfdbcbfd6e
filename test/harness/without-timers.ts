import { AsyncLocalStorage, createHook } from "node:async_hooks";
import { expect } from "vitest";

const storage = new AsyncLocalStorage<string[]>();
const hook = createHook({
  init: (_id, type) => {
    if (type === "Timeout") storage.getStore()?.push(new Error("A real timer was set.").stack ?? "");
  },
});
hook.enable();

/** A test in which neither the agent nor the library nor the kit may set a real timer. */
export function withoutTimers(body: () => Promise<void>): () => Promise<void> {
  return async () => {
    const created: string[] = [];
    await storage.run(created, body);
    expect(created).toEqual([]);
  };
}
