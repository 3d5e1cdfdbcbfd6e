import type { Labels } from "../core/log.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Agent, AgentFunction, AgentValue } from "../runtime/agent/agent.ts";
import { newAgent } from "../runtime/agent/agent.ts";
import { badArgument, checkAmount, checkKeys, checkObject, describe } from "../runtime/agent/check.ts";
import { defineAgent } from "../runtime/agent/define-agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import type { StandardSchema } from "../runtime/agent/standard-schema.ts";
import type { BudgetOptions } from "../runtime/agent/usage.ts";
import { readBudget } from "../runtime/agent/usage.ts";
import type { Instant } from "./duration.ts";
import type { StepStandIn } from "./staged-context.ts";
import { StandIns } from "./stand-ins.ts";

/** How an agent is driven. Every property may be left out. */
export interface DriveOptions {
  /**
   * Stand-ins for steps, by name; `*` in a name stands for any characters. A function is called instead of the step's
   * own, an error is thrown, and any other value is the step's result. Steps of sub-agents count too: `plan` of the
   * agent `hotels` is looked up as `hotels/plan`, then as `plan`.
   */
  readonly steps?: Readonly<Record<string, StepStandIn>> | undefined;
  /**
   * The sub-agents that the agent may run, by name; `*` in a name stands for any characters. An agent or an agent
   * function is run, an error is thrown by the sub-agent, and any other value is what it emits.
   */
  readonly agents?: Readonly<Record<string, AgentStandIn>> | undefined;
  /** Whether a step without a stand-in is an error. Default: false, and the step runs. */
  readonly strict?: boolean | undefined;
  /** The session of the run. Default: one of its own, without history and state. */
  readonly session?: DriveSession | undefined;
  /** What the agent sees as `context.principal`. Default: null. */
  readonly principal?: JsonValue | undefined;
  /** What the agent sees as `context.metadata`. Default: null. */
  readonly metadata?: JsonValue | undefined;
  /** What the agent sees as `context.labels`. Default: none. */
  readonly labels?: Labels | undefined;
  /** The time at which the clock starts. Default: 2025-01-01T00:00:00Z. */
  readonly now?: Instant | undefined;
  /** How long the run may be active, in milliseconds of the fake clock. Default: as the agent says. */
  readonly timeoutMs?: number | undefined;
  /** How many tokens the run and its sub-runs may use. Default: as the agent says. */
  readonly budget?: BudgetOptions | undefined;
  /**
   * How long a question without a deadline of its own is valid, in milliseconds of the fake clock. Default: `Infinity`.
   */
  readonly awaitTimeoutMs?: number | undefined;
  /**
   * How long the agent may take for its `finally` blocks when it is stopped, in milliseconds of the fake clock.
   * Default: 500.
   */
  readonly cancelGraceMs?: number | undefined;
  /**
   * How long to wait for an agent without any activity, in milliseconds of the machine's time. An agent that waits for
   * a file or a server may need more. Default: 1,000; 250 where an agent is executed in many ways, and 2,000 for the body of
   * a step of an agent that is crashed or upgraded: eight times as long, whatever is given.
   */
  readonly patienceMs?: number | undefined;
}

/** The session of a run as the agent finds it. */
export interface DriveSession {
  /** A UUID. Default: one that is the same in every test. */
  readonly id?: string | undefined;
  /** The earlier messages, oldest first, in the forms that the input of a run may have. */
  readonly history?: RunInput | undefined;
  /** Default: null. */
  readonly state?: JsonValue | undefined;
}

/** A stand-in for a sub-agent: an agent, an agent function, what it emits, or an error that it throws. */
export type AgentStandIn = Agent | AgentFunction | Error | AgentValue;

/** The options with their defaults. */
export interface DriveSettings {
  readonly steps: StandIns<StepStandIn>;
  readonly agents: StandIns<AgentStandIn>;
  readonly strict: boolean;
  readonly session: DriveSession | undefined;
  readonly principal: JsonValue;
  readonly metadata: JsonValue | undefined;
  readonly labels: Labels | undefined;
  readonly now: Instant | undefined;
  readonly timeoutMs: number | undefined;
  readonly budget: BudgetOptions | undefined;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly patienceMs: number;
}

const names: readonly (keyof DriveOptions)[] = [
  "steps",
  "agents",
  "strict",
  "session",
  "principal",
  "metadata",
  "labels",
  "now",
  "timeoutMs",
  "budget",
  "awaitTimeoutMs",
  "cancelGraceMs",
  "patienceMs",
];

/** Reads the options of a drive. Throws `invalid_argument` for an invalid one. */
export function readDriveOptions(options: DriveOptions): DriveSettings {
  checkObject("options", options);
  checkKeys("options", options, names);
  const {
    steps = {},
    agents = {},
    strict = false,
    session,
    principal = null,
    metadata,
    labels,
    now,
    timeoutMs,
    budget,
  } = options;
  const { awaitTimeoutMs = Number.POSITIVE_INFINITY, cancelGraceMs = 500, patienceMs = 1_000 } = options;
  checkObject("options.steps", steps);
  checkObject("options.agents", agents);
  if (typeof strict !== "boolean") throw badArgument("options.strict", "true or false", strict);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
  readBudget("options.budget", budget);
  for (const [name, amount] of Object.entries({ awaitTimeoutMs, cancelGraceMs, patienceMs }))
    checkAmount(`options.${name}`, amount);
  if (session !== undefined) {
    checkObject("options.session", session);
    checkKeys("options.session", session, ["id", "history", "state"]);
  }
  return {
    steps: new StandIns(steps),
    agents: new StandIns(agents),
    strict,
    session,
    principal,
    metadata,
    labels,
    now,
    timeoutMs,
    budget,
    awaitTimeoutMs,
    cancelGraceMs,
    patienceMs,
  };
}

/** Reads the agent to drive: an agent, or an agent function, which is called `agent`. */
export function readAgent(agent: unknown): Agent {
  if (typeof agent === "function") return newAgent("agent", {}, agent as AgentFunction, "plain");
  if (isAgent(agent)) return newAgent(agent.name, agent.options, agent.fn, "typed");
  throw badArgument("agent", "an agent made by defineAgent, or an agent function", agent);
}

/** The stand-in for a sub-agent, as an agent of that name. With an `output` schema, a value is its output. */
export function agentOf(name: string, standIn: AgentStandIn, output: StandardSchema | undefined): Agent {
  if (typeof standIn === "function") return newAgent(name, {}, standIn as AgentFunction, "plain");
  if (isAgent(standIn)) return newAgent(name, standIn.options, standIn.fn, "typed");
  if (standIn instanceof Error)
    return newAgent(
      name,
      {},
      () => {
        throw standIn;
      },
      "plain",
    );
  const description = `stands in with ${describe(standIn)}`;
  if (output === undefined) return newAgent(name, { description }, () => standIn, "plain");
  return defineAgent(name, { description, output }).run(async () => standIn);
}

function isAgent(value: unknown): value is Agent {
  return (
    typeof value === "object" && value !== null && "name" in value && "fn" in value && typeof value.fn === "function"
  );
}
