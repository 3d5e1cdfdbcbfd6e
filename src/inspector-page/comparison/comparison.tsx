import { useMemo, useState } from "preact/hooks";
import type { AdminRun } from "../../admin/records.ts";
import type { TimelineItem } from "../../admin/timeline.ts";
import type { SeveralEvent } from "../../inspector/api.ts";
import { runItemId } from "../../inspector/api.ts";
import { useFeed, useList } from "../feed.ts";
import { Json, LongText } from "../json-view.tsx";
import { goTo, hrefTo, hrefToRun } from "../place.ts";
import { addressOf } from "../server.ts";
import type { Told } from "../waterfall/rows.ts";
import { ownSpans } from "../waterfall/rows.ts";
import { flattened, timesOf } from "../waterfall/spans.ts";
import { Age, Contained, count, duration, Lasted, Notice, now, Status, shortId, shownStatus } from "../words.tsx";
import type { Pair } from "./pairs.ts";
import { outcomeOf, pairsOf, stretchesOf } from "./pairs.ts";

/** One side: a run, its items by their positions, and what it has used. */
interface Side extends Told {
  readonly byPosition: ReadonlyMap<number, TimelineItem>;
  readonly usage: SeveralEvent["usage"];
}

/** Two runs of a tenant side by side: what each did in the same places, and where they differ first. */
export function ComparisonView({ tenant, left, right }: Readonly<Record<"tenant" | "left" | "right", string>>) {
  const [sides, setSides] = useState<ReadonlyMap<string, Side>>(new Map());
  const address = addressOf("feed/several", { tenant, run_ids: `${left},${right}` });
  const refused = useFeed<SeveralEvent>(address, ({ run, items, usage }) =>
    setSides((before) => {
      const byPosition = new Map(before.get(run.run_id)?.byPosition);
      for (const item of items) byPosition.set(item.position, item);
      return new Map(before).set(run.run_id, { run, usage, byPosition, items: [...byPosition.values()] });
    }),
  );
  const [one, other] = [sides.get(left), sides.get(right)];
  return (
    <>
      <h1>Comparison</h1>
      {refused !== null && <Notice>{refused}</Notice>}
      {one !== undefined && other !== undefined ? (
        <Compared left={one} right={other} />
      ) : (
        refused === null && <p role="status">Loading … If a run was deleted, it is not shown.</p>
      )}
    </>
  );
}

