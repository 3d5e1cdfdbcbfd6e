import { durableRuns, registerDurable } from "../subjects/durable.mjs";
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

/** Makes a schema on a connection that is gone then: the server counts late what an idle one has done. */
export async function makeSchema(schema) {
  const pool = newPool(1);
  const store = await openStore(schema, { hints: false, pool });
  await store.close();
  await pool.end();
}

/** A runtime with the agents of the benchmark, which are durable, on such a store. */
export async function openRuntime(schema, { work = true, ...options } = {}) {
  const store = await openStore(schema, options);
  return registerDurable(new AgentRuntime({ store, ...(!work && { work }) }));
}

/** The library. With `sessionOf`, runs belong to the session that it gives for their number. */
export async function openCadenza(schema, { sessionOf, ...options } = {}) {
  const runtime = await openRuntime(schema, options);
  return durableRuns(runtime, sessionOf);
}
