import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe } from "vitest";
import { actCases } from "../../harness/acts.ts";
import { borrowSchema, missingServer, newPool } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(
  `on PostgreSQL${missing ? ` (${missing})` : ""}, an operator who acts on many runs`,
  () => {
    let pool: pg.Pool;
    beforeAll(() => {
      pool = newPool(18);
    });
    afterAll(() => pool.end());

    actCases(
      (act) => {
        const schema = borrowSchema(pool);
        return act((clock) => openPostgresStore({ pool, schema, clock, hints: false }));
      },
      { many: 30, dies: 13 },
    );
  },
);
