import type { AgentContext, Message, StepOptions } from "cadenza";
import * as z from "zod";
import { body } from "./bodies.ts";
import type { Script } from "./play.ts";
import type { Process } from "./world.ts";

/** An agent that uses one feature, and what a client does with it. */
export interface Scenario extends Script {
  readonly name: string;
  /** How the run ends: its status and output. */
  readonly ends: string;
  /** Whether its questions come in no particular order. */
  readonly isUnordered?: true;
}

type Work = <T>(name: string, value: T, ms?: number, options?: StepOptions) => Promise<T>;
type AgentBody = (tools: {
  context: AgentContext;
  input: readonly Message[];
  work: Work;
  process: Process;
}) => AsyncGenerator<unknown, unknown, unknown>;

export const numberSchema = z.object({ number: z.number() });

/** Registers durable agents whose steps are checked and take time. */
export function agents(agent: AgentBody, others: Readonly<Record<string, AgentBody>> = {}): Script["register"] {
  return (process) => {
    for (const [name, fn] of Object.entries({ agent, ...others })) {
      process.runtime.register(name, { durable: true, version: "1" }, (input, context: AgentContext) => {
        const work: Work = (step, value, ms, options) =>
          context.step(step, (s) => body(process, context, s, value, ms), options);
        return fn({ context, input, work, process });
      });
    }
  };
}

export function isAwaiting(state: { readonly status: string }): boolean {
  return state.status === "awaiting";
}
