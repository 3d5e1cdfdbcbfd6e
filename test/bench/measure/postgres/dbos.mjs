import { equal } from "node:assert/strict";
import { DBOS } from "@dbos-inc/dbos-sdk";
import { newPool } from "./database.mjs";

/** The default of DBOS. */
const CONNECTIONS = 20;
const PATIENCE_SECONDS = 60;

/**
 * DBOS. A run is a workflow without steps. A workflow that asks sets an event, which its caller reads, and receives the
 * answer as a message.
 */
export async function openDbos(schema) {
  DBOS.setConfig({
    name: "bench",
    systemDatabasePool: newPool(CONNECTIONS),
    systemDatabaseSchemaName: schema,
    executorID: String(process.pid),
    logLevel: "error",
  });
  const echo = DBOS.registerWorkflow(async (text) => text, { name: "echo" });
  const asks = DBOS.registerWorkflow(
    async (text) => {
      await DBOS.setEvent("question", text);
      return DBOS.recv("answer", PATIENCE_SECONDS);
    },
    { name: "asks" },
  );
  await DBOS.launch();
  return {
    run: async (text) => equal(await echo(text), text),
    cycle: async (text) => {
      const run = await DBOS.startWorkflow(asks)(text);
      equal(await DBOS.getEvent(run.workflowID, "question", PATIENCE_SECONDS), text);
      await DBOS.send(run.workflowID, text, "answer");
      equal(await run.getResult(), text);
    },
  };
}
