import type { EndedPlace, Passed, Passing } from "../kept-runs.ts";
import type { StoredRow } from "../stored-rows.ts";
import type { Connection } from "./connection.ts";
import { clock } from "./connection.ts";

/** How many runs are deleted in one statement, the first time and at most. */
const FIRST_CHUNK = 100;
const LAST_CHUNK = 5_000;
/** A chunk that takes longer is followed by a smaller one, and a chunk that takes a tenth of it by a larger one. In milliseconds. */
const LONG_MS = 500;

type Place = EndedPlace<string>;

/** Before and behind all runs. */
export const START: Place = { at: Number.NEGATIVE_INFINITY, id: "0" };
export const END: Place = { at: Number.POSITIVE_INFINITY, id: "9223372036854775807" };

/**
 * Deletes the ended runs up to a place, in small transactions. Answers how many. Runs whose parent has not ended stay: a parent that is executed again reads them. So do those that another transaction locks.
 */
export async function pruneRuns(connection: Connection, schema: string, last: Place): Promise<number> {
  let deleted = 0;
  let chunk = FIRST_CHUNK;
  for (let place = START; ; ) {
    const since = clock.monotonic();
    const [row] = await connection.query(
      `WITH next AS MATERIALIZED (
         SELECT r.id, r.tenant, r.parent, r.finished_at FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
           AND (r.finished_at, r.id) > ($1::float8, $2::bigint) AND (r.finished_at, r.id) <= ($3::float8, $4::bigint)
         ORDER BY r.finished_at, r.id LIMIT $5::integer
       ), doomed AS MATERIALIZED (
         SELECT r.id FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL AND r.id = ANY (ARRAY(
           SELECT n.id FROM next n WHERE (
             SELECT p.id FROM ${schema}.runs p WHERE p.tenant = n.tenant AND p.run_id = n.parent AND p.finished_at IS NULL
           ) IS NULL)) FOR UPDATE SKIP LOCKED
       )
       SELECT ${schema}.remove_runs_v1(ARRAY(SELECT d.id FROM doomed d)), (SELECT count(*) FROM doomed) AS deleted,
         (SELECT count(*) FROM next) AS seen, l.finished_at AS at, l.id::text
       FROM (SELECT n.finished_at, n.id FROM next n ORDER BY n.finished_at DESC, n.id DESC LIMIT 1) l`,
      [place.at, place.id, last.at, last.id, chunk],
    );
    deleted += Number(row?.["deleted"] ?? 0);
    if (row === undefined || Number(row["seen"]) < chunk) return deleted;
    place = placeIn(row);
    const tookMs = clock.monotonic() - since;
    if (tookMs > LONG_MS) chunk = Math.max(1, Math.floor(chunk / 2));
    else if (tookMs < LONG_MS / 10) chunk = Math.min(2 * chunk, LAST_CHUNK);
  }
}

/** Passes over ended runs: see `KeptRuns`. */
export async function passOver(
  connection: Connection,
  schema: string,
  { from, to, most }: Passing<string>,
): Promise<Passed<string> | undefined> {
  const [row] = await connection.query(
    `SELECT p.at, p.id::text, p.runs FROM (
       SELECT r.finished_at AS at, r.id, row_number() OVER (ORDER BY r.finished_at, r.id) AS runs
       FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
       AND (r.finished_at, r.id) > ($1::float8, $2::bigint) AND (r.finished_at, r.id) <= ($3::float8, $4::bigint)
       ORDER BY r.finished_at, r.id LIMIT $5::bigint
     ) p ORDER BY p.runs DESC LIMIT 1`,
    [from.at, from.id, to.at, to.id, most],
  );
  return row && { runs: Number(row["runs"]), last: placeIn(row) };
}

function placeIn(row: StoredRow): Place {
  return { at: Number(row["at"]), id: String(row["id"]) };
}
