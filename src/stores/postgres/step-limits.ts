import type { StepUse } from "../../core/ports.ts";
import type { Rate } from "../../core/slots.ts";
import { toText } from "../stored-rows.ts";
import type { PostgresValue } from "./connection.ts";
import { BY_INDEX } from "./line-sql.ts";

/**
 * Limits of steps. All calls for one key come one after the other: they lock the key, and read the clock after that.
 *
 * Grants are only added, each with a number. The newest one has what the next call needs: when it was asked for, how many
 * grants are kept (the highest count that was asked for), and from which number on they are there. Rows are found by their
 * numbers, and none that was deleted is walked, also while an old transaction keeps it.
 */
export function stepLimits(schema: string): string {
  const grants = `${schema}.step_grants`;
  const permits = `${schema}.step_permits`;
  const leases = `${schema}.leases`;
  const lockKey = `PERFORM pg_advisory_xact_lock(hashtextextended('${schema.replaceAll("'", "''")} steps ' || its_key, 0));
  clock := coalesce(given_time, extract(epoch FROM clock_timestamp()) * 1000);`;
  return `
CREATE TABLE ${grants} (
  key text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  at float8 NOT NULL,
  asked_at float8 NOT NULL,
  kept integer NOT NULL,
  first bigint NOT NULL,
  PRIMARY KEY (key, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE ${permits} (
  key text COLLATE "C" NOT NULL,
  owner text COLLATE "C" NOT NULL,
  turn bigint NOT NULL,
  used bigint NOT NULL,
  given bigint NOT NULL,
  over bigint NOT NULL,
  wanted bigint NOT NULL,
  rank bigint,
  max float8 NOT NULL,
  PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);

CREATE FUNCTION ${schema}.grant_steps_v1(its_key text, its_count integer, per_ms float8, wanted integer, given_time float8)
RETURNS text LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  clock float8;
  last ${grants};
  before float8;
  waits float8[] := '{}';
BEGIN
  ${lockKey}
  SELECT g.* INTO last FROM ${grants} g WHERE g.key = its_key ORDER BY g.n DESC LIMIT 1;
  IF NOT FOUND THEN
    last := ROW(its_key, 0, clock, clock, 0, 1);
  ELSIF clock < last.asked_at THEN
    -- The clock was set back.
    UPDATE ${grants} g SET at = g.at - (last.asked_at - clock) WHERE g.key = its_key AND g.n >= last.first;
    last.at := last.at - (last.asked_at - clock);
  END IF;
  last.asked_at := clock;
  last.kept := greatest(last.kept, its_count);
  WHILE cardinality(waits) < wanted LOOP
    last.n := last.n + 1;
    before := '-Infinity';
    IF last.n > its_count OR last.first > 1 THEN
      -- After a count was raised the grant before may be deleted. A later one is there.
      SELECT g.at INTO before FROM ${grants} g WHERE g.key = its_key AND g.n = greatest(last.n - its_count, last.first);
    END IF;
    last.at := greatest(clock, last.at, before + per_ms);
    EXIT WHEN last.at > clock AND cardinality(waits) > 0;
    DELETE FROM ${grants} g WHERE g.key = its_key AND g.n BETWEEN last.first AND last.n - last.kept;
    last.first := greatest(last.first, last.n + 1 - last.kept);
    INSERT INTO ${grants} SELECT last.* ON CONFLICT DO NOTHING;
    waits := waits || (last.at - clock);
    EXIT WHEN last.at > clock;
  END LOOP;
  RETURN to_jsonb(waits)::text;
END $function$;

CREATE FUNCTION ${schema}.permit_steps_v1(
  its_key text, its_max float8, its_owner text, its_turn bigint, its_used bigint, its_over bigint, its_wanted bigint,
  given_time float8
) RETURNS text LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  clock float8;
  mine ${permits};
  next ${permits};
  held bigint;
  last bigint;
  others integer := 0;
BEGIN
  ${lockKey}
  SELECT p.* INTO mine FROM ${permits} p WHERE p.key = its_key AND p.owner = its_owner;
  IF mine.turn >= its_turn THEN
    RETURN to_jsonb(ARRAY[mine.given, 0])::text;
  END IF;
  UPDATE ${leases} l SET until = clock + l.for_ms
  WHERE l.until > clock + l.for_ms AND l.owner = ANY (ARRAY(SELECT p.owner FROM ${permits} p WHERE p.key = its_key));
  DELETE FROM ${permits} p WHERE p.key = its_key AND p.owner <> its_owner
    AND NOT EXISTS (SELECT 1 FROM ${leases} l WHERE l.owner = p.owner AND l.until > clock);
  SELECT coalesce(max(p.rank), 0) INTO last FROM ${permits} p WHERE p.key = its_key;
  mine := ROW(its_key, its_owner, its_turn, its_used, greatest(mine.given, its_used), its_over, its_wanted, mine.rank, its_max);
  mine.rank := CASE WHEN mine.given < its_wanted THEN coalesce(mine.rank, last + 1) END;
  INSERT INTO ${permits} SELECT mine.* ON CONFLICT (key, owner) DO UPDATE SET
    turn = excluded.turn, used = excluded.used, given = excluded.given, over = excluded.over, wanted = excluded.wanted,
    rank = excluded.rank, max = excluded.max;
  SELECT sum(p.given - p.over), coalesce(max(p.rank), 0) INTO held, last FROM ${permits} p WHERE p.key = its_key;
  LOOP
    SELECT p.* INTO next FROM ${permits} p WHERE p.key = its_key AND p.rank IS NOT NULL ORDER BY p.rank LIMIT 1;
    EXIT WHEN NOT FOUND OR held >= next.max;
    held := held + 1;
    last := last + 1;
    UPDATE ${permits} p SET given = p.given + 1, rank = CASE WHEN p.given + 1 < p.wanted THEN last END
    WHERE p.key = its_key AND p.owner = next.owner;
    IF next.owner = its_owner THEN
      mine.given := mine.given + 1;
    ELSE
      others := others + 1;
    END IF;
  END LOOP;
  RETURN to_jsonb(ARRAY[mine.given, others])::text;
END $function$;
`;
}

type Call = readonly [call: string, values: readonly PostgresValue[]];

export function grantCall(key: string, { count, perMs }: Rate, wanted: number, now: number | null): Call {
  return [
    "grant_steps_v1($1::text, $2::integer, $3::float8, $4::integer, $5::float8)",
    [toText(key), count, perMs, wanted, now],
  ];
}

/** The answer has how many permits the owner was given in all, and how many other owners were given one by the call. */
export function permitCall(owner: string, key: string, max: number, use: StepUse, now: number | null): Call {
  const { turn, used, over, wanted } = use;
  return [
    "permit_steps_v1($1::text, $2::float8, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::float8)",
    [toText(key), max, toText(owner), turn, used, over, wanted, now],
  ];
}
