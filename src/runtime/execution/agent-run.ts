import type { Run } from "../../protocol/run.ts";
import type { Agent } from "../agent/agent.ts";
import type { NewSubRun } from "../agent/new-run.ts";
import type { Ownership } from "../log/ownership.ts";
import type { RunLog } from "../log/run-log.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import type { Execution } from "./execution.ts";
import type { RunFamily } from "./run-family.ts";

/** The run of an agent, and what its agent reports to it. */
export interface AgentRun {
  readonly shared: SharedByRuns;
  readonly log: RunLog;
  readonly agent: Agent;
  readonly durable: boolean;
  readonly ownership: Ownership;
  readonly execution: Execution | undefined;
  readonly family: RunFamily<AgentRun>;
  /** Calls back when the run has its slot, now or later. */
  withSlot(callback: () => void): void;
  /** Takes the run's slot for a step body. Undefined: it has the slot, or needs none. */
  takeSlotForBody(): undefined | Promise<void>;
  /** A step has begun, perhaps beside something that the run waits for. */
  onStepBegun(): void;
  /** A step has ended: the run may only wait from now on. */
  onStepEnded(): void;
  runAgent(execution: Execution, request: NewSubRun): Promise<Run>;
  /** What the agent threw, for callers who are told more than the client. */
  cause: unknown;
  /** The run is about to end: its sub-runs end first. */
  onEnd(): void;
  /** The agent has ended, or has been left behind. */
  onOver(): void;
}
