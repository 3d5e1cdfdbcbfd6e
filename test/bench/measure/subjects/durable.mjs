import { checkRun } from "../checks.mjs";
import { agents, resultOf, textAnswer } from "./agents.mjs";

/**
 * The benchmark's durable agents on a runtime, and what is timed of them. With `sessionOf`, runs belong to the session
 * that it gives for their number.
 */
export function durableRuns(runtime, sessionOf) {
  return {
    run: async (text, index) => {
      const session = sessionOf && { session_id: sessionOf(index) };
      checkRun(resultOf(await runtime.createRun({ agent_name: "echo", input: text, ...session })), text);
    },
    cycle: async (text) => {
      const { run_id, status } = await runtime.createRun({ agent_name: "asks", input: text });
      if (status !== "awaiting") throw new Error(`The run is ${status}, and does not ask.`);
      checkRun(resultOf(await runtime.resume({ run_id, await_resume: textAnswer(text) })), text);
    },
  };
}

export function registerDurable(runtime) {
  for (const name of ["echo", "asks"]) runtime.register(name, { durable: true }, agents[name]);
  return runtime;
}
