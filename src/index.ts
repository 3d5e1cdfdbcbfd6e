export {
  AgentError,
  CadenzaError,
  type CadenzaErrorCode,
  type CadenzaErrorDetails,
  type Issue,
} from "./core/errors.ts";
export type { FeedOptions, WatchedEvent } from "./core/feed.ts";
export type { ForkOrigin, Labels, QuestionKind, QuestionRef } from "./core/log.ts";
export type { Clock, Ids, Logger, Mismatch } from "./core/ports.ts";
export type { StreamedEvent } from "./core/project.ts";
export type { MaybePromise } from "./core/promises.ts";
export type { RunSummary } from "./core/record.ts";
export type { Counters } from "./core/statistics.ts";

export type { AgentManifest, AgentStatus, Metadata } from "./protocol/agent.ts";
export type { ErrorCode, ProtocolError } from "./protocol/error.ts";
export type { EventType, RunEvent } from "./protocol/event.ts";
export type { DetailEvent, OpenQuestionDetails, Usage } from "./protocol/extensions.ts";
export type { JsonInput, JsonObject, JsonValue } from "./protocol/json.ts";
export type { Message, MessageInput, MessagePart, MessagePartInput, Role } from "./protocol/message.ts";
export type { AwaitRequest, AwaitResume, Run, RunMode, RunStatus } from "./protocol/run.ts";
export {
  type Agent,
  type AgentDeclaration,
  type AgentFunction,
  type AgentOptions,
  type AgentResult,
  type AgentValue,
  awaitMessage,
  type ConcurrencyOptions,
  type DurableAgentFunction,
  type RegisterOptions,
} from "./runtime/agent/agent.ts";
export type {
  AgentContext,
  AgentSession,
  DurableContext,
  SubRunOptions,
  UsageReport,
} from "./runtime/agent/agent-context.ts";
export type {
  AgentInput,
  AgentOutput,
  AgentSchemas,
  CallableAgent,
  SchemasByName,
} from "./runtime/agent/agent-schemas.ts";
export type { DurableStep, Recordable, Step, StepOptions, StepRetry, StepScope } from "./runtime/agent/agent-steps.ts";
export type {
  AnswerDetails,
  Ask,
  AskOptions,
  MessageDetails,
  Question,
  Receive,
  ReceiveOptions,
  Sleep,
  SleepOptions,
} from "./runtime/agent/agent-waits.ts";
export type { DeclaredAsk, DeclaredReceive, TypedContext } from "./runtime/agent/define-agent.ts";
export {
  type AgentDraft,
  type DeclaredSchemas,
  defineAgent,
  type TypedAgentFunction,
  type TypedAgentOptions,
} from "./runtime/agent/define-agent.ts";
export type { AwaitYield } from "./runtime/agent/generator.ts";
export type { InputItem, RunInput } from "./runtime/agent/input.ts";
export type {
  AskInfo,
  AskPassage,
  CreateInfo,
  Interceptor,
  RunInfo,
  RunPassage,
  StepInfo,
} from "./runtime/agent/interceptors.ts";
export type { SchemaInput, SchemaOutput, StandardSchema } from "./runtime/agent/standard-schema.ts";
export { textOf } from "./runtime/agent/text-of.ts";
export type { BudgetOptions } from "./runtime/agent/usage.ts";
export { AgentRuntime, type CloseReport, type LeftRun, type RuntimeStats } from "./runtime/api/agent-runtime.ts";
export type { AskedOfCaller, CallOptions } from "./runtime/api/call-agent.ts";
export type { ForkOptions } from "./runtime/api/forks.ts";
export type { Scope } from "./runtime/api/scope.ts";
export type { DetailedEvent } from "./runtime/log/event-stream.ts";
export type { RunsReport } from "./runtime/log/shared-by-runs.ts";
export type { Watch, Watched, WatchedType, WatchOptions } from "./runtime/log/watch.ts";
export type { AnnouncedType, BlockedEvent, EventListener, EventOf, EventOrigin } from "./runtime/runs/announcer.ts";
export type { AuditedAction, AuditedCall, AuditedObjects, AuditedRefusal, AuditRecord } from "./runtime/runs/audit.ts";
export type { LimitOptions, RetentionOptions, RuntimeOptions } from "./runtime/runs/options.ts";
export type { BlockedRun } from "./runtime/runs/remote-runs.ts";
export type {
  CancelOptions,
  CreateRunOptions,
  CreateRunRequest,
  EventsOptions,
  LabelledRun,
  ListRunsQuery,
  ResumeOptions,
  ResumeRequest,
  RunDetails,
  SendOptions,
  SendRequest,
  Session,
} from "./runtime/runs/requests.ts";
export { MemoryStore, type MemoryStoreOptions } from "./stores/memory/memory.ts";
