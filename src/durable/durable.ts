import type { Store } from "../core/ports.ts";
import { checkObject } from "../runtime/agent/check.ts";
import type { DurableStore } from "../runtime/runs/remote-runs.ts";
import { engineKey } from "../runtime/runs/remote-runs.ts";
import { durableEngine } from "./engine.ts";
import type { DurabilityOptions } from "./recovery/options.ts";

/**
 * Makes a store durable: the runs of its durable agents survive the end of their process, and go on in any process that
 * uses the store. The stores of `cadenza/sqlite` are durable already; wrap them for other options. Throws
 * `invalid_argument` for an unknown or invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime, MemoryStore } from "cadenza";
 * import { durable } from "cadenza/durable";
 *
 * const store = durable(new MemoryStore(), { leaseMs: 5_000 }); // yours
 * const runtime = new AgentRuntime({ store });
 * await runtime.close();
 * ```
 */
export function durable(store: Store, options: DurabilityOptions = {}): DurableStore {
  checkObject("store", store);
  const engine = durableEngine(options);
  const bound = new Map<unknown, unknown>();
  return new Proxy(store, {
    get(target, name) {
      if (name === engineKey) return engine;
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      // A class with private members needs its own object as `this`.
      if (!bound.has(member)) bound.set(member, member.bind(target));
      return bound.get(member);
    },
  }) as DurableStore;
}
