import type { RunKey } from "../../core/ports.ts";
import { toText } from "../stored-rows.ts";
import type { Connection } from "./connection.ts";

/** How many batches of entries are deleted in one statement. */
const PIECE = 500;

/** Deletes some entries before the beginning of a generation, the last ones. See `Store.trim`. */
export async function trimEntries(
  connection: Connection,
  schema: string,
  { tenant, run_id }: RunKey,
  before: number,
): Promise<boolean> {
  const key = [toText(tenant), toText(run_id), before];
  const run = `(SELECT r.id FROM ${schema}.runs r WHERE r.tenant = $1::text AND r.run_id = $2::text AND r.position > $3::integer)`;
  // The batch that holds the beginning may begin earlier: it becomes two.
  await connection.query(
    `WITH batch AS (
       SELECT e.run, e.position, string_to_array(e.lines, E'\\n') AS lines FROM ${schema}.entries e
       WHERE e.run = ${run} AND e.position < $3::integer ORDER BY e.position DESC LIMIT 1
     ), cut AS (
       SELECT b.run, b.position, b.lines, $3::integer - b.position AS kept FROM batch b
       WHERE b.position + cardinality(b.lines) - 1 > $3::integer
     ), added AS (
       INSERT INTO ${schema}.entries (run, position, lines)
       SELECT c.run, $3::integer, array_to_string(c.lines[c.kept + 1:], E'\\n') FROM cut c ON CONFLICT DO NOTHING
     )
     UPDATE ${schema}.entries e SET lines = array_to_string(c.lines[1:c.kept], E'\\n') || E'\\n' FROM cut c
     WHERE e.run = c.run AND e.position = c.position`,
    key,
  );
  await connection.query(`DELETE FROM ${schema}.snapshots s WHERE s.run = ${run} AND s.position < $3::integer`, key);
  const [row] = await connection.query(
    `WITH gone AS (
       DELETE FROM ${schema}.entries e WHERE e.run = ${run} AND e.position = ANY (ARRAY(
         SELECT b.position FROM ${schema}.entries b WHERE b.run = ${run} AND b.position > 0 AND b.position < $3::integer
         ORDER BY b.position DESC LIMIT ${PIECE})) RETURNING 1
     ) SELECT count(*) = ${PIECE} AS more FROM gone`,
    key,
  );
  if (row?.["more"] === true) return true;
  await connection.query(
    `UPDATE ${schema}.entries e SET lines = split_part(e.lines, E'\\n', 1) || E'\\n'
     WHERE e.run = ${run} AND e.position = 0 AND strpos(e.lines, E'\\n') < length(e.lines) AND $3::integer > 1`,
    key,
  );
  return false;
}
