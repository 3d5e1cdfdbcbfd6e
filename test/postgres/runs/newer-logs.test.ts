import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe } from "vitest";
import { newerEntries, newerLogCases } from "../../harness/newer-logs.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";
import { oneOf } from "../../harness/share.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`on PostgreSQL${missing ? ` (${missing})` : ""}`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(18, { max: 10 });
  });
  afterAll(() => pool.end());

  newerLogCases(
    (act) => {
      const schema = newSchema();
      return act((clock) => openPostgresStore({ pool, schema, clock, hints: false }));
    },
    oneOf(3, newerEntries),
  );
});
