import { useState } from "preact/hooks";
import type { InspectedSchedule, SchedulesEvent } from "../inspector/api.ts";
import { useFeed } from "./feed.ts";
import { hrefToRun } from "./place.ts";
import { act, addressOf, messageOf, start } from "./server.ts";
import { Age, count, duration, Empty, Notice, shortId, wholeTime } from "./words.tsx";

/** The schedules, with their next times. */
export function SchedulesView() {
  const [event, setEvent] = useState<SchedulesEvent | null>(null);
  const refused = useFeed<SchedulesEvent>(addressOf("feed/schedules"), setEvent);
  return (
    <>
      <h1>Schedules</h1>
      {refused !== null && <Notice>{refused}</Notice>}
      {event === null && refused === null && <p role="status">Loading …</p>}
      {event?.schedules.length === 0 && (
        <Empty is="There are no schedules.">
          A process makes one with <code>schedules(runtime).put(…)</code>.
        </Empty>
      )}
      {event !== null && event.schedules.length > 0 && (
        <>
          <p class="count" role="status">
            {event.more && "The first "}
            {count(event.schedules.length, "schedule")}
          </p>
          <ul class="cards">
            {event.schedules.map((schedule) => (
              <li key={`${schedule.tenant} ${schedule.id}`} class="card schedule">
                <ScheduleCard schedule={schedule} />
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

function ScheduleCard({ schedule }: { readonly schedule: InspectedSchedule }) {
  const { id, tenant, agent_name, version, is_paused, is_waiting, next, last, skipped_at, refused } = schedule;
  return (
    <>
      <h2>
        {id} {tenant !== "" && <span class="chip">{tenant}</span>} {is_paused && <span class="chip">paused</span>}
      </h2>
      <p>
        Runs <b>{agent_name}</b> {version} {rhythmOf(schedule)}
        {is_waiting && ". A time waits for the end of the run before, or for a process"}.
      </p>
      <div class="times">
        <b>{is_paused ? "Would run" : "Runs"}</b>
        {next.length === 0 && <span class="faint">at no further time</span>}
        {next.map((time, index) => (
          <span key={time} class="chip">
            {index === 0 ? <Age of={time} /> : <time dateTime={time}>{wholeTime(time)}</time>}
          </span>
        ))}
      </div>
      <p class="faint">
        {last === null ? (
          "It has created no run yet."
        ) : (
          <>
            Last run <a href={hrefToRun({ tenant, run_id: last.run_id })}>{shortId(last.run_id)}</a>, for{" "}
            <Age of={last.time} />.
          </>
        )}
        {skipped_at !== null && (
          <>
            {" "}
            A time was left out <Age of={skipped_at} />, since the run before had not ended.
          </>
        )}
      </p>
      {refused !== null && (
        <Notice>
          The run of {wholeTime(refused.time)} could not be created: {refused.message}
        </Notice>
      )}
      <ScheduleActions schedule={schedule} />
    </>
  );
}

function rhythmOf({ cron, every_ms, time_zone }: InspectedSchedule): string {
  return cron === null ? `every ${duration(every_ms ?? 0)}` : `at ${cron} in ${time_zone}`;
}

function ScheduleActions({ schedule: { id, tenant, is_paused } }: { readonly schedule: InspectedSchedule }) {
  const [said, setSaid] = useState<{ readonly kind: "error" | "info"; readonly text: string } | null>(null);
  const [key, setKey] = useState(newKey);
  if (start.value?.may_write !== true) return null;
  const attempt = async (what: string, body: object, text: string): Promise<void> => {
    try {
      await act(what, { tenant, id, ...body });
      setSaid({ kind: "info", text });
    } catch (error) {
      setSaid({ kind: "error", text: messageOf(error) });
    }
  };
  const trigger = (): Promise<void> =>
    attempt("trigger-schedule", { key }, "A run was asked for, beside the times.").then(() => setKey(newKey()));
  return (
    <>
      <p class="buttons">
        {is_paused ? (
          <button type="button" onClick={() => attempt("resume-schedule", {}, "It creates runs again.")}>
            Resume
          </button>
        ) : (
          <button
            type="button"
            onClick={() => attempt("pause-schedule", {}, "It creates no runs until it is resumed.")}
          >
            Pause
          </button>
        )}
        <button type="button" onClick={trigger}>
          Run now
        </button>
      </p>
      {said !== null && <Notice kind={said.kind}>{said.text}</Notice>}
    </>
  );
}

/** A trigger that is sent twice is one. */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
