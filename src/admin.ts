export type { AdminAct } from "./admin/acts.ts";
export { Admin, createAdmin } from "./admin/admin.ts";
export type { AdminTimeline } from "./admin/one-run.ts";
export type {
  AdminBacklog,
  AdminBlocked,
  AdminChange,
  AdminFailure,
  AdminPage,
  AdminQuestion,
  AdminRun,
  AdminTree,
  AdminUnregistered,
  AdminVersion,
  AdminWorker,
} from "./admin/records.ts";
export type { AdminRunQuery } from "./admin/several-runs.ts";
export type { StepItem, TimelineItem } from "./admin/timeline.ts";
