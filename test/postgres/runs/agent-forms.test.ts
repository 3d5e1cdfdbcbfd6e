import { openPostgresStore } from "cadenza/postgres";
import { describe, it } from "vitest";
import { agentForms, fates, Place } from "../../harness/agent-forms.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined).each(Object.entries(agentForms))(
  `on PostgreSQL${missing ? `: ${missing}` : ""}, a run of %s`,
  (_form, agent) => {
    it.concurrent.each(Object.entries(fates))("%s", async (_fate, meet) => {
      const pool = newPool(18);
      const schema = newSchema();
      const place = new Place(agent, () => openPostgresStore({ pool, schema }));
      await place.open();
      try {
        await meet(place);
      } finally {
        await place.close();
        await pool.end();
      }
    });
  },
);
