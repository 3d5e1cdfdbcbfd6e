import { useState } from "preact/hooks";
import type { AdminFigure, AdminFigureGroup, AdminFigures } from "../../admin/figures.ts";
import type { HistoryEvent } from "../../inspector/api.ts";
import { useFeed } from "../feed.ts";
import { hrefTo, inQuery, setQuery } from "../place.ts";
import { AgentNames, TextFilter } from "../runs.tsx";
import { addressOf, start } from "../server.ts";
import { Age, count, duration, Empty, Notice } from "../words.tsx";
import type { Curve } from "./chart.tsx";
import { Chart, colours, few, fewMs } from "./chart.tsx";

const overs = [
  ["hour", "Hour"],
  ["day", "Day"],
  ["month", "Month"],
] as const;
const bys = [
  ["agent", "Agent"],
  ["version", "Version"],
  ["tenant", "Tenant"],
  ["model", "Model"],
] as const;

/** Charts of the last hour, day or month, and a table of what the runs have in common, by the address. */
export function HistoryView() {
  const over = overs.find(([name]) => name === inQuery("over"))?.[0] ?? "day";
  const by = bys.find(([name]) => name === inQuery("by"))?.[0] ?? "agent";
  const filters = { agent: inQuery("agent"), version: inQuery("version"), tenant: inQuery("tenant") };
  const address = addressOf("feed/history", { over, by, ...filters });
  const [known, setKnown] = useState<{ readonly address: string; readonly figures: AdminFigures } | null>(null);
  const refused = useFeed<HistoryEvent>(address, ({ figures }) => setKnown({ address, figures }));
  const isOfAllTenants = start.value?.tenant === null;
  return (
    <>
      <search class="filters">
        <Choice label="Time" choices={overs} value={over} onChoose={(name) => setQuery({ over: name })} />
        <Choice
          label="By"
          choices={bys.filter(([name]) => isOfAllTenants || name !== "tenant")}
          value={by}
          onChoose={(name) => setQuery({ by: name })}
        />
        <TextFilter
          {...{ name: "agent", label: "Agent", placeholder: "all", list: "agents", value: filters.agent }}
          onCommit={(agent) => setQuery({ agent })}
        />
        <TextFilter
          {...{ name: "version", label: "Version", placeholder: "all", list: undefined, value: filters.version }}
          onCommit={(version) => setQuery({ version })}
        />
        {isOfAllTenants && (
          <TextFilter
            {...{ name: "tenant", label: "Tenant", placeholder: "all", list: undefined, value: filters.tenant }}
            onCommit={(tenant) => setQuery({ tenant })}
          />
        )}
        <AgentNames />
      </search>
      {refused !== null && <Notice>{refused}</Notice>}
      {known === null && refused === null && <p role="status">Reading the logs of the runs …</p>}
      {known !== null && <Shown figures={known.figures} isOld={known.address !== address} by={by} />}
    </>
  );
}

function Choice<Name extends string>({
  label,
  choices,
  value,
  onChoose,
}: {
  readonly label: string;
  readonly choices: readonly (readonly [name: Name, label: string])[];
  readonly value: Name;
  readonly onChoose: (name: Name) => void;
}) {
  return (
    <div class="labelled">
      <span aria-hidden="true">{label}</span>
      <fieldset class="choices" aria-label={label}>
        {choices.map(([name, text]) => (
          <button key={name} type="button" aria-pressed={name === value} onClick={() => onChoose(name)}>
            {text}
          </button>
        ))}
      </fieldset>
    </div>
  );
}

interface ShownProps {
  readonly figures: AdminFigures;
  /** It belongs to other choices: those that were made are being read. */
  readonly isOld: boolean;
  readonly by: (typeof bys)[number][0];
}

