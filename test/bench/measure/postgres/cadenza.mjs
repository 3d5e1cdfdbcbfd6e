import { checkRun } from "../checks.mjs";
import { agents, textAnswer } from "../subjects/agents.mjs";
import { library } from "../subjects/library.mjs";
import { newPool } from "./database.mjs";

const { AgentRuntime } = await import(library);
const { openPostgresStore } = await import(library.replace(/index(\.m?js)$/, "postgres$1"));

/** What an application gives to a process. */
const CONNECTIONS = 5;

/** A store in a schema, with a pool of its own. */
export async function openStore(schema, { hints = true, pool = newPool(CONNECTIONS) } = {}) {
  return openPostgresStore({ pool, schema, hints });
}

/** A runtime with the agents of the benchmark, which are durable, on such a store. */
export async function openRuntime(schema, { work = true, ...options } = {}) {
  const store = await openStore(schema, options);
  const runtime = new AgentRuntime({ store, ...(!work && { work }) });
  for (const name of ["echo", "asks"]) runtime.register(name, { durable: true }, agents[name]);
  return runtime;
}

/** The library. With `sessionOf`, runs belong to the session that it gives for their number. */
export async function openCadenza(schema, { sessionOf, ...options } = {}) {
  const runtime = await openRuntime(schema, options);
  const result = ({ status, output }) => ({
    status,
    output: output.flatMap(({ parts }) => parts.map((part) => part.content)),
  });
  return {
    run: async (text, index) => {
      const session = sessionOf && { session_id: sessionOf(index) };
      checkRun(result(await runtime.createRun({ agent_name: "echo", input: text, ...session })), text);
    },
    cycle: async (text) => {
      const { run_id, status } = await runtime.createRun({ agent_name: "asks", input: text });
      if (status !== "awaiting") throw new Error(`The run is ${status}, and does not ask.`);
      checkRun(result(await runtime.resume({ run_id, await_resume: textAnswer(text) })), text);
    },
  };
}
