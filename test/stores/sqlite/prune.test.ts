import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { describe, expect, it } from "vitest";
import { keep } from "../../../src/stores/contract/samples.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

/** More than are passed over in one turn. */
const RUNS = 20_000;

describe(`among ${RUNS} ended runs`, () => {
  it("those beyond a number are deleted from the first on, and the last of them is looked for once", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const store = new SqliteStore(db, { closeDatabase: true });
    fill(db);
    const searches = () => db.statements.filter((sql) => sql.includes("OFFSET")).length;

    expect(await store.prune({ ...keep, maxRuns: RUNS })).toBe(0);
    expect(searches()).toBe(3);
    db.statements.length = 0;
    expect(await store.prune({ ...keep, maxRuns: RUNS - 1_050 })).toBe(1_050);
    expect(searches()).toBe(2);
    expect(db.prepare("SELECT min(finished_at) AS first FROM cadenza_runs").get()).toMatchObject({ first: 1_051 });
    expect(await store.prune({ ...keep, endedBefore: 1_101 })).toBe(50);
    store.close();
  });

  it("runs that a live parent may read again are looked at once", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const store = new SqliteStore(db, { closeDatabase: true });
    fill(db);
    db.exec("UPDATE cadenza_runs SET parent = 'alive' WHERE finished_at <= 1000");
    db.exec(`INSERT INTO cadenza_runs (tenant, run_id, agent_name, session_id, status, epoch, holds_slot, takeovers, position, created_at)
      VALUES ('acme', 'alive', 'echo', 'alive', 'awaiting', 1, 0, 0, 1, 0)`);
    db.statements.length = 0;
    expect(await store.prune({ ...keep, endedBefore: 1_501 })).toBe(500);
    expect(db.statements.filter((sql) => sql.includes("AS needed"))).toHaveLength(16);
    store.close();
  });
});

/** Runs of which the n-th ended at n. */
function fill(db: SqliteDatabase): void {
  db.exec(`WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${RUNS})
    INSERT INTO cadenza_runs (tenant, run_id, agent_name, session_id, status, epoch, holds_slot, finished_at, takeovers, position, created_at)
    SELECT 'acme', printf('00000000-0000-4000-8000-%012d', n), 'echo', printf('00000000-0000-4000-8000-%012d', n),
      'completed', 1, 0, n, 0, 1, n FROM numbers`);
}