function Compared({ left, right }: { readonly left: Side; readonly right: Side }) {
  const pairs = useMemo(() => pairsOf(left.items, right.items), [left.items, right.items]);
  const stretches = useMemo(() => stretchesOf(pairs), [pairs]);
  const different = pairs.filter(({ isSame }) => !isSame);
  const first = different[0]?.key;
  const show = (): void => {
    const line = document.querySelector<HTMLElement>("tr.first");
    line?.scrollIntoView({ block: "center" });
    line?.focus();
  };
  return (
    <>
      <p class="buttons">
        <span role="status">
          {different.length === 0
            ? "Both did the same."
            : `${count(different.length, "difference")}, ${count(pairs.length - different.length, "equal line")}.`}
        </span>
        {first !== undefined && (
          <button type="button" class="first" onClick={show}>
            Show the first difference
          </button>
        )}
      </p>
      <div class="wide">
        <table class="compared">
          <thead>
            <tr>
              <th scope="col">What</th>
              <SideHead side={left} />
              <SideHead side={right} />
            </tr>
          </thead>
          <tbody>
            {stretches.map((stretch) =>
              "different" in stretch ? (
                <Line key={stretch.different.key} pair={stretch.different} isFirst={stretch.different.key === first} />
              ) : (
                <Equal key={stretch.equal[0]?.key} pairs={stretch.equal} />
              ),
            )}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** A run in one line, with what is compared of all of it. */
function SideHead({ side }: { readonly side: Side }) {
  const { run, usage, items } = side;
  const { created, finished_at } = run;
  const from = Date.parse(created?.at ?? items[0]?.at ?? "");
  const to = finished_at === null ? now.value : Date.parse(finished_at);
  const times = timesOf(flattened(ownSpans(side), from, to));
  const spent = (kind: string): string => duration(times.find(([one]) => one === kind)?.[1] ?? 0);
  return (
    <th scope="col">
      <a href={hrefToRun(run)}>
        <b>{created?.agent_name}</b> {created?.version} <code>{shortId(run.run_id)}</code>
      </a>{" "}
      <Status is={shownStatus(run)} />
      <span class="sums">
        took {created !== null && <Lasted from={created.at} to={finished_at} />} · work {spent("work")} · people{" "}
        {spent("people")} · {(usage?.total_tokens ?? 0).toLocaleString()} tokens
      </span>
    </th>
  );
}

function Equal({ pairs }: { readonly pairs: readonly Pair[] }) {
  const [isOpen, setOpen] = useState(pairs.length === 1);
  if (isOpen) return pairs.map((pair) => <Line key={pair.key} pair={pair} isFirst={false} />);
  return (
    <tr>
      <td colSpan={3}>
        <button type="button" class="link" onClick={() => setOpen(true)}>
          {count(pairs.length, "equal line")}
        </button>
      </td>
    </tr>
  );
}

function Line({ pair: { key, left, right, isSame }, isFirst }: { readonly pair: Pair; readonly isFirst: boolean }) {
  return (
    <tr class={`${isSame ? "same" : "different"}${isFirst ? " first" : ""}`} tabIndex={-1} data-row>
      <th scope="row">
        <code>{key}</code>
        {!isSame && <span class="chip">{isFirst ? "first difference" : "differs"}</span>}
      </th>
      {isSame && left !== null ? (
        <td colSpan={2}>
          <Outcome item={left} />
        </td>
      ) : (
        <>
          <td>
            <Outcome item={left} />
          </td>
          <td>
            <Outcome item={right} />
          </td>
        </>
      )}
    </tr>
  );
}

function Outcome({ item }: { readonly item: TimelineItem | null }) {
  if (item === null) return <span class="faint">did not come to it</span>;
  if ("ended_at" in item && item.ended_at === null) return <span class="faint">has not ended</span>;
  const value = outcomeOf(item);
  return (
    <Contained>
      {typeof value === "string" ? <LongText text={value} /> : <Json value={value} open={item.type !== "step"} />}
    </Contained>
  );
}

/** How many runs are offered for a comparison, and among how many of the newest ones of the agent. */
const OFFERED = 8;
const AMONG = 100;

/** Asks with which run a run is to be compared: one of its agent, those of other versions first, or one that the user names. */
export function CompareWith({ run, onClose }: { readonly run: AdminRun; readonly onClose: () => void }) {
  const [id, setId] = useState("");
  const query = { tenant: run.tenant, agent: run.created?.agent_name ?? "", limit: String(AMONG) };
  const { items, refused } = useList<AdminRun>(addressOf("feed/runs", query), runItemId);
  const offered = offeredTo(run, items ?? []);
  return (
    <form
      class="compare-with card"
      onSubmit={(event) => {
        event.preventDefault();
        goTo(hrefToComparison(run, id.trim()));
      }}
    >
      <h3>Compare with</h3>
      {refused !== null && <Notice>{refused}</Notice>}
      {items !== null && offered.length === 0 && <p class="faint">There is no other run of this agent and tenant.</p>}
      <ul class="offered">
        {offered.map((other) => (
          <li key={other.run_id}>
            <a href={hrefToComparison(run, other.run_id)} data-row>
              {other.created?.version === run.created?.version
                ? "the same version"
                : `version ${other.created?.version ?? "none"}`}
            </a>
            <code>{shortId(other.run_id)}</code>
            {Object.entries(other.created?.labels ?? {}).map(([name, value]) => (
              <span key={name} class="chip">
                <span class="faint">{name} </span>
                {value}
              </span>
            ))}
            {other.run_id === run.created?.origin?.run_id && <span class="chip">origin</span>}
            {other.created?.origin?.run_id === run.run_id && <span class="chip">fork</span>}
            <Status is={shownStatus(other)} />
            {other.created !== null && <Age of={other.created.at} />}
          </li>
        ))}
      </ul>
      <p class="field">
        <label htmlFor="compare-with">Id of the other run</label>
        <input
          id="compare-with"
          value={id}
          required
          autocomplete="off"
          pattern="\s*[0-9a-fA-F\-]{36}\s*"
          title="The whole id of a run of the same tenant"
          onInput={({ currentTarget }) => setId(currentTarget.value)}
        />
      </p>
      <p class="buttons">
        <button type="submit">Compare</button>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </p>
    </form>
  );
}

/** Its origin and its forks, runs of other versions, and others, each the newest first. */
function offeredTo(run: AdminRun, others: readonly AdminRun[]): readonly AdminRun[] {
  const rank = (other: AdminRun): number => {
    const isKin = other.created?.origin?.run_id === run.run_id || other.run_id === run.created?.origin?.run_id;
    if (isKin) return 0;
    return other.created?.version === run.created?.version ? 2 : 1;
  };
  const found = others.filter(({ run_id, created }) => run_id !== run.run_id && created !== null);
  return found.sort((a, b) => rank(a) - rank(b)).slice(0, OFFERED);
}

/** The address of a comparison of a run, at the right, with another one of its tenant. */
export function hrefToComparison({ tenant, run_id }: Pick<AdminRun, "tenant" | "run_id">, other: string): string {
  return hrefTo(["compare", tenant, other, run_id]);
}
