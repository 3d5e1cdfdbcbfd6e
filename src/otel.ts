export type { MeasureOptions } from "./otel/measure-runtime.ts";
export { measureRuntime } from "./otel/measure-runtime.ts";
export type { TraceOptions } from "./otel/trace-runs.ts";
export { traceRuns } from "./otel/trace-runs.ts";
