import type { AgentContext } from "../runtime/agent/agent-context.ts";
import type { CallableAgent } from "../runtime/agent/agent-schemas.ts";
import type { Step } from "../runtime/agent/agent-steps.ts";
import type { Question } from "../runtime/agent/agent-waits.ts";
import type { StandardSchema } from "../runtime/agent/standard-schema.ts";

/**
 * What the AI SDK needs of the context of an agent. The contexts of all agents have it: of plain, durable and typed
 * ones.
 */
export interface SdkContext extends Pick<AgentContext, "run_id" | "signal" | "logger" | "emit" | "usage"> {
  readonly step: Step;
  ask(question: Question, options: SdkQuestion): Promise<unknown>;
  call(agent: CallableAgent, input: never): Promise<unknown>;
}

/** How a question about a tool is asked. */
export interface SdkQuestion {
  readonly schema: StandardSchema<unknown, unknown>;
  readonly name: string;
  readonly kind: "input" | "approval";
  readonly timeoutMs?: number | undefined;
  readonly default?: unknown;
}

/** Aborts with the first of the signals. */
export function joined(signal: AbortSignal, other: AbortSignal | undefined): AbortSignal {
  return other === undefined || other === signal ? signal : AbortSignal.any([signal, other]);
}
