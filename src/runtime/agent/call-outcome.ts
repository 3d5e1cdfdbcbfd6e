import { CadenzaError } from "../../core/errors.ts";
import type { Run } from "../../protocol/run.ts";
import type { AgentContext, SubRunOptions } from "./agent-context.ts";
import type { CallableAgent } from "./agent-schemas.ts";
import { inputFor, readOutput } from "./agent-schemas.ts";
import { checkObject } from "./check.ts";
import type { SchemaHost } from "./standard-schema.ts";

/** Calls an agent by `context.run`, and gives its output. */
export async function callInside(
  run: AgentContext["run"],
  agent: CallableAgent,
  input: unknown,
  options: SubRunOptions | undefined,
  { logger }: SchemaHost,
): Promise<unknown> {
  checkObject("agent", agent);
  // The time of the calling run limits that of the schema.
  return outcomeOf(agent, await run(agent.name, inputFor(agent, input), options), { logger });
}

/** The output of a run that has completed. Throws `run_failed` or `run_cancelled`. */
export async function outcomeOf(agent: CallableAgent, run: Run, host: SchemaHost): Promise<unknown> {
  const { run_id, agent_name, status, error } = run;
  if (status === "completed") return readOutput(agent, run, host);
  const details = { run_id, agent_name, run };
  const which = `Run ${run_id} of agent ${JSON.stringify(agent_name)}`;
  if (status === "cancelled") throw new CadenzaError("run_cancelled", `${which} was cancelled.`, details);
  throw new CadenzaError("run_failed", `${which} has failed: ${error?.message}`, details);
}
