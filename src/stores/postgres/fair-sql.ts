import { FEW_THROUGH, MAX_GATES, MOST_THROUGH } from "../gates.ts";
import { BY_INDEX, bandOf, duePlace } from "./line-sql.ts";

/*
 * Of the runs of one customer few stand among the due ones and in lines. The others stay behind a gate: `fair` is its key, which
 * begins with "~" as no key of a slot does, and so is `line` of a run behind it. `take` lets them through in their order.
 *
 * No write waits for a gate. A run is counted by reading an index, and passes if it cannot have a lock at once. While runs are
 * behind a gate, `slots` has a row of its key, marked by `look_at`, so that they are found: `first` is not above the rank of any of
 * them, and `last` is where counting begins, below which no run of the gate is left that is through. So what an old transaction
 * keeps of former runs is not read again.
 *
 * A run that goes behind the gate holds a shared lock until its commit, and only with an exclusive one is `first` raised: none that
 * is not committed stays below it. The row itself is changed under the lock of its key.
 */

/** How long the commit of a run that passes may take, in milliseconds, if it is to be counted. */
const SLOW_MS = 10_000;
/** How often one that passes moves the place where counting begins. */
const SELDOM = 1 / 64;

/** The runs of gates that stand in the way of others, but for their time. */
const isThrough = `r.fair IS NOT NULL AND r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL AND r.blocked IS NULL
        AND (r.line IS NULL OR r.line < '~')`;

export function gatesOfCustomers(schema: string): string {
  return `
ALTER TABLE ${schema}.runs ADD COLUMN fair text COLLATE "C";
CREATE INDEX runs_through ON ${schema}.runs (fair, (${duePlace.replaceAll("r.", "")})) WHERE ${isThrough.replaceAll("r.", "")};
CREATE INDEX slots_with_gates ON ${schema}.slots (key) WHERE look_at = 'Infinity';

CREATE FUNCTION ${schema}.fair_lock_v1(key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $function$
  SELECT hashtextextended('${schema.replaceAll("'", "''")} behind ' || key, 0);
$function$;
`;
}

