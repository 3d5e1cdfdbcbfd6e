import type { Entry } from "../core/log.ts";
import type { Agent, AgentFunction } from "../runtime/agent/agent.ts";
import { newAgent } from "../runtime/agent/agent.ts";
import type { AgentContext } from "../runtime/agent/agent-context.ts";
import type { StandardSchema } from "../runtime/agent/standard-schema.ts";
import { DriveError } from "./drive-error.ts";
import { quote } from "./drive-event.ts";
import type { DriveSettings } from "./drive-options.ts";
import { agentOf } from "./drive-options.ts";
import type { Gate } from "./gate.ts";
import { ListenerWatch } from "./listener-watch.ts";
import type { Operation } from "./operation.ts";
import { OpenOperation } from "./operation.ts";
import type { AgentStage, Conduct } from "./staged-agent.ts";
import { newConduct, stageAgent } from "./staged-agent.ts";
import type { ContextStage, Recorded, StepStandIn } from "./staged-context.ts";
import { StagedContext } from "./staged-context.ts";

/** Further hooks of a test run: to observe agents closely, and to disturb them. */
export interface StageHooks {
  /** Whether to observe what an agent does after it was stopped. */
  readonly probes?: boolean;
  /** Returns what calls the code of an agent, each time that an agent function begins. */
  readonly tracer?: (context: AgentContext) => Tracer;
  /** Whether agents are durable. Default: false, since a unit test ends with its process. */
  readonly durable?: boolean;
  /** Called when the body of a step has ended. If it throws, the step throws. */
  readonly afterStep?: (operation: Operation) => void;
  /**
   * Called when the body of a step or a sub-run begins. If it throws, the step or the sub-agent throws. If it returns a
   * promise, a step waits for it.
   */
  readonly onOperation?: (operation: Operation) => undefined | Promise<unknown>;
  /** Whether the agent is held when an entry of its log is written. What it emits and asks holds it anyway. */
  readonly holdsAt?: (entry: Entry) => boolean;
  /** The id of the first run. */
  readonly firstId?: string;
  /** The recorded result of an operation; undefined to execute it. */
  readonly recorded?: (operation: Operation) => Recorded | undefined;
  /** Whether an agent has a patch for which it asks. Default: it does, if the runtime says so. */
  readonly patched?: (id: string, runId: string) => boolean;
  /** Called when the agent has emitted something with `context.emit`. If it throws, `emit` throws. */
  readonly onEmit?: () => void;
}

/** Calls the code of an agent. */
export type Tracer = <T>(callback: () => T) => T;

/**
 * The agent under test and its sub-agents. Holds them at the gate, records what they do, and replaces what the test
 * replaces.
 */
export class Cast {
  readonly operations: OpenOperation[] = [];
  /** The abort listeners on the signals of agents. */
  readonly listeners = new ListenerWatch();
  /** Errors for the next steps to throw. */
  readonly failures: { readonly error: unknown }[] = [];
  /** How the agent under test has behaved. */
  readonly conduct: Conduct = newConduct();
  /** A step, sub-agent or question that the test does not provide for. */
  mistake: DriveError | undefined;
  /** The context of the agent under test, made by the runtime. */
  lead: AgentContext | undefined;
  readonly #settings: DriveSettings;
  readonly #gate: Gate;
  readonly #hooks: StageHooks;
  readonly #register: (agent: Agent) => void;
  readonly #registered = new Set<string>();
  /** The sub-agents that have run, with the schemas of their outputs. */
  readonly #prepared = new Map<string, StandardSchema | undefined>();
  /** Sub-agents whose next run throws. */
  readonly #failing = new Map<string, unknown>();

  constructor(settings: DriveSettings, gate: Gate, hooks: StageHooks, register: (agent: Agent) => void) {
    this.#settings = settings;
    this.#gate = gate;
    this.#hooks = hooks;
    this.#register = register;
  }

  /** Registers the agent under test. */
  addLead(agent: Agent): void {
    this.#add(agent, true);
  }

