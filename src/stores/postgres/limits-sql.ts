import { isUsed, keysOf, LOOK_MS, nextOf } from "./line-sql.ts";

/*
 * Runs that need permits of several slots at once, or of rates. `limits` of such a run has what it needs, as a list of objects with
 * `key`, `max`, `count` and `per` in the order of the keys; `slot` and `slot_max` are those of the line in which it waits. Other
 * runs have null. With the first permits the rates are gone from the list, and a list with one slot becomes null.
 *
 * A table has the latest times at which a rate was given, by number: `given` of the key is the number of the last one, and as many are
 * kept as the highest count was (`kept`). So a rate is checked with one look into an index. `counts_until` says how long they count.
 *
 * The keys of all slots of a run are locked before they are looked at: by a write in the order of their numbers, elsewhere only if
 * they are free.
 */

export function limits(schema: string): string {
  return `
ALTER TABLE ${schema}.runs ADD COLUMN limits jsonb;
ALTER TABLE ${schema}.slots ADD COLUMN given bigint, ADD COLUMN kept integer, ADD COLUMN counts_until float8;
CREATE TABLE ${schema}.grants (
  key text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  at float8 NOT NULL,
  PRIMARY KEY (key, n)
);
`;
}

export function limitFunctions(schema: string): string {
  const maxOf = (limit: string): string => `coalesce((${limit} ->> 'max')::float8, 'Infinity')`;
  return [
    // Locks the keys of a run, and answers whether it has them.
    `
CREATE OR REPLACE FUNCTION ${schema}.try_keys_v1(run ${schema}.runs) RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  key text;
BEGIN
  FOREACH key IN ARRAY ${keysOf("run")} LOOP
    IF NOT pg_try_advisory_xact_lock(${schema}.slot_lock_v1(key)) THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $function$;`,
    // Whether a slot refuses a run: it is used up, or others stand in its line. `joins`: only those in front of the run count. Null:
    // none of them does. The first of two lines would refuse each other without end.
    `
CREATE OR REPLACE FUNCTION ${schema}.refuses_v1(run ${schema}.runs, its_limit jsonb, joins boolean, clock float8) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots := ${schema}.slot_v1(its_limit ->> 'key');
  top record;
BEGIN
  IF its.held >= ${maxOf("its_limit")} OR ${nextOf(schema, "its", "its_limit")} > clock THEN
    RETURN true;
  END IF;
  IF joins IS NULL THEN
    RETURN false;
  END IF;
  SELECT h.* INTO top FROM ${schema}.head_v1(its) h;
  IF (top.head).id IS NULL OR (top.head).id = run.id THEN
    RETURN false;
  END IF;
  IF run.slot <> its.key THEN
    run.rank := NULL;
  END IF;
  RETURN NOT joins OR coalesce(((top.head).rank, (top.head).id) < (${schema}.rank_v1(top.its, run, clock), run.id), true);
END $function$;`,
    // The first slot that refuses a run, but for one key. Null: none does.
    `
CREATE OR REPLACE FUNCTION ${schema}.refusing_v1(run ${schema}.runs, but_for text, joins boolean, clock float8) RETURNS jsonb
LANGUAGE plpgsql AS $function$
DECLARE
  its_limit jsonb;
BEGIN
  FOR its_limit IN SELECT l FROM jsonb_array_elements(run.limits) l WHERE l ->> 'key' IS DISTINCT FROM but_for LOOP
    IF ${schema}.refuses_v1(run, its_limit, joins, clock) THEN
      RETURN its_limit;
    END IF;
  END LOOP;
  RETURN NULL;
END $function$;`,
    // Counts a permit of a key.
    `
CREATE OR REPLACE FUNCTION ${schema}.count_v1(its ${schema}.slots, its_limit jsonb, clock float8) RETURNS ${schema}.slots
LANGUAGE plpgsql AS $function$
BEGIN
  IF its_limit ? 'max' THEN
    its.held := its.held + 1;
  END IF;
  IF its_limit ? 'count' THEN
    its.given := coalesce(its.given, 0) + 1;
    its.kept := greatest(its.kept, (its_limit ->> 'count')::integer);
    its.counts_until := greatest(its.counts_until, clock + (its_limit ->> 'per')::float8);
    INSERT INTO ${schema}.grants (key, n, at) VALUES (its.key, its.given, clock);
    DELETE FROM ${schema}.grants g WHERE g.key = its.key AND g.n = its.given - its.kept;
  END IF;
  RETURN its;
END $function$;`,
    // Gives a run its permits, of one key only in the row that is given for it.
    `
CREATE OR REPLACE FUNCTION ${schema}.admit_v1(run ${schema}.runs, but_for text, clock float8) RETURNS ${schema}.runs
LANGUAGE plpgsql AS $function$
DECLARE
  its_limit jsonb;
  rest jsonb;
BEGIN
  FOR its_limit IN SELECT l FROM jsonb_array_elements(run.limits) l WHERE l ->> 'key' IS DISTINCT FROM but_for LOOP
    PERFORM ${schema}.put_slot_v1(${schema}.count_v1(${schema}.slot_v1(its_limit ->> 'key'), its_limit, clock));
  END LOOP;
  IF jsonb_path_exists(run.limits, '$[*].count') THEN
    rest := (SELECT coalesce(jsonb_agg(l - 'count' - 'per'), '[]') FROM jsonb_array_elements(run.limits) l WHERE l ? 'max');
    run.slot := coalesce(rest -> 0 ->> 'key', run.slot);
    run.slot_max := ${maxOf("rest -> 0")};
    run.limits := CASE WHEN jsonb_array_length(rest) <> 1 THEN rest END;
  END IF;
  run.holds_slot := true;
  run.line := NULL;
  run.rank := NULL;
  RETURN run;
END $function$;`,
    // Puts a run into the line of a slot that refuses it.
    `
CREATE OR REPLACE FUNCTION ${schema}.stand_v1(run ${schema}.runs, its_limit jsonb, clock float8) RETURNS ${schema}.runs
LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots := ${schema}.slot_v1(its_limit ->> 'key');
  top record;
BEGIN
  SELECT h.* INTO top FROM ${schema}.head_v1(its) h;
  its := top.its;
  IF run.slot <> its.key THEN
    run.rank := NULL;
  END IF;
  run.slot := its.key;
  run.slot_max := ${maxOf("its_limit")};
  run.line := its.key;
  run.rank := ${schema}.rank_v1(its, run, clock);
  IF run.fair IS NULL THEN
    run.since := NULL;
  END IF;
  its := ${schema}.stretch_v1(its, run);
  IF (top.head).id IS NULL OR coalesce((run.rank, run.id) < ((top.head).rank, (top.head).id), false) THEN
    IF its.held < run.slot_max THEN
      its.look_at := least(its.look_at, ${nextOf(schema, "its", "its_limit")});
    END IF;
  ELSIF its.held < (top.head).slot_max THEN
    its.look_at := coalesce(its.look_at, clock - ${LOOK_MS});
  END IF;
  PERFORM ${schema}.put_slot_v1(its);
  RETURN run;
END $function$;`,
    // Takes back the permits of a run, and gives them to others.
    `
CREATE OR REPLACE FUNCTION ${schema}.give_back_v1(run ${schema}.runs, clock float8) RETURNS void LANGUAGE plpgsql AS $function$
DECLARE
  key text;
BEGIN
  FOREACH key IN ARRAY ${keysOf("run")} LOOP
    PERFORM ${schema}.grant_v1(key, 1, clock);
  END LOOP;
END $function$;`,
  ].join("\n");
}

