import { useEffect, useRef, useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import type { RunEvent } from "../inspector/api.ts";
import { RunActions } from "./actions.tsx";
import { hrefToComparison } from "./comparison/comparison.tsx";
import type { Forking } from "./consequences.ts";
import { forkSays } from "./consequences.ts";
import { FamilyView } from "./family.tsx";
import { useFeed } from "./feed.ts";
import { Icon } from "./icons.tsx";
import { Item, Question } from "./items.tsx";
import { Json } from "./json-view.tsx";
import { RawLog } from "./log.tsx";
import { goTo, hrefTo, hrefToRun, inQuery, setQuery } from "./place.ts";
import { PlaygroundCard } from "./playground.tsx";
import { act, addressOf, start } from "./server.ts";
import type { Reason, Waited } from "./waits-for.ts";
import { waitsFor } from "./waits-for.ts";
import { Details, Summary } from "./waterfall/details.tsx";
import type { Told } from "./waterfall/rows.ts";
import { Waterfall } from "./waterfall/waterfall.tsx";
import { Age, Contained, count, duration, Notice, now, Status, shortId, shownStatus } from "./words.tsx";

/** How many lines of a timeline are in the page, until the user asks for earlier ones. */
const LINES = 150;
/** How long several events are drawn together, in milliseconds. */
const DRAWN_MS = 200;

/** What is known of a run. */
interface Known extends Omit<Extract<RunEvent, { readonly type: "run" }>, "type" | "items"> {
  /** By their positions, in the order in which they began. */
  readonly byPosition: Map<number, TimelineItem>;
  readonly told: Told;
}

/** A run's page: what it waits for, what it did, and what can be done. */
export function RunView({ tenant, run_id }: { readonly tenant: string; readonly run_id: string }) {
  const [known, setKnown] = useState<Known | "gone" | null>(null);
  const told = useRef<Known | undefined>(undefined);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const refused = useFeed<RunEvent>(addressOf("feed/run", { tenant, run_id }), (event) => {
    if (event.type === "gone") {
      setKnown("gone");
      return;
    }
    told.current = withEvent(told.current, event);
    const show = (): void => {
      timer.current = undefined;
      const { current } = told;
      if (current !== undefined)
        setKnown({ ...current, told: { run: current.run, items: [...current.byPosition.values()] } });
    };
    // The pieces of a long run come faster than they can be drawn.
    if (known === null) show();
    else timer.current ??= setTimeout(show, DRAWN_MS);
  });
  if (refused !== null) return <Notice>{refused}</Notice>;
  if (known === "gone")
    return (
      <Notice kind="info">
        The run was deleted. <a href="#/runs">All runs</a>
      </Notice>
    );
  if (known === null) return <p role="status">Loading …</p>;
  const { run, lost, usage } = known;
  const { items } = known.told;
  const status = lost ? "lost" : shownStatus(run);
  const began = items[0]?.at ?? run.created?.at ?? "";
  const view = views.find(([name]) => name === inQuery("view"))?.[0] ?? "waterfall";
  const forking = forkingOf(run, items);
  return (
    <article>
      <h1>
        {run.created?.agent_name ?? "A run that cannot be read"} <Status is={status} />
      </h1>
      <Facts run={run} usage={usage} began={began} />
      <Waits run={run} waited={waitsFor(run, lost, items)} hasForms={view !== "tree"} />
      {start.value?.has_playground === true && start.value.may_write && <PlaygroundCard run={run} />}
      <div class="heading">
        <fieldset class="choices" aria-label="View">
          {views.map(([name, label, icon]) => (
            <button key={name} type="button" aria-pressed={view === name} onClick={() => setQuery({ view: name })}>
              <Icon is={icon} />
              {label}
            </button>
          ))}
        </fieldset>
        <RunActions run={run} items={items} />
        {!known.whole && <span role="status">Loading {known.position.toLocaleString()} entries …</span>}
      </div>
      {view === "waterfall" && (
        <Waterfall
          told={known.told}
          isWhole={known.whole}
          selected={inQuery("at")}
          onSelect={(at) => setQuery({ at })}
          details={(row) => <Details row={row} forking={row.run.run_id === run_id ? forking : undefined} />}
        >
          <Summary run={run} items={items} forking={forking} onSelect={(at) => setQuery({ at })} />
        </Waterfall>
      )}
      {view === "tree" && <FamilyView run={run} />}
      {view === "timeline" && <Timeline told={known.told} began={began} forking={forking} />}
      <RawLog run={run} />
    </article>
  );
}

const views = [
  ["waterfall", "Waterfall", "waterfall"],
  ["tree", "Tree", "tree"],
  ["timeline", "Timeline", "list"],
] as const;

/** What happened, in words: the last lines of it, and earlier ones when the user asks for them. */
function Timeline({
  told: { run, items },
  began,
  forking,
}: {
  readonly told: Told;
  readonly began: string;
  readonly forking: Forking | undefined;
}) {
  const [lines, setLines] = useState(LINES);
  const hidden = Math.max(0, items.length - lines);
  return (
    <>
      {hidden > 0 && (
        <button type="button" onClick={() => setLines(lines + LINES)}>
          Show {Math.min(hidden, LINES)} of {hidden.toLocaleString()} earlier lines
        </button>
      )}
      <ol class="timeline" aria-label="Timeline">
        {items.slice(hidden).map((item) => (
          <Contained key={item.position}>
            <Item item={item} run={run} began={began} forking={forking} />
          </Contained>
        ))}
      </ol>
    </>
  );
}

/** What is known of a run after an event. The items are kept in one map: there may be tens of thousands. */
function withEvent(before: Known | undefined, event: Extract<RunEvent, { readonly type: "run" }>): Known {
  const { items, type: _, ...rest } = event;
  const isKnown = before !== undefined && !isNew(before, event);
  const byPosition = isKnown ? before.byPosition : new Map<number, TimelineItem>();
  for (const item of items) byPosition.set(item.position, item);
  return { ...rest, byPosition, told: { run: event.run, items: [] } };
}

/** Whether an event begins anew, since the feed was connected again. */
function isNew(before: Known, event: { readonly position: number; readonly whole: boolean }): boolean {
  return event.position < before.position || (before.whole && !event.whole);
}

/** Forks a run, and shows the fork. Undefined: the user may not, or the run cannot. */
function forkingOf(run: AdminRun, items: readonly TimelineItem[]): Forking | undefined {
  if (start.value?.may_write !== true || run.created?.durable !== true) return undefined;
  return {
    fork: async (before) => {
      const { tenant, run_id } = run;
      goTo(hrefToRun(await act<{ tenant: string; run_id: string }>("fork", { tenant, run_id, before })));
    },
    says: (before) => forkSays(items, before),
  };
}

function Facts({ run, usage, began }: { run: AdminRun; usage: Known["usage"]; began: string }) {
  const { tenant, run_id, created, finished_at, worker, takeovers } = run;
  const lasted = (finished_at === null ? now.value : Date.parse(finished_at)) - Date.parse(began);
  return (
    <dl class="facts">
      <Fact is="Run">
        <code>{run_id}</code>
      </Fact>
      {tenant !== "" && <Fact is="Tenant">{tenant}</Fact>}
      {created?.version != null && <Fact is="Version">{created.version}</Fact>}
      <Fact is="Began">
        <Age of={began} />
      </Fact>
      <Fact is={finished_at === null ? "For" : "Took"}>{duration(Math.max(0, lasted))}</Fact>
      {worker !== null && <Fact is="Worker">{worker}</Fact>}
      {takeovers > 0 && <Fact is="Taken over">{takeovers} times without progress</Fact>}
      {usage !== null && (
        <Fact is="Tokens">
          {usage.total_tokens.toLocaleString()} ({usage.input_tokens.toLocaleString()} in,{" "}
          {usage.output_tokens.toLocaleString()} out)
        </Fact>
      )}
      {Object.entries(created?.labels ?? {}).map(([name, value]) => (
        <Fact key={name} is={name}>
          <a href={hrefTo(["runs"], { label: `${name}:${value}` })}>{value}</a>
        </Fact>
      ))}
      {created !== null && (
        <Fact is="Session">
          <a href={hrefTo(["chat", tenant, created.agent_name, created.session_id])}>{shortId(created.session_id)}</a>
        </Fact>
      )}
      {created?.parent_run_id != null && (
        <Fact is="Sub-run of">
          <a href={hrefToRun({ tenant, run_id: created.parent_run_id })}>{shortId(created.parent_run_id)}</a>
        </Fact>
      )}
      {created?.origin != null && (
        <Fact is="Fork of">
          <a href={hrefToRun({ tenant, run_id: created.origin.run_id })}>{shortId(created.origin.run_id)}</a> ·{" "}
          <a href={hrefToComparison(run, created.origin.run_id)}>compare</a>
        </Fact>
      )}
      {start.value?.has_schedules === true && scheduleOf(created?.metadata) !== null && (
        <Fact is="Schedule">
          <a href="#/schedules">{scheduleOf(created?.metadata)}</a>
        </Fact>
      )}
      {created?.durable === false && <Fact is="Durable">no: it ends with its process</Fact>}
      {created?.metadata != null && (
        <Fact is="Metadata">
          <Json value={created.metadata} />
        </Fact>
      )}
    </dl>
  );
}

/** The schedule that has created a run with this metadata; null for none. */
function scheduleOf(metadata: unknown): string | null {
  const { schedule, time } = Object(metadata ?? null) as Readonly<Record<string, unknown>>;
  return typeof schedule === "string" && typeof time === "string" ? schedule : null;
}

function Fact({ is, children }: { is: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{is}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Waits({
  run,
  waited: { reasons, questions },
  hasForms,
}: {
  readonly run: AdminRun;
  readonly waited: Waited;
  /** Whether the questions are answered here. The tree view has forms of its own. */
  readonly hasForms: boolean;
}) {
  if (reasons.length + questions.length === 0) return null;
  return (
    <div class="waits">
      <p role="status">
        <Icon is="queue" /> <b>Waits for</b> {questions.length > 0 && count(questions.length, "answer")}
        {questions.length > 0 && reasons.length > 0 && ", and "}
        {reasons.length === 1 && <Because is={reasons[0]} />}
      </p>
      {reasons.length > 1 && (
        <ul>
          {reasons.map((reason) => (
            <li key={reason.text}>
              <Because is={reason} />
            </li>
          ))}
        </ul>
      )}
      {hasForms &&
        questions.map((item) => (
          <Contained key={item.position}>
            <Question item={item} run={run} />
          </Contained>
        ))}
    </div>
  );
}

function Because({ is }: { readonly is: Reason | undefined }) {
  return (
    <>
      {is?.text}
      {is?.until != null && (
        <>
          {": "}
          <Age of={is.until} />
        </>
      )}
    </>
  );
}