  /** Registers the sub-agents that have run in an earlier process, as an application does when it starts. */
  addSubAgentsOf(earlier: Cast): void {
    for (const [name, output] of earlier.#prepared) this.#prepareAgent(name, output);
  }

  #add({ name, options, fn }: Agent, isLead: boolean): void {
    this.#registered.add(name);
    const staged: AgentFunction = (input, context) => {
      // Each generation of a run has a context of its own.
      if (isLead && (this.lead ?? context).run_id === context.run_id) this.lead = context;
      const conduct = isLead && this.lead === context ? this.conduct : newConduct();
      const onStage = new StagedContext(context, this.#contextStage(context, conduct, options.durable ?? false));
      const call = (): unknown => {
        if (conduct !== this.conduct) this.#failIfAsked(name);
        return fn(input, onStage);
      };
      return stageAgent(call, this.#agentStage(conduct, context), conduct);
    };
    this.#register(newAgent(name, { ...options, durable: this.#hooks.durable ?? false }, staged, "typed"));
  }

  #agentStage(conduct: Conduct, context: AgentContext): AgentStage {
    const isLead = conduct === this.conduct;
    return {
      pass: () => this.#gate.pass(),
      shown: () => {
        if (isLead) this.#gate.close();
      },
      stopping: () => {
        if (isLead) this.#gate.free();
      },
      trace: this.#hooks.tracer?.(context) ?? ((callback) => callback()),
      probes: isLead && (this.#hooks.probes ?? false),
    };
  }

  #contextStage(context: AgentContext, conduct: Conduct, durable: boolean): ContextStage {
    const isLead = conduct === this.conduct;
    const { run_id, agent_name } = context;
    const keyFor = countKeys(context.generation);
    return {
      throughJson: durable,
      pass: () => this.#gate.pass(),
      shown: () => {
        if (isLead) this.#gate.close();
      },
      emitted: () => {
        if (isLead) this.#hooks.onEmit?.();
      },
      notShown: () => {
        if (!conduct.stopped && isLead) this.#gate.open();
      },
      begin: (kind, name, label, interest) => {
        const key = keyFor(label);
        const operation = new OpenOperation({ kind, name, key, agent_name, run_id }, interest);
        this.operations.push(operation);
        return operation;
      },
      failed: (operation) => {
        if (conduct.stopped && operation.wasAwaited) conduct.interrupted = true;
      },
      stepStandIn: (name) => this.#stepStandIn(agent_name, name, isLead),
      checkStrict: (name) => this.#checkStrict(agent_name, name, isLead),
      patched: (id) => this.#hooks.patched?.(id, run_id) ?? true,
      recorded: (operation) => this.#hooks.recorded?.(operation),
      hasAgent: (name) => this.#settings.agents.find(name) !== undefined,
      prepareAgent: (name, output) => this.#prepareAgent(name, output),
      onStep: (operation) => {
        const failure = this.failures.shift();
        if (failure !== undefined) throw failure.error;
        return this.#hooks.onOperation?.(operation);
      },
      afterStep: (operation) => this.#hooks.afterStep?.(operation),
      onRun: (operation) => {
        const failed = (error: unknown): void => {
          this.#failing.set(operation.name, error);
        };
        try {
          const begun = this.#hooks.onOperation?.(operation);
          begun?.catch(failed);
        } catch (error) {
          failed(error);
        }
      },
      onSignal: (signal) => this.listeners.add(signal),
    };
  }

  /** Whether a step has failed and waits for its next attempt. */
  get isPausing(): boolean {
    return this.operations.some(({ isPausing }) => isPausing);
  }

  /** Whether the body of a step is at work. */
  get isAtWork(): boolean {
    return this.operations.some(({ isAtWork }) => isAtWork);
  }

  /** Throws an error for what the test does not provide for. */
  check(): void {
    if (this.mistake !== undefined) throw this.mistake;
  }

  #stepStandIn(agentName: string, name: string, isLead: boolean): { readonly value: StepStandIn } | undefined {
    const { steps } = this.#settings;
    return isLead ? steps.find(name) : steps.find(`${agentName}/${name}`, name);
  }

  #checkStrict(agentName: string, name: string, isLead: boolean): void {
    if (!this.#settings.strict) return;
    const key = quote(isLead ? name : `${agentName}/${name}`);
    throw this.#isMistaken(
      `The step ${key} has no stand-in, and strict: true requires one. ` +
        `Add it: { steps: { ${key}: … } }.${this.#known("steps")}`,
    );
  }

  #prepareAgent(name: string, output: StandardSchema | undefined): boolean {
    const standIn = this.#settings.agents.find(name);
    if (this.#registered.has(name)) return standIn !== undefined;
    if (standIn === undefined) {
      throw this.#isMistaken(
        `The agent runs the sub-agent ${quote(name)}, which the test does not know. ` +
          `Give the agent itself or a stand-in: { agents: { ${quote(name)}: … } }.${this.#known("agents")}`,
      );
    }
    this.#prepared.set(name, output);
    this.#add(agentOf(name, standIn.value, output), false);
    return true;
  }

  #failIfAsked(name: string): void {
    if (!this.#failing.has(name)) return;
    const error = this.#failing.get(name);
    this.#failing.delete(name);
    throw error;
  }

  #known(what: "steps" | "agents"): string {
    const { names } = this.#settings[what];
    return names.length === 0 ? "" : ` There are ${names.map(quote).join(", ")}.`;
  }

  #isMistaken(message: string): DriveError {
    this.mistake ??= new DriveError(message);
    return this.mistake;
  }
}

/** Makes keys as the runtime does: the name, and the number of its uses. */
function countKeys(generation: number): (name: string) => string {
  const counts = new Map<string, number>();
  return (name) => {
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return generation === 1 ? `${name}#${count}` : `${name}#${generation}.${count}`;
  };
}
