import type { RuntimeOptions } from "cadenza";
import { MemoryStore } from "cadenza";
import type { DurabilityOptions } from "cadenza/store";
import { durable } from "cadenza/store";

/** The options of a runtime, with those of its durable store. */
export interface DurableRuntimeOptions extends RuntimeOptions {
  readonly durability?: DurabilityOptions | undefined;
}

/** The options of a runtime on a durable store. Without a store: one in memory. */
export function onDurableStore({ durability, store, ...options }: DurableRuntimeOptions = {}): RuntimeOptions {
  return { ...options, store: durable(store ?? new MemoryStore({ clock: options.clock }), durability) };
}
