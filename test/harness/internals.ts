/*
 * What the tests need of the inside of the library, beside its entries: how a log is folded and judged, the keys of
 * operations, the machine's clock. A test of one module imports it from its file, and says so in
 * `test/inside.test.ts`; all others import from here.
 */

export type { Command } from "../../src/core/commands.ts";
export { decide, isRefusal } from "../../src/core/decide.ts";
export { DetailFold } from "../../src/core/detail.ts";
export { evolve, foldEntries } from "../../src/core/evolve.ts";
export type { StepFailure } from "../../src/core/failure.ts";
export type { FeedOptions, WatchedEvent } from "../../src/core/feed.ts";
export { operationsOf, stopOf } from "../../src/core/fork.ts";
export { sameJson } from "../../src/core/json.ts";
export type {
  AttemptFailedEntry,
  AwaitedEntry,
  ContinuedEntry,
  CreatedEntry,
  Decline,
  EmittedEntry,
  EmittedPart,
  EndedEntry,
  IntentEntry,
  Labels,
  OfferedEntry,
  ReceivedEntry,
  ResultEntry,
  SettledEntry,
  StepEntry,
} from "../../src/core/log.ts";
export { resultKey } from "../../src/core/operation-keys.ts";
export { ASIDE_MS } from "../../src/core/pauses.ts";
export type { AgentVersion, FeedItem, Mismatch, SessionChange, SessionHead } from "../../src/core/ports.ts";
export { project } from "../../src/core/project.ts";
export type { MaybePromise } from "../../src/core/promises.ts";
export { ignore, isPromise } from "../../src/core/promises.ts";
export { awaitRequest, runRecord, transcript } from "../../src/core/record.ts";
export { RunMap } from "../../src/core/run-map.ts";
export type { Rate, Slot } from "../../src/core/slots.ts";
export type { Replied, RunState } from "../../src/core/state.ts";
export { createdEntry, initialState, isFinal, openQuestions } from "../../src/core/state.ts";
export { counterNames } from "../../src/core/statistics.ts";
export type { AgentStatus, Metadata } from "../../src/protocol/agent.ts";
export type { ErrorCode } from "../../src/protocol/error.ts";
export type { EventType, RunEvent } from "../../src/protocol/event.ts";
export type { Role } from "../../src/protocol/message.ts";
export type { RunStatus } from "../../src/protocol/run.ts";
export { SeededRandom, seedOf } from "../../src/runtime/execution/random.ts";
export { machineClock, silentLogger, systemClock } from "../../src/runtime/log/system.ts";
export type { OpenedStores, OpenStoresOptions } from "../../src/stores/contract/check.ts";
export { MOST_THROUGH } from "../../src/stores/gates.ts";
export type { MemoryStoreOptions } from "../../src/stores/memory/memory.ts";
export { clock as postgresClock } from "../../src/stores/postgres/connection.ts";
export type { PostgresClient, PostgresResult } from "../../src/stores/postgres/options.ts";
export { quoteName } from "../../src/stores/postgres/schema.ts";
export type { SqliteStatement } from "../../src/stores/sqlite/database.ts";
export { POSITION_BITS } from "../../src/stores/sqlite/entries.ts";
