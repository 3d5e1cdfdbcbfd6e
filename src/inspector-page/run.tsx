import { useState } from "preact/hooks";
import type { AdminRun, AdminTree } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import type { RunEvent } from "../inspector/api.ts";
import { RunActions } from "./actions.tsx";
import { useFeed } from "./feed.ts";
import { Item } from "./items.tsx";
import { Json } from "./json-view.tsx";
import { RawLog } from "./log.tsx";
import { goTo, hrefTo, hrefToRun } from "./place.ts";
import { act, addressOf, start } from "./server.ts";
import { waitsFor } from "./waits-for.ts";
import { Age, Contained, duration, Notice, now, Status, shortId, shownStatus } from "./words.tsx";

/** How many lines of a timeline are in the page, until the user asks for earlier ones. */
const LINES = 150;

/** What is known of a run. */
interface Told extends Omit<Extract<RunEvent, { readonly type: "run" }>, "type" | "items"> {
  /** By their positions, in the order in which they began. */
  readonly items: ReadonlyMap<number, TimelineItem>;
}

/** A run's page: what it waits for, what it did, and what can be done. */
export function RunView({ tenant, run_id }: { readonly tenant: string; readonly run_id: string }) {
  const [told, setTold] = useState<Told | "gone" | null>(null);
  const [lines, setLines] = useState(LINES);
  const refused = useFeed<RunEvent>(addressOf("feed/run", { tenant, run_id }), (event) =>
    setTold((before) => {
      if (event.type === "gone") return "gone";
      const known = before === null || before === "gone" || isNew(before, event) ? undefined : before;
      const items = new Map(known?.items);
      for (const item of event.items) items.set(item.position, item);
      return { ...event, tree: event.tree ?? known?.tree, items } as Told;
    }),
  );
  if (refused !== null) return <Notice>{refused}</Notice>;
  if (told === "gone") return <Notice kind="info">The run was deleted.</Notice>;
  if (told === null) return <p role="status">Loading …</p>;
  const { run, lost, tree, usage } = told;
  const items = [...told.items.values()];
  const status = lost ? "lost" : shownStatus(run);
  const began = items[0]?.at ?? run.created?.at ?? "";
  const hidden = Math.max(0, items.length - lines);
  return (
    <article>
      <h1>
        {run.created?.agent_name ?? "A run that cannot be read"} <Status is={status} />
      </h1>
      <Facts run={run} usage={usage} began={began} />
      <Waits reasons={waitsFor(run, lost, items)} />
      <RunActions run={run} />
      {tree !== undefined && tree.children.length > 0 && (
        <section>
          <h2>Sub-runs</h2>
          <Tree runs={tree.children} />
        </section>
      )}
      <section>
        <h2 id="timeline">Timeline</h2>
        {!told.whole && <p role="status">Loading {told.position.toLocaleString()} entries …</p>}
        {hidden > 0 && (
          <button type="button" onClick={() => setLines(lines + LINES)}>
            Show {Math.min(hidden, LINES)} of {hidden.toLocaleString()} earlier lines
          </button>
        )}
        <ol class="timeline" aria-labelledby="timeline">
          {items.slice(hidden).map((item) => (
            <Contained key={item.position}>
              <Item item={item} run={run} began={began} onFork={forkOf(run)} />
            </Contained>
          ))}
        </ol>
      </section>
      <RawLog run={run} />
    </article>
  );
}

/** Whether an event begins anew, since the feed was connected again. */
function isNew(before: Told, event: { readonly position: number; readonly whole: boolean }): boolean {
  return event.position < before.position || (before.whole && !event.whole);
}

/** Forks a run before an operation, and shows the fork. Undefined: the user may not, or the run cannot. */
function forkOf(run: AdminRun): ((before?: string) => Promise<void>) | undefined {
  if (start.value?.may_write !== true || run.created?.durable !== true) return undefined;
  return async (before) => {
    const { tenant, run_id } = run;
    goTo(hrefToRun(await act<{ tenant: string; run_id: string }>("fork", { tenant, run_id, before })));
  };
}

function Facts({ run, usage, began }: { run: AdminRun; usage: Told["usage"]; began: string }) {
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
          <a href={hrefToRun({ tenant, run_id: created.origin.run_id })}>{shortId(created.origin.run_id)}</a>
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

function Fact({ is, children }: { is: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{is}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Waits({ reasons }: { readonly reasons: readonly string[] }) {
  if (reasons.length === 0) return null;
  return (
    <div class="waits" role="status">
      <b>Waits for</b>
      <ul>
        {reasons.map((reason) => (
          <li key={reason}>{reason}</li>
        ))}
      </ul>
    </div>
  );
}

function Tree({ runs }: { readonly runs: readonly AdminTree[] }) {
  return (
    <ul class="tree">
      {runs.slice(0, 200).map((run) => (
        <li key={run.run_id}>
          <a href={hrefToRun(run)} data-row>
            <Status is={shownStatus(run)} /> {run.created?.agent_name} <span class="faint">{shortId(run.run_id)}</span>
          </a>
          {run.children.length > 0 && <Tree runs={run.children} />}
        </li>
      ))}
      {runs.length > 200 && <li class="faint">{runs.length - 200} more</li>}
    </ul>
  );
}
