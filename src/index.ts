export { AgentError, CadenzaError, type CadenzaErrorCode, type Issue } from "./core/errors.ts";
export type { Clock, Ids, Logger } from "./core/ports.ts";
export type { StreamedEvent } from "./core/project.ts";
export type { RunSummary } from "./core/record.ts";
export type { Counters } from "./core/statistics.ts";
export type { AgentManifest } from "./protocol/agent.ts";
export type { ProtocolError } from "./protocol/error.ts";
export type { DetailEvent, OpenQuestionDetails, Usage } from "./protocol/extensions.ts";
export type { JsonObject, JsonValue } from "./protocol/json.ts";
export type { Message, MessageInput, MessagePart, MessagePartInput } from "./protocol/message.ts";
export type { AwaitRequest, AwaitResume, Run } from "./protocol/run.ts";
export { type Agent, type AgentFunction, type AgentOptions, awaitMessage } from "./runtime/agent/agent.ts";
export type { AgentContext, DurableContext } from "./runtime/agent/agent-context.ts";
export type { AgentInput, AgentOutput, AgentSchemas, CallableAgent } from "./runtime/agent/agent-schemas.ts";
export type { StepOptions, StepScope } from "./runtime/agent/agent-steps.ts";
export type { AnswerDetails, AskOptions, MessageDetails, ReceiveOptions } from "./runtime/agent/agent-waits.ts";
export { type AgentDraft, defineAgent } from "./runtime/agent/define-agent.ts";
export type { AwaitYield } from "./runtime/agent/generator.ts";
export type { RunInput } from "./runtime/agent/input.ts";
export type { AskInfo, CreateInfo, Interceptor, RunInfo, StepInfo } from "./runtime/agent/interceptors.ts";
export type { StandardSchema } from "./runtime/agent/standard-schema.ts";
export { textOf } from "./runtime/agent/text-of.ts";
export { AgentRuntime, type CloseReport, type RuntimeStats } from "./runtime/api/agent-runtime.ts";
export type { AskedOfCaller, CallOptions } from "./runtime/api/call-agent.ts";
export type { ForkOptions } from "./runtime/api/forks.ts";
export type { Scope } from "./runtime/api/scope.ts";
export type { DetailedEvent } from "./runtime/log/event-stream.ts";
export type { Watch, Watched } from "./runtime/log/watch.ts";
export type { EventListener, EventOrigin } from "./runtime/runs/announcer.ts";
export type { AuditRecord } from "./runtime/runs/audit.ts";
export type { RuntimeOptions } from "./runtime/runs/options.ts";
export type {
  CreateRunOptions,
  CreateRunRequest,
  ListRunsQuery,
  ResumeRequest,
  RunDetails,
  SendRequest,
  Session,
} from "./runtime/runs/requests.ts";
export { MemoryStore } from "./stores/memory/memory.ts";
