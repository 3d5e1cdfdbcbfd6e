export type { WatchedEvent } from "./core/feed.ts";
export type { Entry } from "./core/log.ts";
export type {
  AgentVersion,
  Backlog,
  BlockedQuery,
  DamagedRun,
  Expected,
  FeedItem,
  FeedPage,
  FeedQuery,
  FoundRun,
  Mismatch,
  Retention,
  RunHead,
  RunKey,
  RunPosition,
  RunPost,
  RunWrite,
  SessionChange,
  SessionKey,
  Slot,
  Store,
  StoreConflict,
  StoredRun,
  StoredSession,
  StoreHint,
  TakeRequest,
} from "./core/ports.ts";
export type { RunQuery } from "./core/run-query.ts";
export type { LiveCount, LogTail, SurveyPage, SurveyQuery, Surveys, WorkerLease } from "./core/survey.ts";
export type { OpenedStores, OpenStores, OpenStoresOptions, StoreCheck } from "./stores/contract/check.ts";
export { storeContract } from "./stores/contract/store-contract.ts";
