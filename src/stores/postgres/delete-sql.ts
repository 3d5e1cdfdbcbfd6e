/*
 * Deleting. A row is locked before it is looked at. Rows that a process is changing are left out where they are looked
 * for again later.
 */
export function deleteFunctions(schema: string): string {
  return [
    // Deletes ended runs by their row ids, with all that belongs to them.
    `
CREATE FUNCTION ${schema}.remove_runs_v1(ids bigint[]) RETURNS void LANGUAGE sql AS $function$
  DELETE FROM ${schema}.entries WHERE run = ANY (ids);
  DELETE FROM ${schema}.labels WHERE run = ANY (ids);
  DELETE FROM ${schema}.runs WHERE id = ANY (ids);
$function$;`,
    // Deletes those of the runs that have ended, and answers how many those were.
    `
CREATE FUNCTION ${schema}.delete_runs_v1(keys jsonb) RETURNS integer LANGUAGE plpgsql AS $function$
DECLARE
  doomed bigint[];
BEGIN
  SELECT coalesce(array_agg(d.id), '{}') INTO doomed FROM (
    SELECT r.id FROM jsonb_array_elements(keys) k JOIN ${schema}.runs r ON r.tenant = k ->> 0 AND r.run_id = k ->> 1
    WHERE r.finished_at IS NOT NULL ORDER BY r.tenant, r.run_id FOR UPDATE OF r
  ) d;
  PERFORM ${schema}.remove_runs_v1(doomed);
  RETURN cardinality(doomed);
END $function$;`,
    // Deletes some of the runs that may be deleted, those that ended first, and answers how many. 0: none is left.
    // The newest of the runs that are too many. With null there is no limit.
    `
CREATE FUNCTION ${schema}.prune_runs_v1(most bigint, before float8, chunk integer) RETURNS integer
LANGUAGE plpgsql AS $function$
DECLARE
  newest record;
  doomed bigint[];
BEGIN
  SELECT r.finished_at, r.id INTO newest FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL AND most IS NOT NULL
  ORDER BY r.finished_at DESC, r.id DESC LIMIT 1 OFFSET coalesce(most, 0);
  SELECT coalesce(array_agg(d.id), '{}') INTO doomed FROM (
    SELECT r.id, r.finished_at FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
    ORDER BY r.finished_at, r.id LIMIT chunk FOR UPDATE SKIP LOCKED
  ) d WHERE d.finished_at < before OR (d.finished_at, d.id) <= (newest.finished_at, newest.id);
  PERFORM ${schema}.remove_runs_v1(doomed);
  RETURN cardinality(doomed);
END $function$;`,
    // Whether a live run uses a session.
    `
CREATE FUNCTION ${schema}.is_used_v1(session ${schema}.sessions) RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
  PERFORM 1 FROM ${schema}.runs r WHERE r.tenant = session.tenant AND r.session_id = session.session_id
    AND r.session_id <> r.run_id AND r.finished_at IS NULL;
  IF NOT FOUND THEN
    PERFORM 1 FROM ${schema}.runs r WHERE r.tenant = session.tenant AND r.run_id = session.session_id
      AND r.session_id = r.run_id AND r.finished_at IS NULL;
  END IF;
  RETURN FOUND;
END $function$;`,
    // Deletes a session, unless a live run uses it, and answers whether it does not exist any more.
    `
CREATE FUNCTION ${schema}.delete_session_v1(its_tenant text, its_id text) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
  session ${schema}.sessions;
BEGIN
  SELECT * INTO session FROM ${schema}.sessions s WHERE s.tenant = its_tenant AND s.session_id = its_id FOR UPDATE;
  IF FOUND AND ${schema}.is_used_v1(session) THEN
    RETURN false;
  END IF;
  DELETE FROM ${schema}.messages m WHERE m.session = session.id;
  DELETE FROM ${schema}.sessions s WHERE s.id = session.id;
  RETURN true;
END $function$;`,
    // Checks some sessions from a place on, deletes those that may be deleted, and answers the next place. Null: all are
    // checked.
    `
CREATE FUNCTION ${schema}.prune_sessions_v1(
  before float8, from_time float8, from_id bigint, chunk integer
) RETURNS text LANGUAGE plpgsql AS $function$
DECLARE
  session ${schema}.sessions;
  place text;
BEGIN
  FOR session IN
    SELECT s.* FROM ${schema}.sessions s WHERE s.changed_at < before AND (s.changed_at, s.id) > (from_time, from_id)
    ORDER BY s.changed_at, s.id LIMIT chunk FOR UPDATE SKIP LOCKED
  LOOP
    place := jsonb_build_array(session.changed_at, session.id::text);
    CONTINUE WHEN ${schema}.is_used_v1(session);
    DELETE FROM ${schema}.messages m WHERE m.session = session.id;
    DELETE FROM ${schema}.sessions s WHERE s.id = session.id;
  END LOOP;
  RETURN place;
END $function$;`,
  ].join("\n");
}

