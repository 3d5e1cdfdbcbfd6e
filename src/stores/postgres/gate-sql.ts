/*
 * The gates of an inbox. Posts go through a gate at the same time, and beside the writes of the owner: they do not lock the row of
 * the run. A post holds the lock of the gate (an advisory one, shared) until its commit, and looks at the row once it has the
 * lock. The gate is open while the run has an owner and `arrived` is 1. The first post under an owner, a cancel, and a post to
 * a run without an owner lock the row instead.
 *
 * A write that takes the owner away, or ends the run, locks the row, and then the gates for itself (`shut_v1`). Then no post is
 * under way, and the write sees all posts that have come before. The server grants such a lock in turn, however many posts
 * come. Under an owner `arrived` never becomes 0: a post could be under way that relies on it.
 *
 * Posts are not committed in the order of their ids, so a low id may come after a higher one was taken. `gate` names the present
 * gate by an id that had been taken when it was made: posts that go through it have higher ids. `taken_to` is the name of the
 * former gate. When no post is in the former gate, all posts with ids up to `gate` have been committed. If none of them is left, the
 * owner moves `taken_to` to `gate`, and makes another gate. After an owner has left, both are the same.
 */

/** Whether the gate of a row of `runs` is open. Written so that no index of runs with owners has the condition. */
function isOpen(run: string): string {
  return `${run}.owner || '' IS NOT NULL AND ${run}.finished_at IS NULL AND ${run}.arrived > 0`;
}

/** Whether a post goes through the gate of a row of `runs`. Without a snapshot for each statement it could not look at the row again. */
export function goesThrough(write: string, run: string): string {
  return `${isOpen(run)} AND NOT ${write} ? 'status' AND NOT (${write} ? 'unless_cancelling' AND ${run}.status = 'cancelling')
    AND current_setting('transaction_isolation') = 'read committed'`;
}

/** The runs with open gates from which writes take the owner, or which they end, each with the number of its write. The first one has 1. */
export function leaving(schema: string): string {
  return `SELECT x.n, r AS run FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
    JOIN ${schema}.runs r ON r.tenant = x.w ->> 'tenant' AND r.run_id = x.w ->> 'run_id'
    WHERE x.w ->> 'kind' = 'append' AND ${isOpen("r")}
      AND (x.w -> 'head' ->> 'owner' IS NULL OR x.w -> 'head' ->> 'finished_at' IS NOT NULL)`;
}

export function gateOf(run: string): string {
  return `coalesce(${run}.gate, 0)`;
}

/** No row of the inbox is left up to here, and none will be. */
export function boundOf(run: string): string {
  return `coalesce(${run}.taken_to, 0)`;
}

export function gates(schema: string): string {
  return [
    `
CREATE OR REPLACE FUNCTION ${schema}.gate_lock_v1(run bigint, gate bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $function$
  SELECT hashtextextended('${schema.replaceAll("'", "''")} gate ' || run || ' ' || gate, 0);
$function$;`,
    // Lets a post through the gate of its run, and answers the id of its row. Null: it needs the lock of the row. The owner may
    // make another gate meanwhile: then the post locks the row.
    `
CREATE OR REPLACE FUNCTION ${schema}.enter_v1(w jsonb) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $function$
DECLARE
  run record;
BEGIN
  SELECT r.id, ${gateOf("r")} AS gate INTO run FROM ${schema}.runs r
  WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' AND ${goesThrough("w", "r")};
  IF NOT FOUND OR NOT pg_try_advisory_xact_lock_shared(${schema}.gate_lock_v1(run.id, run.gate)) THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT r.id FROM ${schema}.runs r WHERE r.id = run.id AND ${isOpen("r")} AND ${gateOf("r")} = run.gate);
END $function$;`,
    // Takes the gates of a locked row for this transaction, and answers whether it has them. The former gate comes first: a
    // post that is in there enters the present one, too.
    `
CREATE OR REPLACE FUNCTION ${schema}.shut_v1(run ${schema}.runs, waits boolean) RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  gate bigint;
BEGIN
  FOREACH gate IN ARRAY ARRAY[${boundOf("run")}, ${gateOf("run")}] LOOP
    IF waits THEN
      PERFORM pg_advisory_xact_lock(${schema}.gate_lock_v1(run.id, gate));
    ELSIF NOT pg_try_advisory_xact_lock(${schema}.gate_lock_v1(run.id, gate)) THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $function$;`,
  ].join("\n");
}
