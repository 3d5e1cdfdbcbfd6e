import type { Agent, AgentFunction } from "../runtime/agent.ts";
import { defineAgent } from "../runtime/agent.ts";
import type { AgentContext } from "../runtime/agent-context.ts";
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

/** What else may be done with the agents on a stage: looking at them closely, and getting in their way. */
export interface StageHooks {
  /** Whether to look at what an agent does that goes on after it was stopped. */
  readonly probes?: boolean;
  /** Gives what calls the code of an agent, each time that one begins. */
  readonly tracer?: (context: AgentContext) => Tracer;
  /** Whether agents are durable. Default: false, since a unit test needs nothing that outlives it. */
  readonly durable?: boolean;
  /** The body of a step is through; what it throws, the step throws. */
  readonly afterStep?: (operation: Operation) => void;
  /** The body of a step begins, or a sub-run does; what it throws, the step or the sub-agent throws. A promise: a step takes at least as long. */
  readonly onOperation?: (operation: Operation) => undefined | Promise<unknown>;
  /** The id of the first run. */
  readonly firstId?: string;
  /** What an operation gave another time; undefined to let it happen. */
  readonly recorded?: (operation: Operation) => Recorded | undefined;
  /** The agent has shown something by `context.emit`; what it throws, `emit` throws. */
  readonly onEmit?: () => void;
}

/** Calls the code of an agent. */
export type Tracer = <T>(callback: () => T) => T;

/** The agent under test and its sub-agents: what they do is held at the gate, written down, and replaced where the test wants it. */
export class Cast {
  readonly operations: OpenOperation[] = [];
  /** The listeners on the signals that agents have taken. */
  readonly listeners = new ListenerWatch();
  /** Errors that the next steps are to throw. */
  readonly failures: { readonly error: unknown }[] = [];
  /** How the agent under test behaves. */
  readonly conduct: Conduct = newConduct();
  /** What the test does not provide for. */
  mistake: DriveError | undefined;
  /** The context of the agent under test, as the runtime made it. */
  lead: AgentContext | undefined;
  readonly #settings: DriveSettings;
  readonly #gate: Gate;
  readonly #hooks: StageHooks;
  readonly #register: (agent: Agent) => void;
  readonly #registered = new Set<string>();
  /** Sub-agents of which the next run is to throw. */
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

  #add({ name, options, fn }: Agent, isLead: boolean): void {
    this.#registered.add(name);
    const staged: AgentFunction = (input, context) => {
      if (isLead) this.lead ??= context;
      const conduct = isLead && this.lead === context ? this.conduct : newConduct();
      const onStage = new StagedContext(context, this.#contextStage(context, conduct, options.durable ?? false));
      const call = (): unknown => {
        if (conduct !== this.conduct) this.#failIfAsked(name);
        return fn(input, onStage);
      };
      return stageAgent(call, this.#agentStage(conduct, context), conduct);
    };
    this.#register(defineAgent(name, { ...options, durable: this.#hooks.durable ?? false }, staged));
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
    const keyFor = countKeys();
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
      begin: (kind, name, interest) => {
        const key = keyFor(kind === "run" ? `run:${name}` : name);
        const operation = new OpenOperation({ kind, name, key, agent_name, run_id }, interest);
        this.operations.push(operation);
        return operation;
      },
      failed: (operation) => {
        if (conduct.stopped && operation.wasAwaited) conduct.interrupted = true;
      },
      stepStandIn: (name) => this.#stepStandIn(agent_name, name, isLead),
      checkStrict: (name) => this.#checkStrict(agent_name, name, isLead),
      recorded: (operation) => this.#hooks.recorded?.(operation),
      hasAgent: (name) => this.#settings.agents.find(name) !== undefined,
      prepareAgent: (name) => this.#prepareAgent(name),
      onStep: (operation) => {
        const failure = this.failures.shift();
        if (failure !== undefined) throw failure.error;
        return this.#hooks.onOperation?.(operation);
      },
      afterStep: (operation) => this.#hooks.afterStep?.(operation),
      onRun: (operation) => {
        try {
          void this.#hooks.onOperation?.(operation);
        } catch (error) {
          this.#failing.set(operation.name, error);
        }
      },
      onSignal: (signal) => this.listeners.add(signal),
    };
  }

  /** Whether a step has failed and waits for its next attempt. */
  get isPausing(): boolean {
    return this.operations.some(({ isPausing }) => isPausing);
  }

  /** Throws what the test does not provide for. */
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
      `Nothing stands in for the step ${key}, and with strict: true something has to. ` +
        `Add it: { steps: { ${key}: … } }.${this.#known("steps")}`,
    );
  }

  #prepareAgent(name: string): boolean {
    const standIn = this.#settings.agents.find(name);
    if (this.#registered.has(name)) return standIn !== undefined;
    if (standIn === undefined) {
      throw this.#isMistaken(
        `The agent runs the sub-agent ${quote(name)}, which is not known here. ` +
          `Give the agent itself or a stand-in: { agents: { ${quote(name)}: … } }.${this.#known("agents")}`,
      );
    }
    this.#add(agentOf(name, standIn.value), false);
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

/** Gives keys as the runtime does: the name, and which of that name it is. */
function countKeys(): (name: string) => string {
  const counts = new Map<string, number>();
  return (name) => {
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return `${name}#${count}`;
  };
}