/**
 * `prune_runs_v1` leaves out the runs whose parent has not ended: a parent that is executed again reads them. It replaces
 * the function of the first version, so that processes of older releases leave these runs out too.
 */
export function pruneWithParents(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.prune_runs_v1(most bigint, before float8, chunk integer) RETURNS integer
LANGUAGE plpgsql AS $function$
DECLARE
  newest record;
  doomed bigint[];
BEGIN
  SELECT r.finished_at, r.id INTO newest FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL AND most IS NOT NULL
  ORDER BY r.finished_at DESC, r.id DESC LIMIT 1 OFFSET coalesce(most, 0);
  SELECT coalesce(array_agg(d.id), '{}') INTO doomed FROM (
    SELECT r.id, r.finished_at FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM ${schema}.runs p WHERE p.tenant = r.tenant AND p.run_id = r.parent AND p.finished_at IS NULL)
    ORDER BY r.finished_at, r.id LIMIT chunk FOR UPDATE OF r SKIP LOCKED
  ) d WHERE d.finished_at < before OR (d.finished_at, d.id) <= (newest.finished_at, newest.id);
  PERFORM ${schema}.remove_runs_v1(doomed);
  RETURN cardinality(doomed);
END $function$;`;
}

/** The entries of a longer log are deleted in pieces, after its run. */
export const LONG_LOG = 1_000;

/**
 * `remove_runs_v1` leaves the entries of long logs for `clear_removed_v1`. The session that a run has made for itself goes with
 * it, unless another run is in it.
 */
export function removeRuns(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.remove_runs_v1(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $function$
BEGIN
  INSERT INTO ${schema}.removed (run)
    SELECT r.id FROM ${schema}.runs r WHERE r.id = ANY (ids) AND r.position > ${LONG_LOG} ON CONFLICT DO NOTHING;
  DELETE FROM ${schema}.entries WHERE run = ANY (ARRAY(
    SELECT r.id FROM ${schema}.runs r WHERE r.id = ANY (ids) AND r.position <= ${LONG_LOG}));
  DELETE FROM ${schema}.labels WHERE run = ANY (ids);
  DELETE FROM ${schema}.inbox WHERE run = ANY (ids);
  WITH own AS (
    DELETE FROM ${schema}.sessions s USING ${schema}.runs r WHERE r.id = ANY (ids) AND s.tenant = r.tenant
      AND s.session_id = r.run_id AND s.generation = r.run_id AND NOT EXISTS (SELECT 1 FROM ${schema}.runs o
        WHERE o.tenant = r.tenant AND o.session_id = r.run_id AND o.session_id <> o.run_id)
    RETURNING s.id
  )
  DELETE FROM ${schema}.messages m USING own WHERE m.session = own.id;
  DELETE FROM ${schema}.runs WHERE id = ANY (ids);
END $function$;`;
}

/**
 * How far the rules of a retention have come, by keys of the rules. And the ids of deleted runs whose entries are left:
 * `clear_removed_v1` deletes some. It answers whether there were any.
 */
export function retention(schema: string): string {
  return `
CREATE TABLE ${schema}.retention (
  key text COLLATE "C" PRIMARY KEY,
  progress text NOT NULL,
  at float8 NOT NULL
);
CREATE TABLE ${schema}.removed (run bigint PRIMARY KEY);
CREATE FUNCTION ${schema}.clear_removed_v1(chunk integer) RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  its_run bigint;
  deleted integer;
BEGIN
  SELECT r.run INTO its_run FROM ${schema}.removed r ORDER BY r.run LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM ${schema}.entries e WHERE e.run = its_run AND e.position = ANY (ARRAY(
    SELECT f.position FROM ${schema}.entries f WHERE f.run = its_run ORDER BY f.position LIMIT chunk));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  IF deleted < chunk THEN
    DELETE FROM ${schema}.removed r WHERE r.run = its_run;
  END IF;
  RETURN true;
END $function$;
`;
}
