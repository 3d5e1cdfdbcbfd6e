import { useState } from "preact/hooks";
import type { FiguresEvent } from "../../inspector/api.ts";
import { useFeed } from "../feed.ts";
import { hrefTo, hrefToRun } from "../place.ts";
import { act, addressOf, messageOf, start } from "../server.ts";
import { Age, duration, Notice } from "../words.tsx";

/** Live runs, queues, workers and pauses, as they are now. */
export function NowView() {
  const [figures, setFigures] = useState<FiguresEvent | null>(null);
  const refused = useFeed<FiguresEvent>(addressOf("feed/figures"), setFigures);
  return (
    <>
      <h2 class="now">Now</h2>
      {refused !== null && <Notice>{refused}</Notice>}
      {figures !== null && (
        <>
          <dl class="tiles">
            {Object.entries(totals(figures)).map(([name, value]) => (
              <div key={name} class="card">
                <dt>{name}</dt>
                <dd>
                  <b>{shown(value)}</b>
                </dd>
              </div>
            ))}
          </dl>
          <Tables figures={figures} />
        </>
      )}
    </>
  );
}

function totals({ versions, backlog, stats }: FiguresEvent): Readonly<Record<string, number>> {
  const live = (status: "created" | "in-progress" | "awaiting"): number =>
    versions.reduce((sum, version) => sum + version.live[status], 0);
  return {
    "in progress": live("in-progress"),
    awaiting: live("awaiting"),
    created: live("created"),
    "due without a worker": backlog.reduce((sum, { due }) => sum + due, 0),
    ...(stats !== null && { "queued here": stats.queued }),
  };
}

/** Of each kind no more than 1,001 runs are counted. */
function shown(count: number): string {
  return count > 1_000 ? "more than 1,000" : String(count);
}

/** The columns that hold numbers. */
const counted = new Set(["Live", "In progress", "Awaiting", "Due", "Waiting", "Held", "Runs"]);

function Heads({ names }: { readonly names: readonly string[] }) {
  return (
    <thead>
      <tr>
        {names.map((name) => (
          <th key={name} scope="col" class={counted.has(name) ? "number" : undefined}>
            {name}
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** Pauses a version of an agent, or resumes it. */
function PauseButton({
  agent_name,
  version,
  isPaused,
}: Pick<FiguresEvent["versions"][number], "agent_name" | "version"> & { readonly isPaused: boolean }) {
  const [said, setSaid] = useState("");
  if (start.value?.may_write !== true) return <>{isPaused ? "paused" : ""}</>;
  const button = (name: string, what: string, now?: true) => (
    <button
      type="button"
      class="quiet"
      onClick={() =>
        void act(what, { agent_name, version, now }).then(
          () => setSaid(""),
          (error: unknown) => setSaid(messageOf(error)),
        )
      }
    >
      {name}
    </button>
  );
  return (
    <>
      {isPaused ? button("Resume", "resume") : button("Pause", "pause")}
      {!isPaused && button("Pause now", "pause", true)}
      {said !== "" && <span role="alert"> {said}</span>}
    </>
  );
}

function Tables({ figures: { versions, backlog, pauses, lines, workers, stats } }: { readonly figures: FiguresEvent }) {
  return (
    <>
      <h3>Agents</h3>
      <div class="wide">
        <table>
          <Heads
            names={[
              "Agent",
              "Version",
              "Code",
              "Live",
              "In progress",
              "Awaiting",
              "Due",
              "Waiting",
              "Due since",
              "Paused",
            ]}
          />
          <tbody>
            {versions.map(({ agent_name, version, code, total, live }) => {
              const isPaused = pauses.some(
                (pause) => pause.agent_name === agent_name && pause.version === version && pause.tenant === undefined,
              );
              const queue = backlog.find((one) => one.agent_name === agent_name && one.version === version);
              return (
                <tr key={`${agent_name} ${version}`}>
                  <th scope="row">
                    <a href={hrefTo(["runs"], { agent: agent_name })} data-row>
                      {agent_name}
                    </a>
                  </th>
                  <td>{version}</td>
                  <td>{code}</td>
                  <td class="number">{shown(total)}</td>
                  <td class="number">{shown(live["in-progress"])}</td>
                  <td class="number">{shown(live.awaiting)}</td>
                  <td class="number">{shown(queue?.due ?? 0)}</td>
                  <td class="number">{shown(queue?.waiting ?? 0)}</td>
                  <td>{queue?.since != null && <Age of={queue.since} />}</td>
                  <td>
                    <PauseButton agent_name={agent_name} version={version} isPaused={isPaused} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {pauses.length > 0 && (
        <>
          <h3>Paused</h3>
          <div class="wide">
            <table>
              <Heads names={["Agent", "Version", "Tenant", "Since", "By"]} />
              <tbody>
                {pauses.map(({ agent_name, version, tenant, since, by }) => (
                  <tr key={JSON.stringify([agent_name, version, tenant])}>
                    <th scope="row">{agent_name ?? "all agents"}</th>
                    <td>{version === undefined ? "all" : (version ?? "none")}</td>
                    <td>{tenant ?? "all"}</td>
                    <td>
                      <Age of={since} />
                    </td>
                    <td>{by === null ? "" : JSON.stringify(by)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      {lines.length > 0 && (
        <>
          <h3>Waiting for slots</h3>
          <div class="wide lines-of-slots">
            <table>
              <Heads names={["Agent", "Limit", "Tenant", "Session", "Held", "Waiting", "Next due since", "Next run"]} />
              <tbody>
                {lines.map(({ agent_name, limit, tenant, session_id, max, rate, held, waiting, since, next }) => (
                  <tr key={`${agent_name} ${limit?.name} ${limit?.key} ${tenant} ${session_id}`}>
                    <th scope="row">
                      <a href={hrefTo(["runs"], { agent: agent_name })}>{agent_name}</a>
                    </th>
                    <td>{limit !== null && [limit.name, limit.key].filter(Boolean).join(": ")}</td>
                    <td>{tenant}</td>
                    <td title={session_id ?? undefined}>{session_id?.slice(0, 8)}</td>
                    <td class="number">
                      {max === null ? "" : `${held} of ${max}`}
                      {rate !== null && ` ${rate.count} in ${duration(rate.per_ms)}`}
                    </td>
                    <td class="number">{shown(waiting)}</td>
                    <td>
                      <Age of={since} />
                    </td>
                    <td>
                      <a href={hrefToRun(next)}>{next.run_id.slice(0, 8)}</a>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      <h3>Workers</h3>
      <div class="wide">
        <table>
          <Heads names={["Worker", "State", "Runs", "Lease until"]} />
          <tbody>
            {workers.map(({ worker, is_alive, runs, until }) => (
              <tr key={worker}>
                <th scope="row">{worker}</th>
                <td>{is_alive ? "alive" : "gone"}</td>
                <td class="number">{runs}</td>
                <td>{until !== null && <Age of={until} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {stats !== null && (
        <>
          <h3>This process</h3>
          <dl class="facts">
            {Object.entries({
              hung: stats.hung,
              "dropped values": stats.dropped,
              "differences of replays": stats.differences,
              "cancelled without finally": stats.withoutFinally,
              "last heartbeat": stats.heartbeatAgeMs === null ? "none" : `${duration(stats.heartbeatAgeMs)} ago`,
            }).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </>
  );
}
