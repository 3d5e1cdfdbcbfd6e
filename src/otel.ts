export { measureRuntime } from "./otel/measure-runtime.ts";
export { traceRuns } from "./otel/trace-runs.ts";
