import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { traceRuns } from "cadenza/otel";

export const admin = createAdmin(new AgentRuntime({ interceptors: [traceRuns()] }));
export const traces = traceRuns();
export const runs = () => admin.runs();
export const questions = () => admin.questions();
export const log = (run_id: string) => admin.log(run_id);
export const steps = (run_id: string) => admin.steps(run_id);
export const timeline = (run_id: string) => admin.timeline(run_id);
export const lines = () => admin.lines();
export const workers = () => admin.workers();
