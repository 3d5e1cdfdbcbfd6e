export { durable } from "./durable/durable.ts";
export type { DurabilityOptions } from "./durable/recovery/options.ts";
export type { WakeHint, Waker } from "./durable/recovery/waker.ts";
export type { DurableStore } from "./runtime/runs/remote-runs.ts";