function Shown({ figures, isOld, by }: ShownProps) {
  const { all, groups, runs, since, complete, from, step_ms } = figures;
  const { total, steps } = all;
  if (runs === 0)
    return (
      <Empty is="No runs in this time.">
        Choose a longer time, or clear the filters. A run counts as soon as its agent is called.
      </Empty>
    );
  const begin = Date.parse(from) / 1_000;
  const times = steps.map((_step, index) => begin + (index * step_ms) / 1_000);
  const curve = (label: string, colour: Curve["colour"], name: keyof AdminFigure, sum: string, isDashed = false) => ({
    ...{ label, colour, isDashed, sum },
    values: steps.map((step) => step[name]),
  });
  const spent = groups.filter((group) => group.total.total_tokens > 0);
  const spenders = spent.length === 0 ? groups.slice(0, 1) : spent;
  const common = { times, stepMs: step_ms };
  const durations = (title: string, of: "active" | "waited", half: Curve["colour"], most: Curve["colour"]) => (
    <Chart
      {...common}
      title={title}
      form="lines"
      shown={duration}
      onAxis={fewMs}
      curves={[
        curve("p50", half, `${of}_p50_ms`, length(total[`${of}_p50_ms`])),
        curve("p99", most, `${of}_p99_ms`, length(total[`${of}_p99_ms`]), true),
      ]}
    />
  );
  return (
    <div class={isOld ? "history old" : "history"} aria-busy={isOld}>
      {!complete && (
        <Notice kind="info">
          The store has more runs than are counted: only those that were created since <Age of={since} /> are.
        </Notice>
      )}
      <Tiles total={total} />
      <div class="charts">
        <Chart
          {...common}
          title="Runs that ended"
          form="bars"
          shown={few}
          curves={[
            curve("completed", "work", "completed", few(total.completed)),
            curve("failed", "bad", "failed", few(total.failed)),
            curve("cancelled", "sleep", "cancelled", few(total.cancelled)),
          ]}
        />
        <Chart
          {...common}
          title="Tokens"
          form="bars"
          shown={few}
          curves={spenders.map((group, index) => ({
            label: nameOf(group, by),
            colour: colours[index] ?? "edge",
            sum: few(group.total.total_tokens),
            values: group.steps.map(({ total_tokens }) => total_tokens),
          }))}
        />
        {durations("Time at work of a run", "active", "work", "pause")}
        {durations("Time that questions waited for people", "waited", "people", "slot")}
        <Chart
          {...common}
          title="Runs that started"
          form="bars"
          shown={few}
          curves={[curve("started", "work", "started", few(total.started))]}
        />
        <Chart
          {...common}
          title="Questions that were open"
          form="lines"
          shown={few}
          curves={[curve("at the end of the step", "people", "waiting", few(total.waiting))]}
        />
      </div>
      <Groups groups={groups} by={by} />
      <p class="faint">
        {count(runs, "run")} counted, from their logs. p50 and p99: what a half, and 99 of 100, did not exceed. Days are
        those of UTC. Sub-runs count for themselves.
      </p>
    </div>
  );
}

function length(ms: number | null): string {
  return ms === null ? "–" : duration(ms);
}

function share(part: number, whole: number): string {
  return whole === 0 ? "–" : `${((100 * part) / whole).toFixed(part > 0 && part < whole / 10 ? 1 : 0)} %`;
}

function Tiles({ total }: { readonly total: AdminFigure }) {
  const { started, completed, failed, cancelled, waiting, calls, total_tokens } = total;
  const tiles: readonly (readonly [name: string, value: string, more?: string])[] = [
    ["started", few(started)],
    ["ended", few(completed + failed + cancelled)],
    ["failed", few(failed), share(failed, completed + failed)],
    ["questions open", few(waiting)],
    ["tokens", few(total_tokens), count(calls, "model call")],
    ["work of a run", length(total.active_p50_ms), `p99 ${length(total.active_p99_ms)}`],
    ["wait for people", length(total.waited_p50_ms), `p99 ${length(total.waited_p99_ms)}`],
  ];
  return (
    <dl class="tiles">
      {tiles.map(([name, value, more]) => (
        <div key={name} class="card">
          <dt>{name}</dt>
          <dd>
            <b>{value}</b> {more !== undefined && <span class="faint">{more}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Groups({ groups, by }: { readonly groups: readonly AdminFigureGroup[]; readonly by: ShownProps["by"] }) {
  const isOfModels = by === "model";
  const heads = [
    ...(isOfModels ? ["Calls"] : ["Started", "Completed", "Failed", "Questions"]),
    ...["Tokens in", "Tokens out", "Tokens"],
    ...(isOfModels ? [] : ["Work p50", "Work p99", "People p50", "People p99"]),
  ];
  return (
    <div class="wide">
      <table class="groups">
        <caption class="unseen">Figures by {by}, those with the most tokens first</caption>
        <thead>
          <tr>
            <th scope="col">{bys.find(([name]) => name === by)?.[1]}</th>
            {heads.map((name) => (
              <th key={name} scope="col" class="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {groups.map((group) => {
            const { total } = group;
            const runs = [
              ...[few(total.started), few(total.completed)],
              total.failed === 0
                ? "0"
                : `${few(total.failed)} (${share(total.failed, total.completed + total.failed)})`,
              few(total.waiting),
            ];
            const times = [total.active_p50_ms, total.active_p99_ms, total.waited_p50_ms, total.waited_p99_ms];
            const cells = [
              ...(isOfModels ? [few(total.calls)] : runs),
              ...[total.input_tokens, total.output_tokens, total.total_tokens].map(few),
              ...(isOfModels ? [] : times.map(length)),
            ];
            return (
              <tr key={JSON.stringify(group.of)}>
                <th scope="row">
                  <GroupName group={group} by={by} />
                </th>
                {cells.map((cell, index) => (
                  <td key={heads[index]} class="number">
                    {cell}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** The name of a group, which leads to its runs. */
function GroupName({ group, by }: { readonly group: AdminFigureGroup; readonly by: ShownProps["by"] }) {
  const name = nameOf(group, by);
  const { agent_name = "", tenant = "" } = group.of ?? {};
  if (agent_name + tenant === "") return <>{name}</>;
  return (
    <a href={hrefTo(["runs"], { agent: agent_name, tenant })} data-row>
      {name}
    </a>
  );
}

function nameOf({ of }: AdminFigureGroup, by: ShownProps["by"]): string {
  if (of === null) return "all others";
  if (by === "model") return of.model ?? "without a recorded call";
  if (by === "tenant") return of.tenant === "" ? "no tenant" : (of.tenant ?? "");
  return by === "agent" ? (of.agent_name ?? "") : `${of.agent_name} ${of.version ?? "without a version"}`;
}
