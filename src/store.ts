export type { Entry } from "./core/log.ts";
export type {
  Backlog,
  BlockedQuery,
  Expected,
  FeedPage,
  FeedQuery,
  FoundRun,
  Retention,
  RunHead,
  RunKey,
  RunPosition,
  RunPost,
  RunWrite,
  SessionHead,
  SessionKey,
  Store,
  StoreConflict,
  StoredRun,
  StoredSession,
  StoreHint,
  TakeRequest,
} from "./core/ports.ts";
export type { MaybePromise } from "./core/promises.ts";
export type { RunQuery } from "./core/run-query.ts";
export type { LiveCount, LogTail, SurveyPage, SurveyQuery, WorkerLease } from "./core/survey.ts";
export { durable } from "./durable/engine.ts";
export type { DurabilityOptions, Waker } from "./durable/recovery/options.ts";
