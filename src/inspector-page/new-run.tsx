import { useState } from "preact/hooks";
import type { InspectedAgent } from "../inspector/api.ts";
import { goTo, hrefTo, hrefToRun, place } from "./place.ts";
import { isSchema } from "./question.tsx";
import { SchemaForm } from "./schema-form.tsx";
import { act, start } from "./server.ts";
import { Empty, Notice } from "./words.tsx";

export interface Created {
  readonly tenant: string;
  readonly run_id: string;
  readonly session_id: string;
}

/** Chooses an agent, and creates a run of it. */
export function NewRunView() {
  const agents = start.value?.agents ?? [];
  const chosen = agents.find(({ agent_name }) => agent_name === place.value.path[1]);
  const [tenant, setTenant] = useState(start.value?.tenant ?? "");
  return (
    <>
      <h1>New run</h1>
      {start.value?.may_write !== true && <Notice kind="info">You may only read here.</Notice>}
      {agents.length === 0 && (
        <Empty is="This process has no agents.">
          Register one with <code>runtime.register(…)</code> in the process that serves this page.
        </Empty>
      )}
      <ul class="agents">
        {agents.map((agent) => (
          <li key={agent.agent_name}>
            <a href={hrefTo(["new", agent.agent_name])} aria-current={agent === chosen ? "true" : undefined} data-row>
              <b>{agent.agent_name}</b> <span class="faint">{agent.version}</span>{" "}
              <span class="chip">{agent.durable ? "durable" : "in memory"}</span>
              {agent.description !== "" && <p class="faint">{agent.description}</p>}
            </a>
          </li>
        ))}
      </ul>
      {chosen !== undefined && start.value?.may_write === true && (
        <section key={chosen.agent_name} class="card">
          <h2>{chosen.agent_name}</h2>
          {start.value.tenant === null && (
            <p class="field">
              <label htmlFor="tenant">Tenant</label>
              <input id="tenant" value={tenant} onInput={({ currentTarget }) => setTenant(currentTarget.value)} />
            </p>
          )}
          <SchemaForm
            schema={isSchema(chosen.input_schema) ? chosen.input_schema : null}
            label="Input"
            submit="Create the run"
            onSubmit={async (input) => goTo(hrefToRun(await create(chosen, tenant, input)))}
          >
            <a class="button quiet" href={hrefTo(["chat", tenant, chosen.agent_name, newSession()])}>
              Chat
            </a>
          </SchemaForm>
        </section>
      )}
    </>
  );
}

export function create(
  { agent_name }: Pick<InspectedAgent, "agent_name">,
  tenant: string,
  input: unknown,
  session_id?: string,
): Promise<Created> {
  return act<Created>("create", { tenant, agent_name, input: input ?? "", session_id });
}

/** `crypto.randomUUID` needs a page that was loaded safely, which one behind a tunnel may not be. */
function newSession(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
