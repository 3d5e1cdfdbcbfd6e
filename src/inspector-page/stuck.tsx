import { useState } from "preact/hooks";
import type { StuckEvent } from "../inspector/api.ts";
import { runItemId } from "../inspector/api.ts";
import { useFeed } from "./feed.ts";
import { Row } from "./runs.tsx";
import { addressOf } from "./server.ts";
import { Age, count, Notice } from "./words.tsx";

const dead: ReadonlyMap<string, boolean> = new Map();

/** What needs an operator: runs whose code does not match, agents that no process has, runs of processes that are gone. */
export function StuckView() {
  const [stuck, setStuck] = useState<StuckEvent | null>(null);
  const refused = useFeed<StuckEvent>(addressOf("feed/stuck"), setStuck);
  return (
    <>
      <h1>Stuck</h1>
      {refused !== null && <Notice>{refused}</Notice>}
      {stuck === null && refused === null && <p role="status">Loading …</p>}
      {stuck !== null && (
        <>
          <h2>Blocked runs</h2>
          {stuck.blocked.length === 0 && <p class="faint">None: all code matches its logs.</p>}
          <ul class="plain">
            {stuck.blocked.map((run) => (
              <li key={runItemId(run)}>
                <Row run={run} />
                <p class="needs">{run.needs}</p>
                <p class="needs">{run.help}</p>
              </li>
            ))}
          </ul>
          {stuck.blocked.length > 0 && (
            <p class="faint">
              A run continues as soon as a process registers code that matches. Try new code on all open runs before it
              is deployed: npx cadenza check agents.ts --store …
            </p>
          )}
          {stuck.unregistered !== null && (
            <>
              <h2>Code that is not here</h2>
              {stuck.unregistered.length === 0 && <p class="faint">None: all agents with live runs are registered.</p>}
              <ul class="plain">
                {stuck.unregistered.map(({ agent_name, version, needs, since, due, waiting }) => (
                  <li key={`${agent_name} ${version}`} class="card">
                    <b>
                      {agent_name} {version}
                    </b>{" "}
                    <span class="faint">
                      {count(due + waiting, "run")}
                      {since !== null && (
                        <>
                          , the first one due <Age of={since} />
                        </>
                      )}
                    </span>
                    <p class="needs">{needs}</p>
                  </li>
                ))}
              </ul>
            </>
          )}
          <h2>Lost runs</h2>
          <p class="faint">
            {stuck.lost.length === 0
              ? "None: all processes that execute runs are alive."
              : "The process that executed them is gone. Another one takes them over, if it has their code and room for them."}
          </p>
          <ul class="plain">
            {stuck.lost.map((run) => (
              <li key={runItemId(run)}>
                <Row run={run} workers={dead} />
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
