import type pg from "pg";

/** What is wrong with the slots of a schema and their lines, at one moment. `schema`: its name as in SQL. */
export async function lineComplaints(pool: Pick<pg.Pool, "query">, schema: string): Promise<readonly string[]> {
  const { rows } = await pool.query(
    `WITH newest AS (SELECT DISTINCT ON (key) * FROM ${schema}.slots ORDER BY key, gen DESC),
      holders AS (SELECT k.key, count(*) AS held FROM ${schema}.runs r CROSS JOIN LATERAL unnest(
          CASE WHEN limits IS NULL THEN ARRAY[slot] ELSE ARRAY(SELECT l ->> 'key' FROM jsonb_array_elements(limits) l) END) k (key)
        WHERE finished_at IS NULL AND holds_slot AND slot <> '' GROUP BY k.key),
      heads AS (SELECT DISTINCT ON (line) line AS key, rank, slot_max FROM ${schema}.runs
        WHERE line IS NOT NULL ORDER BY line, rank, id),
      bands AS (SELECT line AS key, coalesce(priority, 0) AS priority, min(rank) AS rank FROM ${schema}.runs
        WHERE line IS NOT NULL GROUP BY 1, 2)
    SELECT 'held of ' || key || ': ' || coalesce(n.held, 0) || ', rows: ' || coalesce(h.held, 0) AS said
      FROM newest n FULL JOIN holders h USING (key) WHERE coalesce(n.held, 0) <> coalesce(h.held, 0)
    UNION ALL
    SELECT 'rows of ' || key || ': ' || count(*) FROM ${schema}.slots GROUP BY key HAVING count(*) > 1
    UNION ALL
    SELECT 'in line: ' || run_id || ' ' || row_to_json(r) FROM ${schema}.runs r WHERE line IS NOT NULL AND (
      holds_slot AND slot <> '' OR for_look OR finished_at IS NOT NULL OR owner IS NULL AND due_at IS NULL OR rank IS NULL
      OR since IS NOT NULL AND (fair IS NULL OR line = fair) OR line <> slot AND line IS DISTINCT FROM fair
      OR line = fair AND (owner IS NOT NULL OR status = 'cancelling' OR blocked IS NOT NULL))
    UNION ALL
    SELECT 'permit of ' || key || ' is free, and its first waits' FROM heads h JOIN newest n USING (key)
      WHERE key < '~' AND n.held < h.slot_max AND n.look_at IS NULL
    UNION ALL
    SELECT 'the line of ' || key || ' begins before its bound' FROM bands b LEFT JOIN newest n USING (key)
      WHERE coalesce(CASE WHEN b.priority = 0 OR key >= '~' THEN n.first ELSE (n.bands ->> b.priority::text)::float8 END, 'Infinity') > b.rank
    UNION ALL
    SELECT 'rates of a run that has its permits: ' || run_id FROM ${schema}.runs
      WHERE finished_at IS NULL AND holds_slot AND jsonb_path_exists(limits, '$[*].count')
    UNION ALL
    SELECT 'the slot of ' || run_id || ' is none of its own: ' || slot FROM ${schema}.runs
      WHERE line = slot AND NOT limits @> jsonb_build_array(jsonb_build_object('key', slot))
    UNION ALL
    SELECT 'grants of ' || g.key || ': ' || count(*) FROM ${schema}.grants g LEFT JOIN newest n USING (key)
      GROUP BY g.key, n.kept, n.given HAVING n.given IS NULL OR count(*) > n.kept OR max(g.n) <> n.given
    UNION ALL
    SELECT 'nothing tells that runs are behind ' || key FROM heads h LEFT JOIN newest n USING (key)
      WHERE key >= '~' AND n.look_at IS DISTINCT FROM 'Infinity'
    UNION ALL
    SELECT 'the place of ' || run_id || ': ' || row_to_json(r) FROM ${schema}.runs r
      WHERE priority <> 0 AND (CASE WHEN line = fair THEN true WHEN line IS NOT NULL THEN abs(rank + priority * 2 ^ 43) <= 2 ^ 42
        ELSE finished_at IS NOT NULL OR owner IS NOT NULL OR due_at IS NULL OR abs(since + priority * 2 ^ 43) <= 2 ^ 42 END) IS NOT TRUE
    UNION ALL
    SELECT 'the priority of ' || run_id || ' is not known' FROM ${schema}.runs r
      WHERE priority <> 0 AND (agent_name, version, priority) NOT IN (SELECT agent_name, version, priority FROM ${schema}.priorities)`,
  );
  return rows.map(({ said }) => String(said));
}
