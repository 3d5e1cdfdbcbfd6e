import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import { runItemId } from "../inspector/api.ts";
import { useList } from "./feed.ts";
import { ManyActions } from "./many.tsx";
import { hrefToRun, inQuery, place, setQuery } from "./place.ts";
import { addressOf, start } from "./server.ts";
import { Age, Counted, Lasted, Status, shortId, shownStatus } from "./words.tsx";

const statuses = ["created", "in-progress", "awaiting", "cancelling", "completed", "failed", "cancelled"] as const;
/** How many runs are shown at first. More are shown on request, up to what a feed follows. */
const STEP = 200;
const MOST = 2_000;

/** The list of runs, by the filters in the address. */
export function RunsView() {
  const limit = Math.min(MOST, Number(inQuery("limit")) || STEP);
  const filters = {
    tenant: inQuery("tenant"),
    agent: inQuery("agent"),
    status: inQuery("status"),
    label: inQuery("label"),
    id: inQuery("id").trim(),
    roots: inQuery("roots"),
  };
  // The server takes the beginning of an id from four characters on.
  const id = filters.id.length < 4 ? "" : filters.id;
  const address = addressOf("feed/runs", { ...filters, id, limit: String(limit) });
  const list = useList<AdminRun>(address, runItemId);
  const { items, more, workers } = list;
  return (
    <>
      <h1>Runs</h1>
      <Filters filters={filters} />
      <Counted list={list} one="run" none="No runs.">
        {place.value.query.size > 0 ? (
          <>
            None matches the filters. <a href="#/runs">Clear the filters</a>, or wait: a run appears here when it begins
            to match.
          </>
        ) : (
          <>
            A run appears here as soon as one is created. <a href="#/new">Create a run</a>.
          </>
        )}
      </Counted>
      <ManyActions filters={{ ...filters, id }} items={items ?? []} more={more} />
      {items !== null && items.length > 0 && (
        <>
          <p class="row heads" aria-hidden="true">
            <span>Status</span>
            <span>Agent</span>
            <span>Run</span>
            <span class="number">Took</span>
            <span class="number">Created</span>
          </p>
          <Window items={items} idOf={runItemId} row={(run) => <Row run={run} workers={workers} />} label="Runs" />
        </>
      )}
      {more && limit < MOST && (
        <button type="button" onClick={() => setQuery({ limit: String(Math.min(MOST, limit * 2)) })}>
          Show more
        </button>
      )}
    </>
  );
}

interface Filtered {
  readonly tenant: string;
  readonly agent: string;
  readonly status: string;
  readonly label: string;
  readonly id: string;
  readonly roots: string;
}

function Filters({ filters }: { readonly filters: Filtered }) {
  const text = (name: "tenant" | "agent" | "label" | "id", label: string, hint = "") => (
    <TextFilter
      name={name}
      label={label}
      placeholder={hint}
      list={name === "agent" ? "agents" : undefined}
      value={filters[name]}
      onCommit={(value) => setQuery({ [name]: value })}
    />
  );
  return (
    <search class="filters">
      {text("id", "Id", "first characters")}
      {text("agent", "Agent")}
      <label>
        Status
        <select value={filters.status} onChange={({ currentTarget }) => setQuery({ status: currentTarget.value })}>
          <option value="">any</option>
          <option value="created,in-progress,awaiting,cancelling">not ended</option>
          {statuses.map((status) => (
            <option key={status} value={status}>
              {status}
            </option>
          ))}
        </select>
      </label>
      {text("label", "Label", "name:value")}
      {start.value?.tenant === null && text("tenant", "Tenant")}
      <label class="check">
        <input
          type="checkbox"
          checked={filters.roots === "true"}
          onChange={({ currentTarget }) => setQuery({ roots: currentTarget.checked ? "true" : "" })}
        />
        without sub-runs
      </label>
      <AgentNames />
    </search>
  );
}

/** The names that a filter with the list `agents` offers. */
export function AgentNames() {
  return (
    <datalist id="agents">
      {start.value?.agents.map(({ agent_name }) => (
        <option key={agent_name} value={agent_name} />
      ))}
    </datalist>
  );
}

/** A filter of which the list knows nothing before it is committed. What is typed stays when the list is shown anew. */
export function TextFilter({
  label,
  value,
  onCommit,
  ...attributes
}: {
  readonly name: string;
  readonly label: string;
  readonly placeholder: string;
  readonly list: string | undefined;
  readonly value: string;
  readonly onCommit: (value: string) => void;
}) {
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <label>
      {label}
      <input
        {...attributes}
        type="search"
        value={typed ?? value}
        onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        onChange={({ currentTarget }) => {
          setTyped(null);
          onCommit(currentTarget.value);
        }}
      />
    </label>
  );
}

/** A run in a list. */
export function Row({ run, workers }: { readonly run: AdminRun; readonly workers?: ReadonlyMap<string, boolean> }) {
  const { created, finished_at } = run;
  return (
    <a class="row" href={hrefToRun(run)} data-row>
      <Status is={shownStatus(run, workers)} />
      <span class="agent">
        <b>{created?.agent_name ?? "cannot be read"}</b>
        {created?.version != null && <span class="faint"> {created.version}</span>}
      </span>
      <span class="of">
        <code>{shortId(run.run_id)}</code>
        {run.tenant !== "" && <span class="chip">{run.tenant}</span>}
        {Object.entries(created?.labels ?? {}).map(([name, value]) => (
          <span key={name} class="chip">
            <span class="faint">{name} </span>
            {value}
          </span>
        ))}
        {created?.parent_run_id != null && <span class="chip">sub-run</span>}
        {created?.origin != null && <span class="chip">fork</span>}
      </span>
      <span class="number">{created !== null && <Lasted from={created.at} to={finished_at} />}</span>
      <span class="number faint">{created !== null && <Age of={created.at} />}</span>
    </a>
  );
}

const ROW_HEIGHT = 40;
/** How many rows are there above and below those that can be seen. */
const BEYOND = 15;

/** A list of which only the rows near the view are in the page. */
function Window<Item>({
  items,
  idOf,
  row,
  label,
}: {
  readonly items: readonly Item[];
  readonly idOf: (item: Item) => string;
  readonly row: (item: Item) => JSX.Element;
  readonly label: string;
}) {
  const list = useRef<HTMLUListElement>(null);
  const [first, setFirst] = useState(0);
  const [fitting, setFitting] = useState(40);
  useLayoutEffect(() => {
    const measure = (): void => {
      const top = list.current?.getBoundingClientRect().top ?? 0;
      setFirst(Math.max(0, Math.floor(-top / ROW_HEIGHT) - BEYOND));
      setFitting(Math.ceil(innerHeight / ROW_HEIGHT) + 2 * BEYOND);
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, []);
  useEffect(() => {
    if (first > items.length) setFirst(0);
  }, [first, items.length]);
  const shown = items.slice(first, first + fitting);
  return (
    <ul
      class="rows"
      ref={list}
      aria-label={label}
      style={{ height: `${items.length * ROW_HEIGHT}px`, paddingTop: `${first * ROW_HEIGHT}px` }}
    >
      {shown.map((item, index) => (
        <li key={idOf(item)} aria-posinset={first + index + 1} aria-setsize={items.length}>
          {row(item)}
        </li>
      ))}
    </ul>
  );
}
