import { isNotFound } from "../core/errors.ts";
import type { Schedules } from "../schedules/schedules.ts";
import type { InspectedSchedule, SchedulesEvent } from "./api.ts";
import type { Feed } from "./feed.ts";

/** How often schedules are read, in milliseconds. */
const LOOK_MS = 2_000;
/** How many schedules are shown, and how many next times of each. */
const MOST = 500;
const TIMES = 5;

/** The schedules of a tenant, or of all, whenever they differ. */
export function schedulesFeed(schedules: Schedules, tenant: string | undefined): Feed {
  return async function* (pause) {
    let before = "";
    let known = new Map<string, { readonly text: string; readonly next: readonly string[] }>();
    do {
      const { items, next: more } = await schedules.list({ tenant, limit: MOST });
      const now: typeof known = new Map();
      const shown: InspectedSchedule[] = [];
      for (const schedule of items) {
        const key = JSON.stringify([schedule.tenant, schedule.id]);
        const text = JSON.stringify(schedule);
        const kept = known.get(key);
        // A schedule of which nothing has changed has the same next times.
        const next = kept?.text === text ? kept.next : await timesOf(schedules, schedule);
        if (next === undefined) continue;
        now.set(key, { text, next });
        shown.push({ ...schedule, next });
      }
      known = now;
      const event: SchedulesEvent = { type: "schedules", schedules: shown, more: more !== null };
      const text = JSON.stringify(event);
      if (text !== before) yield event;
      before = text;
    } while (await pause(LOOK_MS));
  };
}

/** The next times; undefined: the schedule has been removed since it was listed. */
async function timesOf(
  schedules: Schedules,
  { id, tenant }: Pick<InspectedSchedule, "id" | "tenant">,
): Promise<readonly string[] | undefined> {
  try {
    return await schedules.next(id, TIMES, { tenant });
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}
