import type pg from "pg";

/** What is wrong with the slots of a schema and their lines, at one moment. `schema`: its name as in SQL. */
export async function lineComplaints(pool: Pick<pg.Pool, "query">, schema: string): Promise<readonly string[]> {
  const { rows } = await pool.query(
    `WITH newest AS (SELECT DISTINCT ON (key) * FROM ${schema}.slots ORDER BY key, gen DESC),
      holders AS (SELECT slot AS key, count(*) AS held FROM ${schema}.runs
        WHERE finished_at IS NULL AND holds_slot AND slot <> '' GROUP BY slot),
      heads AS (SELECT DISTINCT ON (line) line AS key, rank, slot_max FROM ${schema}.runs
        WHERE line IS NOT NULL ORDER BY line, rank, id)
    SELECT 'held of ' || key || ': ' || coalesce(n.held, 0) || ', rows: ' || coalesce(h.held, 0) AS said
      FROM newest n FULL JOIN holders h USING (key) WHERE coalesce(n.held, 0) <> coalesce(h.held, 0)
    UNION ALL
    SELECT 'rows of ' || key || ': ' || count(*) FROM ${schema}.slots GROUP BY key HAVING count(*) > 1
    UNION ALL
    SELECT 'in line: ' || run_id || ' ' || row_to_json(r) FROM ${schema}.runs r WHERE line IS NOT NULL AND (
      holds_slot OR for_look OR finished_at IS NOT NULL OR owner IS NULL AND due_at IS NULL OR since IS NOT NULL OR rank IS NULL OR line <> slot)
    UNION ALL
    SELECT 'permit of ' || key || ' is free, and its first waits' FROM heads h JOIN newest n USING (key)
      WHERE n.held < h.slot_max AND n.look_at IS NULL
    UNION ALL
    SELECT 'the line of ' || key || ' begins before its bound' FROM heads h LEFT JOIN newest n USING (key)
      WHERE n.first IS NULL OR n.first > h.rank`,
  );
  return rows.map(({ said }) => String(said));
}
