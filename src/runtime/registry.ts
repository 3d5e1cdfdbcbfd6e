import { CadenzaError } from "../core/errors.ts";
import type { AgentVersion } from "../core/ports.ts";
import type { AgentManifest, AgentStatus, Metadata } from "../protocol/agent.ts";
import type { Agent, RegisterOptions } from "./agent.ts";
import { describeSchemas } from "./agent-schemas.ts";
import { badArgument } from "./check.ts";

/** The agents of a runtime, by name and version. */
export class Registry {
  readonly #versions = new Map<string, Map<string | undefined, Agent>>();
  readonly #current = new Map<string, Agent>();
  #declaresMessages = false;

  /** Adds agents, or none. New runs of a name use the version that was registered last. */
  add(agents: readonly Agent[]): void {
    const seen = new Set<string>();
    for (const { name, options } of agents) {
      const { version, replace = false } = options as RegisterOptions;
      if (typeof replace !== "boolean") throw badArgument("options.replace", "true or false", replace);
      const which = JSON.stringify([name, version]);
      if (!replace && (seen.has(which) || this.find(name, version) !== undefined)) throw alreadyThere(name, version);
      seen.add(which);
    }
    for (const agent of agents) this.#add(agent);
  }

  #add(agent: Agent): void {
    const versions = this.#versions.get(agent.name) ?? new Map<string | undefined, Agent>();
    versions.set(agent.options.version, agent);
    this.#versions.set(agent.name, versions);
    this.#current.set(agent.name, agent);
    this.#declaresMessages ||= agent.options.messages !== undefined;
  }

  /** Whether an agent declares the messages that it receives. */
  get declaresMessages(): boolean {
    return this.#declaresMessages;
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
export function manifestOf(agent: Agent, status: AgentStatus): AgentManifest {
  const { name, options } = agent;
  return {
    name,
    description: options.description ?? "",
    input_content_types: options.inputContentTypes ?? (options.input === undefined ? anyType : valueTypes),
    output_content_types: options.outputContentTypes ?? anyType,
    metadata: metadataOf(agent),
    status,
  };
}

const anyType: readonly string[] = ["*/*"];
/** The content types from which the input of a schema is read. */
const valueTypes: readonly string[] = ["application/json", "text/plain"];

/** The metadata of agents with schemas. Converting schemas takes a while. */
const described = new WeakMap<Agent, Metadata>();

/** The metadata of an agent. Its schemas are annotations, which ACP leaves to the agent. */
function metadataOf(agent: Agent): Metadata {
  const { metadata = {}, ...schemas } = agent.options;
  const known = described.get(agent);
  if (known !== undefined) return known;
  const cadenza = describeSchemas(schemas);
  if (cadenza === undefined) return metadata;
  const withSchemas: Metadata = { ...metadata, annotations: { ...metadata.annotations, cadenza } };
  described.set(agent, withSchemas);
  return withSchemas;
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
