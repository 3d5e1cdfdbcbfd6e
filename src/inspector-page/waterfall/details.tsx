import type { AdminRun } from "../../admin/records.ts";
import type { TimelineItem } from "../../admin/timeline.ts";
import type { Forking } from "../consequences.ts";
import { Icon } from "../icons.tsx";
import { Body, Failure, ForkButton } from "../items.tsx";
import { Json, LongText } from "../json-view.tsx";
import { hrefToRun } from "../place.ts";
import { textOf } from "../text-of.ts";
import { Age, Contained, duration, Lasted, now } from "../words.tsx";
import type { Row } from "./rows.ts";
import { longestOf } from "./rows.ts";

/** How many of the last pieces of output are shown. */
const PIECES = 50;

/** What is known of an operation. */
export function Details({ row, forking }: { readonly row: Row; readonly forking: Forking | undefined }) {
  const { item, run, name, icon, type, from } = row;
  if (item === null) return null;
  const began = Date.parse(run.created?.at ?? item.at);
  const queued = "queued_ms" in item ? (item.queued_ms ?? 0) : 0;
  return (
    <Contained key={row.id}>
      <h2>
        <Icon is={icon} /> {name}
      </h2>
      <dl class="facts">
        <div>
          <dt>{type} began</dt>
          <dd title={item.at}>+{duration(Math.max(0, Date.parse(item.at) - began))}</dd>
        </div>
        {"ended_at" in item && (
          <div>
            <dt>{item.ended_at === null && run.finished_at === null ? "For" : "Took"}</dt>
            <dd>
              <Lasted from={item.at} to={item.ended_at ?? run.finished_at} />
            </dd>
          </div>
        )}
        {queued > 0 && (
          <div>
            <dt>Waited for a slot</dt>
            <dd title={new Date(from).toISOString()}>{duration(queued)}</dd>
          </div>
        )}
        <div>
          <dt>When</dt>
          <dd>
            <Age of={item.at} />
          </dd>
        </div>
      </dl>
      {item.type === "sub_run" && (
        <p>
          <a class="button" href={hrefToRun({ tenant: run.tenant, run_id: item.run_id })}>
            Open the run
          </a>
        </p>
      )}
      <div class="body">
        <Body item={item} run={run} />
      </div>
      {"key" in item && item.type !== "ended" && <ForkButton forking={forking} before={item.key} />}
    </Contained>
  );
}

/** What went into a run, what came out, and why it failed. */
export function Summary({
  run,
  items,
  forking,
  onSelect,
}: {
  readonly run: AdminRun;
  readonly items: readonly TimelineItem[];
  readonly forking: Forking | undefined;
  /** Called with the id of a line whose details are to be shown. */
  readonly onSelect: (id: string) => void;
}) {
  const longest = longestOf({ run, items }, now.peek());
  const created = items.find((item) => item.type === "created");
  const last = items.at(-1);
  const pieces = items.filter((item) => item.type === "output").slice(-PIECES);
  return (
    <Contained>
      {last?.type === "ended" && last.error !== null && (
        <section>
          <h2 class="error">
            <Icon is="failed" /> Why it failed
          </h2>
          <p class="error">{last.error.message}</p>
          {last.key !== null && (
            <p>
              The agent did not handle the error of <code>{last.key}</code>.
            </p>
          )}
          {last.cause !== null && <Failure error={last.cause} />}
          <ForkButton forking={forking} />
        </section>
      )}
      <section>
        <h2>Input</h2>
        {created?.input.map(({ role, parts }, index) => (
          <p key={String(index)} class="said">
            <span class="faint">{role}: </span>
            {textOf(parts) === "" ? <span class="faint">empty</span> : <LongText text={textOf(parts)} />}
          </p>
        ))}
      </section>
      <section aria-live="polite">
        <h2>Output</h2>
        {pieces.length === 0 && <p class="faint">{run.finished_at === null ? "None so far." : "None."}</p>}
        {pieces.map(({ position, text, objects }) => (
          <div key={position}>
            {text !== "" && (
              <p class="said">
                <LongText text={text} />
              </p>
            )}
            {objects.map((value, index) => (
              <Json key={String(index)} value={value} />
            ))}
          </div>
        ))}
      </section>
      {longest.length > 0 && (
        <section>
          <h2>Took longest</h2>
          <ol class="longest">
            {longest.map(({ id, icon, type, name, from, to }) => (
              <li key={id}>
                <button type="button" class="link" onClick={() => onSelect(id)}>
                  <Icon is={icon} />
                  <span class="unseen">{type} </span>
                  {name}
                </button>
                <Lasted from={new Date(from).toISOString()} to={to === null ? null : new Date(to).toISOString()} />
              </li>
            ))}
          </ol>
        </section>
      )}
      <p class="faint">Choose a line to see what it was given, what it gave, its attempts and its errors.</p>
    </Contained>
  );
}
