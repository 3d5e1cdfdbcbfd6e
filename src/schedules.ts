export {
  type Schedule,
  type ScheduleDefinition,
  type SchedulePage,
  type Schedules,
  type SchedulesOptions,
  schedules,
} from "./schedules/schedules.ts";