/**
 * Deletes keys of slots that no run holds or waits for, of some from one on, and answers the next. Null: all were looked at.
 * A key that is in use just now stays, and so does one of a rate while what it has given still counts.
 */
export function pruneSlots(schema: string): string {
  return `
DROP FUNCTION IF EXISTS ${schema}.prune_slots_v1(text, integer);
CREATE OR REPLACE FUNCTION ${schema}.prune_slots_v1(from_key text, chunk integer, given_time float8 DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  place text;
  found record;
  count integer := 0;
BEGIN
  FOR found IN
    SELECT s.key, NOT (${isUsed("s")}) AS is_unused FROM ${schema}.slots s WHERE s.key > from_key ORDER BY s.key LIMIT chunk
  LOOP
    place := found.key;
    count := count + 1;
    IF found.is_unused AND pg_try_advisory_xact_lock(${schema}.slot_lock_v1(place)) THEN
      WITH unused AS (
        DELETE FROM ${schema}.slots s WHERE s.key = place AND NOT (${isUsed("s")}) RETURNING s.key, s.given
      )
      DELETE FROM ${schema}.grants g USING unused u WHERE u.given IS NOT NULL AND g.key = u.key;
    END IF;
  END LOOP;
  RETURN CASE WHEN count = chunk THEN place END;
END $function$;`;
}
