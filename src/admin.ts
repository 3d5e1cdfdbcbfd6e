export type { AdminAct } from "./admin/acts.ts";
export { Admin, createAdmin } from "./admin/admin.ts";
export type { AdminTimeline } from "./admin/one-run.ts";
export type {
  AdminChange,
  AdminQuestion,
  AdminRun,
  AdminTree,
} from "./admin/records.ts";
export type { AdminRunQuery } from "./admin/several-runs.ts";
export type { TimelineItem } from "./admin/timeline.ts";
