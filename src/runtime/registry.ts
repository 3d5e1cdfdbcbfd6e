import { CadenzaError } from "../core/errors.ts";
import type { AgentVersion } from "../core/ports.ts";
import type { AgentManifest, AgentStatus } from "../protocol/agent.ts";
import type { Agent, RegisterOptions } from "./agent.ts";
import { badArgument } from "./check.ts";

/** The agents of a runtime, by name and version. */
export class Registry {
  readonly #versions = new Map<string, Map<string | undefined, Agent>>();
  readonly #current = new Map<string, Agent>();

  /** Adds an agent. New runs of a name use the version that was registered last. */
  add(agent: Agent): void {
    const { replace = false } = agent.options as RegisterOptions;
    if (typeof replace !== "boolean") throw badArgument("options.replace", "true or false", replace);
    const versions = this.#versions.get(agent.name) ?? new Map<string | undefined, Agent>();
    const { version } = agent.options;
    if (versions.has(version) && !replace) throw alreadyThere(agent.name, version);
    versions.set(version, agent);
    this.#versions.set(agent.name, versions);
    this.#current.set(agent.name, agent);
  }

  /** The agent for new runs of this name. Throws `agent_not_found`. */
  get(name: string): Agent {
    const agent = this.#current.get(name);
    if (agent === undefined)
      throw new CadenzaError("agent_not_found", `There is no agent ${JSON.stringify(name)}.`, { agent_name: name });
    return agent;
  }

  /** The agent that a run was created for, or undefined if it is not registered here. */
  find(name: string, version: string | undefined): Agent | undefined {
    return this.#versions.get(name)?.get(version);
  }

  /** All versions of all agents that are registered in this process. */
  get versions(): readonly AgentVersion[] {
    return [...this.#versions].flatMap(([agent_name, versions]) =>
      [...versions.keys()].map((version) => ({ agent_name, version: version ?? null })),
    );
  }

  /** The agent for new runs of each name, in the order in which the names were first registered. */
  all(): readonly Agent[] {
    return [...this.#current.values()];
  }
}

/** The manifest of an agent (ACP 1.0). */
export function manifestOf({ name, options }: Agent, status: AgentStatus): AgentManifest {
  return {
    name,
    description: options.description ?? "",
    input_content_types: options.inputContentTypes ?? ["*/*"],
    output_content_types: options.outputContentTypes ?? ["*/*"],
    metadata: options.metadata ?? {},
    status,
  };
}

function alreadyThere(name: string, version: string | undefined): CadenzaError {
  const which =
    version === undefined
      ? `An agent ${JSON.stringify(name)}`
      : `Version ${JSON.stringify(version)} of agent ${JSON.stringify(name)}`;
  return new CadenzaError(
    "agent_exists",
    `${which} is registered already. Give it another version, or { replace: true }.`,
    { agent_name: name },
  );
}
