import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe } from "vitest";
import { operatorCases } from "../../harness/operator-cases.ts";
import { borrowSchema, missingServer, newPool } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`on PostgreSQL${missing ? ` (${missing})` : ""}, an operator`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(18);
  });
  afterAll(() => pool.end());

  operatorCases((act) => {
    const schema = borrowSchema(pool);
    return act((clock) => openPostgresStore({ pool, schema, clock, hints: false }));
  });
});