export function gateFunctions(schema: string): string {
  // How many runs of a gate are through, up to a number, and the place of the first of them.
  const through = (
    gate: string,
    from: string,
    band: string,
    most: number,
  ): string => `SELECT count(*) AS runs, min(x.place) AS first INTO counted FROM (
    SELECT ${duePlace} AS place FROM ${schema}.runs r WHERE ${isThrough} AND r.fair = ${gate}
      AND ${duePlace} BETWEEN ${from} AND clock - ${band} ORDER BY ${duePlace} LIMIT ${most}
  ) x`;
  const newest = (key: string): string =>
    `SELECT s.* INTO its FROM ${schema}.slots s WHERE s.key = ${key} ORDER BY s.gen DESC LIMIT 1`;
  const firstBehind = `SELECT r.* INTO head FROM ${schema}.runs r WHERE r.line IS NOT NULL AND r.line = its.key AND r.rank >= its.first
      ORDER BY r.rank, r.id LIMIT 1`;
  const countFrom = (band: string): string => `greatest(its.last, least(counted.first, clock - ${band} - ${SLOW_MS}))`;
  const isCurrent = "current_setting('transaction_isolation') = 'read committed'";
  return [
    // Puts a run that becomes due behind its gate, unless few runs are through: then it stays as it is.
    `
CREATE OR REPLACE FUNCTION ${schema}.behind_v1(run ${schema}.runs, clock float8) RETURNS ${schema}.runs LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  its ${schema}.slots;
  counted record;
BEGIN
  ${newest("run.fair")};
  ${through("run.fair", "coalesce(its.last, '-Infinity')", bandOf("run"), MOST_THROUGH)};
  IF counted.runs < ${MOST_THROUGH} THEN
    IF random() < ${SELDOM} AND pg_try_advisory_xact_lock(${schema}.slot_lock_v1(run.fair)) THEN
      its := ${schema}.slot_v1(run.fair);
      its.last := ${countFrom(bandOf("run"))};
      PERFORM ${schema}.put_slot_v1(its);
    END IF;
    RETURN run;
  END IF;
  IF NOT pg_try_advisory_xact_lock_shared(${schema}.fair_lock_v1(run.fair)) THEN
    RETURN run;
  END IF;
  ${newest("run.fair")};
  IF its.look_at IS NULL OR its.first > clock OR NOT ${isCurrent} THEN
    IF NOT pg_try_advisory_xact_lock(${schema}.slot_lock_v1(run.fair)) THEN
      RETURN run;
    END IF;
    its := ${schema}.slot_v1(run.fair);
    its.first := least(its.first, clock);
    its.look_at := 'Infinity';
    PERFORM ${schema}.put_slot_v1(its);
  END IF;
  run.line := run.fair;
  run.rank := clock;
  run.since := NULL;
  RETURN run;
END $function$;`,
    // If few runs of a gate are through, lets others through in their order: each is due from now on, or joins the line of its
    // slot. A gate that another transaction changes stays as it is, and one of other agents, if some are given.
    `
CREATE OR REPLACE FUNCTION ${schema}.let_through_v1(its_gate text, agents jsonb, clock float8) RETURNS void LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  its ${schema}.slots;
  was ${schema}.slots;
  head ${schema}.runs;
  run ${schema}.runs;
  counted record;
BEGIN
  ${newest("its_gate")};
  IF its.look_at IS NULL OR NOT pg_try_advisory_xact_lock(${schema}.slot_lock_v1(its_gate)) THEN
    RETURN;
  END IF;
  its := ${schema}.slot_v1(its_gate);
  was := its;
  ${firstBehind};
  IF head.id IS NOT NULL THEN
    IF agents IS NOT NULL AND NOT agents @> jsonb_build_array(jsonb_build_array(head.agent_name, head.version)) THEN
      RETURN;
    END IF;
    ${through("its_gate", "its.last", bandOf("head"), FEW_THROUGH + 1)};
    its.last := ${countFrom(bandOf("head"))};
    FOR run IN
      SELECT r.* FROM ${schema}.runs r WHERE counted.runs <= ${FEW_THROUGH} AND r.line IS NOT NULL AND r.line = its_gate
        AND r.rank >= its.first ORDER BY r.rank, r.id LIMIT ${MOST_THROUGH} - counted.runs FOR NO KEY UPDATE SKIP LOCKED
    LOOP
      run.line := NULL;
      run.rank := NULL;
      run.since := clock - ${bandOf("run")};
      IF run.slot <> '' AND NOT run.holds_slot AND ${schema}.try_keys_v1(run) THEN
        run := ${schema}.join_v1(run, clock);
      END IF;
      UPDATE ${schema}.runs r SET holds_slot = run.holds_slot, line = run.line, rank = run.rank, since = run.since, slot = run.slot,
        slot_max = run.slot_max, limits = run.limits WHERE r.id = run.id;
    END LOOP;
  END IF;
  IF ${isCurrent} AND pg_try_advisory_xact_lock(${schema}.fair_lock_v1(its_gate)) THEN
    ${firstBehind};
    its.first := coalesce(head.rank, 'Infinity');
    its.look_at := CASE WHEN head.id IS NOT NULL THEN 'Infinity'::float8 END;
  END IF;
  IF its IS DISTINCT FROM was THEN
    PERFORM ${schema}.put_slot_v1(its);
  END IF;
END $function$;`,
    // The same for gates that have runs behind them, from one on. Answers the last of them.
    `
CREATE OR REPLACE FUNCTION ${schema}.let_others_through_v1(agents jsonb, clock float8, INOUT its_gate text) LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  key text;
  number integer := 0;
BEGIN
  FOR key IN SELECT s.key FROM ${schema}.slots s WHERE s.look_at = 'Infinity' AND s.key > coalesce(its_gate, '')
    ORDER BY s.key LIMIT ${MAX_GATES}
  LOOP
    PERFORM ${schema}.let_through_v1(key, agents, clock);
    number := number + 1;
    its_gate := key;
  END LOOP;
  IF number < ${MAX_GATES} THEN
    its_gate := NULL;
  END IF;
END $function$;`,
  ].join("\n");
}
