export { durable } from "./durable/engine.ts";
export type { DurabilityOptions, WakeHint, Waker } from "./durable/recovery/options.ts";
export type { DurableStore } from "./runtime/runs/remote-runs.ts";
