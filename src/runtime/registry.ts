import { CadenzaError } from "../core/errors.ts";
import type { AgentVersion } from "../core/ports.ts";
import type { AgentManifest, AgentStatus, Metadata } from "../protocol/agent.ts";
import type { Agent, RegisterOptions } from "./agent.ts";
import { describeSchemas } from "./agent-schemas.ts";
import { badArgument } from "./check.ts";

/** The agents of a runtime, by name and version. Some are executed in this process, the others are only known here. */
export class Registry {
  /** Whether this process executes runs at all. */
  readonly #works: boolean;
  readonly #elsewhere = new Set<Agent>();
  readonly #versions = new Map<string, Map<string | undefined, Agent>>();
  readonly #current = new Map<string, Agent>();
  #declaresMessages = false;

  constructor(works: boolean) {
    this.#works = works;
  }

  /**
   * Adds agents that this process executes, or none of them. New runs of a name use the version that was added last.
   */
  add(agents: readonly Agent[]): void {
    this.#check(agents);
    for (const agent of agents) this.#put(agent, this.#works);
  }

  /** Adds agents that other processes execute, or none of them. */
  declare(agents: readonly Agent[]): void {
    this.#check(agents);
    for (const agent of agents) this.#put(agent, false);
  }

  #check(agents: readonly Agent[]): void {
    const seen = new Set<string>();
    for (const { name, options } of agents) {
      const { version, replace = false } = options as RegisterOptions;
      if (typeof replace !== "boolean") throw badArgument("options.replace", "true or false", replace);
      const which = JSON.stringify([name, version]);
      if (!replace && (seen.has(which) || this.known(name, version) !== undefined)) throw alreadyThere(name, version);
      seen.add(which);
    }
  }

  #put(agent: Agent, isExecuted: boolean): void {
    const versions = this.#versions.get(agent.name) ?? new Map<string | undefined, Agent>();
    const before = versions.get(agent.options.version);
    if (before !== undefined) this.#elsewhere.delete(before);
    if (!isExecuted) this.#elsewhere.add(agent);
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

  /** The agent that a run was created for. Undefined: this process does not execute it. */
  find(name: string, version: string | undefined): Agent | undefined {
    const agent = this.known(name, version);
    return agent !== undefined && this.executes(agent) ? agent : undefined;
  }

  /** The agent of this name and version, also if other processes execute it. */
  known(name: string, version: string | undefined): Agent | undefined {
    return this.#versions.get(name)?.get(version);
  }

  /** Whether this process executes the runs of an agent. */
  executes(agent: Agent): boolean {
    return !this.#elsewhere.has(agent);
  }

  /** All versions of all agents that this process executes. */
  get versions(): readonly AgentVersion[] {
    return [...this.#versions].flatMap(([agent_name, versions]) =>
      [...versions].flatMap(([version, agent]) =>
        this.executes(agent) ? [{ agent_name, version: version ?? null }] : [],
      ),
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
