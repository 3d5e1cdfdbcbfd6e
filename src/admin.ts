export type { AdminOptions, AdminWatchOptions, OperatedRuntime, OperatedStore, ShownRun } from "./admin/admin.ts";
export { Admin, createAdmin } from "./admin/admin.ts";
export type { AdminTimeline, PageQuery, RunRef, TimelineQuery } from "./admin/one-run.ts";
export type {
  AdminBacklog,
  AdminBlocked,
  AdminChange,
  AdminFailure,
  AdminPage,
  AdminQuestion,
  AdminRun,
  AdminRunOrigin,
  AdminTree,
  AdminUnregistered,
  AdminVersion,
  AdminWorker,
} from "./admin/records.ts";
export type { AdminRunQuery } from "./admin/several-runs.ts";
export type {
  MarkItem,
  MessageItem,
  OutputItem,
  QuestionItem,
  ReceiveItem,
  SleepItem,
  StepAttempt,
  StepItem,
  SubRunItem,
  TimelineItem,
} from "./admin/timeline.ts";
