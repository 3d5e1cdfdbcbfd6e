import type { AgentContext, AgentFunction, AgentOptions, Message, Run } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Setup } from "./runtimes.ts";
import { textsOf } from "./runtimes.ts";

/* Agents that wait, for tests that let time pass. */

/** What an agent does with its context. */
export type Body = (context: AgentContext, input: readonly Message[]) => unknown;

/** Registers an agent, and creates a run of it that has got as far as it can. */
export async function begin(set: Setup, body: Body, options: AgentOptions = {}, name = "agent"): Promise<string> {
  const fn = (input: readonly Message[], context: AgentContext): unknown => body(context, input);
  set.runtime.register(name, { ...options, replace: true } as AgentOptions, fn as AgentFunction);
  return again(set, name);
}

/** Creates one more run of an agent. */
export async function again({ runtime, clock }: Setup, agent_name = "agent"): Promise<string> {
  const { run_id } = await runtime.createRun({ agent_name, input: "Hello", mode: "async" });
  await clock.settle();
  return run_id;
}

/** The status of a run, with its output. */
export async function shown({ runtime, clock }: Setup, run_id: string): Promise<string> {
  await clock.settle();
  const run = await runtime.getRun(run_id);
  return [run.status, ...textsOf(run)].join(": ");
}

/** Why a run has failed. */
export function reasonOf({ error }: Run): unknown {
  return (error?.data as { readonly reason?: unknown } | undefined)?.reason;
}

/** The code of an error, or what the error says of itself. */
export function codeOf(error: unknown): string {
  return CadenzaError.is(error) ? error.code : String(error);
}

/** What becomes of a promise, as text. */
export async function outcome(promise: Promise<unknown>): Promise<string> {
  try {
    const value = await promise;
    return value === undefined ? "undefined" : JSON.stringify(value);
  } catch (error) {
    return codeOf(error);
  }
}
