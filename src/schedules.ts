export {
  type Schedule,
  type ScheduleDefinition,
  type Schedules,
  type SchedulesOptions,
  schedules,
} from "./schedules/schedules.ts";
