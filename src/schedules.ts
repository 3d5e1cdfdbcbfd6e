export {
  type Schedule,
  type ScheduleDefinition,
  type Schedules,
  schedules,
} from "./schedules/schedules.ts";
