import { CadenzaError } from "../../core/errors.ts";
import type { AgentVersion } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import type { AgentManifest, AgentStatus, Metadata } from "../../protocol/agent.ts";
import type { Agent, Registration } from "./agent.ts";
import { describeSchemas } from "./agent-schemas.ts";
import { badArgument } from "./check.ts";

/** How many names an error lists at most. */
const NAMES_IN_ERRORS = 10;

/** Whether this process executes the runs of an agent, or other processes do. */
type Executed = "here" | "elsewhere";

/** The agents of a runtime, by name and version. Some are executed in this process, the others are only known here. */
export class Registry {
  /** Where the runs of agents that are added are executed. */
  readonly #added: Executed;
  readonly #elsewhere = new Set<Agent>();
  readonly #versions = new Map<string, Map<string | undefined, Agent>>();
  /** The agent for new runs of each name. */
  readonly #current = new Map<string, Agent>();
  #declaresMessages = false;
  /** Called for each agent that this process executes from now on. */
  onAdded: (agent: Agent) => void = ignore;

  /** `added`: `elsewhere` for a process that executes no runs. */
  constructor(added: Executed) {
    this.#added = added;
  }

  /**
   * Adds agents that this process executes, or none of them. New runs of a name use the version that says `current`, or
   * else the one that was added last. Answers where an older version has thereby replaced a newer one, and tells
   * {@link onAdded} of each.
   */
  add(agents: readonly Agent[]): readonly Demotion[] {
    this.#check(agents);
    const demotions = agents.flatMap((agent) => this.#put(agent, this.#added));
    if (this.#added === "here") for (const agent of agents) this.onAdded(agent);
    return demotions;
  }

  /** As {@link add}, for agents that other processes execute. */
  declare(agents: readonly Agent[]): readonly Demotion[] {
    this.#check(agents);
    return agents.flatMap((agent) => this.#put(agent, "elsewhere"));
  }

  #check(agents: readonly Agent[]): void {
    const seen = new Set<string>();
    const marked = new Map([...this.#current].filter(([, agent]) => isMarked(agent)));
    for (const agent of agents) {
      const { name, options } = agent;
      const { version, replace = false, current } = options as Agent["options"] & Registration;
      if (typeof replace !== "boolean") throw badArgument("options.replace", "true or false", replace);
      if (current !== undefined && typeof current !== "boolean")
        throw badArgument("options.current", "true or false", current);
      const other = marked.get(name);
      if (current === true) {
        if (!replace && other !== undefined) throw badArgument("options.current", oneCurrent(other), version);
        marked.set(name, agent);
      }
      const which = JSON.stringify([name, version]);
      if (!replace && (seen.has(which) || this.known(name, version) !== undefined)) throw alreadyThere(name, version);
      seen.add(which);
    }
  }

  #put(agent: Agent, executed: Executed): readonly Demotion[] {
    const { name, options } = agent;
    const versions = this.#versions.get(name) ?? new Map<string | undefined, Agent>();
    const replaced = versions.get(options.version);
    if (replaced !== undefined) this.#elsewhere.delete(replaced);
    if (executed === "elsewhere") this.#elsewhere.add(agent);
    // The versions are in the order in which they were registered last.
    versions.delete(options.version);
    versions.set(options.version, agent);
    this.#versions.set(name, versions);
    this.#declaresMessages ||= options.messages !== undefined;
    const before = this.#current.get(name);
    const after = currentOf([...versions.values()], agent);
    if (after === undefined) this.#current.delete(name);
    else this.#current.set(name, after);
    if (before === undefined || after !== agent || isMarked(agent)) return [];
    const { version } = before.options;
    const isDemoted = version !== options.version && (replaced !== undefined || isOlder(options.version, version));
    return isDemoted ? [{ agent_name: name, version: options.version ?? null, before: version ?? null }] : [];
  }

  /** Whether an agent declares the messages that it receives. */
  get declaresMessages(): boolean {
    return this.#declaresMessages;
  }

  /** The agent for new runs of this name, or the one of a version. Throws `agent_not_found`. */
  get(name: string, version?: string): Agent {
    const agent = version === undefined ? this.#current.get(name) : this.known(name, version);
    if (agent !== undefined) return agent;
    if (version !== undefined && this.#versions.has(name)) throw noVersion(name, version);
    const message = this.#versions.has(name)
      ? `Agent ${JSON.stringify(name)} has no current version: all are registered with { current: false }.`
      : `There is no agent ${JSON.stringify(name)}. ${this.#registeredNames()}`;
    throw new CadenzaError("agent_not_found", message, { agent_name: name });
  }

  #registeredNames(): string {
    const names = [...this.#current.keys()].slice(0, NAMES_IN_ERRORS).map((name) => JSON.stringify(name));
    if (names.length === 0) return "None is registered.";
    const more = this.#current.size - names.length;
    return `Registered: ${names.join(", ")}${more > 0 ? `, and ${more} more` : ""}.`;
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

function noVersion(agent_name: string, version: string): CadenzaError {
  const message = `There is no version ${JSON.stringify(version)} of agent ${JSON.stringify(agent_name)}.`;
  return new CadenzaError("agent_not_found", message, { agent_name });
}

/** New runs of an agent use an older version from now on, and no option has asked for it. */
export interface Demotion {
  readonly agent_name: string;
  /** The version that new runs use now. */
  readonly version: string | null;
  /** The one that they used before. */
  readonly before: string | null;
}

/** The version for new runs: the one that says so, or else the one that was registered last. Undefined: none may be. */
function currentOf(versions: readonly Agent[], added: Agent): Agent | undefined {
  if (isMarked(added)) return added;
  const may = versions.filter(({ options }) => (options as Registration).current !== false);
  return may.findLast(isMarked) ?? may.at(-1);
}

function isMarked({ options }: Agent): boolean {
  return (options as Registration).current === true;
}

function oneCurrent({ name, options: { version } }: Agent): string {
  return `one current version of agent ${JSON.stringify(name)}, which is ${version === undefined ? "the one without a version" : JSON.stringify(version)}, or { replace: true } in addition`;
}

/** Numbers with dots, dashes or the like between them: `2`, `v1.10.0`, `2026-01-31`. */
const numbered = /^v?\d+(?:[-._:T]\d+)*Z?$/i;

/** Whether a version is older than another one, as far as their names tell. No version is older than any. */
function isOlder(version: string | undefined, than: string | undefined): boolean {
  if (version === undefined || than === undefined) return version !== than && version === undefined;
  if (!numbered.test(version) || !numbered.test(than)) return false;
  const [one = [], other = []] = [version, than].map((name) => (name.match(/\d+/g) ?? []).map(Number));
  for (let index = 0; index < Math.max(one.length, other.length); index++) {
    const difference = (one[index] ?? 0) - (other[index] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
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
