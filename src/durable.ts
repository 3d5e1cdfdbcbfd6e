export { durable } from "./durable/durable.ts";
export type { DurabilityOptions } from "./durable/options.ts";
export type { WakeHint, Waker } from "./durable/waker.ts";
export type { DurableStore } from "./runtime/remote-runs.ts";
