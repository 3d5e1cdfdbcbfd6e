import { headColumns, insertedColumns } from "../stored-rows.ts";

/*
 * The line of a slot. A run that needs a permit is due only together with it: `holds_slot` reserves the permit. Otherwise
 * it stands in the line of the slot, where `take` does not look. The write that frees a permit gives it to the first in line.
 *
 * `slots` has how many unfinished runs hold a permit of a key (`held`), and between which ranks its line is: none is below
 * `first`, and a run joins above `last`, so that it passes none. So a line is never read from its beginning, where an old
 * transaction may keep what was there before. For the same reason a key gets a new row (`gen`) after 64 changes: the newest
 * is read first. `look_at` marks a key whose next could not be locked: the next `take` gives the permit.
 *
 * The rows of a key, who holds its permits and who stands in its line are changed only under the lock of the key.
 */

/** A run whose time has passed by so much stands in the index of due runs by the time at which it came there. */
const STALE_MS = 250;
/** To how many runs one write gives permits of a key. */
const MAX_GRANTED = 8;
/** After how many changes a key gets a new row. */
const CHANGES = 64;

/** Where a run stands among the due ones. */
export const duePlace = "coalesce(r.since, r.due_at)";
/** The runs that `take` may give from the index of due runs. */
export const isDue = "r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL AND r.line IS NULL";

/** The columns that a write changes. */
const changed = [...headColumns, "wakes", "for_look", "line", "rank", "since", "position"];
const inserted = [...insertedColumns, "line", "rank", "since", "creator"];

/** Where a run with this due time stands from now on; null: at that time. */
export function sinceOf(due: string): string {
  return `CASE WHEN ${due} < clock - ${STALE_MS} THEN clock END`;
}

type Create = "CREATE" | "CREATE OR REPLACE";

/** What a change of a run has to do with its inbox. */
export interface Arrivals {
  readonly variables: string;
  /** Before the row is locked. */
  readonly unlocked: string;
  /** Before anything is checked but that the run is there. */
  readonly first: string;
  /** Before the run gets a permit. */
  readonly checks: string;
  /** After the row and the entries are written. */
  readonly last: string;
  readonly answer: string;
}

/** Columns, tables and indexes of the line, and what they hold for the runs that are there. */
export function lines(schema: string): string {
  const runs = `${schema}.runs`;
  return `
ALTER TABLE ${runs} ADD COLUMN line text COLLATE "C", ADD COLUMN rank float8, ADD COLUMN since float8;
ALTER TABLE ${runs} DROP COLUMN queue;
DROP INDEX ${schema}.runs_in_slot, ${schema}.runs_cancelling;
CREATE TABLE ${schema}.slots (
  key text COLLATE "C" NOT NULL,
  gen bigint NOT NULL,
  n integer NOT NULL,
  held integer NOT NULL,
  first float8 NOT NULL,
  last float8 NOT NULL,
  look_at float8,
  PRIMARY KEY (key, gen)
) WITH (fillfactor = 50);
CREATE INDEX slots_to_look_at ON ${schema}.slots (look_at) WHERE look_at IS NOT NULL;

UPDATE ${runs} r SET line = r.slot, rank = r.due_at
WHERE r.finished_at IS NULL AND r.owner IS NULL AND r.blocked IS NULL AND r.slot <> '' AND NOT r.holds_slot
  AND NOT r.for_look AND r.due_at <= extract(epoch FROM now()) * 1000;
INSERT INTO ${schema}.slots (key, gen, n, held, first, last, look_at)
SELECT r.slot, 1, 0, count(*) FILTER (WHERE r.holds_slot), coalesce(min(r.rank), 'Infinity'),
  coalesce(max(r.rank), '-Infinity'), CASE WHEN count(*) FILTER (WHERE r.holds_slot) < max(r.slot_max) FILTER (WHERE r.line IS NOT NULL)
    THEN '-Infinity'::float8 END
FROM ${runs} r WHERE r.finished_at IS NULL AND r.slot <> '' AND (r.holds_slot OR r.line IS NOT NULL) GROUP BY r.slot;

CREATE INDEX runs_due ON ${runs} (agent_name, version, coalesce(since, due_at), id)
  WHERE finished_at IS NULL AND owner IS NULL AND due_at IS NOT NULL AND line IS NULL;
CREATE INDEX runs_cancelling ON ${runs} (coalesce(since, due_at), id)
  WHERE finished_at IS NULL AND owner IS NULL AND due_at IS NOT NULL AND line IS NULL AND status || '' = 'cancelling';
CREATE INDEX runs_in_line ON ${runs} (line, rank, id) WHERE line IS NOT NULL;
${functions(schema)}
`;
}

/** The first runs of the line of a key, from a rank on. */
function firstInLine(schema: string, columns: string, key: string, from: string): string {
  return `SELECT ${columns} FROM ${schema}.runs r WHERE r.line IS NOT NULL AND r.line = ${key} AND r.rank >= ${from}
    ORDER BY r.rank, r.id LIMIT`;
}

/**
 * Takes back permits of a key, and gives those that are free to the first in line. Rows that others have locked are left
 * out: they may wait for this key. `since`: where a run stands among the due ones from then on.
 */
function grantFunction(schema: string, create: Create, since: string): string {
  return `
${create} FUNCTION ${schema}.grant_v1(its_key text, freed integer, clock float8) RETURNS void LANGUAGE plpgsql AS $function$
DECLARE
  was ${schema}.slots := ${schema}.slot_v1(its_key);
  its ${schema}.slots := was;
  first record;
  given bigint;
BEGIN
  its.held := was.held - freed;
  its.look_at := NULL;
  FOR n IN 0 .. ${MAX_GRANTED} LOOP
    IF its.first < 'Infinity' THEN
      ${firstInLine(schema, "r.rank, r.slot_max INTO first", "its_key", "its.first")} 1;
    END IF;
    IF its.first = 'Infinity' OR NOT FOUND THEN
      its.first := 'Infinity';
      EXIT;
    END IF;
    its.first := first.rank;
    EXIT WHEN its.held >= first.slot_max;
    IF n < ${MAX_GRANTED} THEN
      SELECT r.id INTO given FROM ${schema}.runs r WHERE r.id = ANY (ARRAY(
        ${firstInLine(schema, "r.id", "its_key", "its.first")} ${MAX_GRANTED}
      )) AND r.line = its_key AND r.slot_max > its.held ORDER BY r.rank, r.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF n = ${MAX_GRANTED} OR NOT FOUND THEN
      its.look_at := clock;
      EXIT;
    END IF;
    UPDATE ${schema}.runs r SET holds_slot = true, line = NULL, rank = NULL, since = ${since}
    WHERE r.id = given;
    its.held := its.held + 1;
  END LOOP;
  IF its.held = 0 AND its.first = 'Infinity' THEN
    its.last := '-Infinity';
  END IF;
  IF its IS DISTINCT FROM was THEN
    PERFORM ${schema}.put_slot_v1(its);
  END IF;
END $function$;`;
}

function functions(schema: string): string {
  return [
    `
DROP FUNCTION ${schema}.create_v1(jsonb);
DROP FUNCTION ${schema}.is_closed_v1(text, float8);
DROP FUNCTION ${schema}.is_full_v1(text, float8);`,
    // A key, with its lock. One that no run has used has the gen 0.
    `
CREATE FUNCTION ${schema}.slot_v1(its_key text) RETURNS ${schema}.slots LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots;
BEGIN
  PERFORM pg_advisory_xact_lock(${schema}.slot_lock_v1(its_key));
  SELECT s.* INTO its FROM ${schema}.slots s WHERE s.key = its_key ORDER BY s.gen DESC LIMIT 1;
  IF NOT FOUND THEN
    its := ROW(its_key, 0, 0, 0, 'Infinity', '-Infinity', NULL);
  END IF;
  RETURN its;
END $function$;`,
    // Writes a key that was read so, but for what is to change. Where the snapshot is older than the lock, it fails.
    `
CREATE FUNCTION ${schema}.put_slot_v1(its ${schema}.slots) RETURNS void LANGUAGE plpgsql AS $function$
BEGIN
  IF its.gen > 0 AND its.n < ${CHANGES - 1} THEN
    UPDATE ${schema}.slots s SET n = its.n + 1, held = its.held, first = its.first, last = its.last, look_at = its.look_at
    WHERE s.key = its.key AND s.gen = its.gen;
    RETURN;
  END IF;
  DELETE FROM ${schema}.slots s WHERE s.key = its.key AND s.gen = its.gen;
  INSERT INTO ${schema}.slots (key, gen, n, held, first, last, look_at)
  VALUES (its.key, its.gen + 1, 0, its.held, its.first, its.last, its.look_at) ON CONFLICT DO NOTHING;
END $function$;`,
    // Gives a run a permit, and answers whether one is free. While others stand in line, none is.
    `
CREATE FUNCTION ${schema}.hold_v1(run ${schema}.runs) RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots := ${schema}.slot_v1(run.slot);
  first bigint;
BEGIN
  IF its.first < 'Infinity' THEN
    ${firstInLine(schema, "r.id INTO first", "its.key", "its.first")} 1;
  END IF;
  IF its.held >= run.slot_max OR (first IS NOT NULL AND first IS DISTINCT FROM run.id) THEN
    RETURN false;
  END IF;
  its.held := its.held + 1;
  PERFORM ${schema}.put_slot_v1(its);
  RETURN true;
END $function$;`,
    // Gives a run that is due a permit, or a place in the line: the one that it had, or the last.
    `
CREATE FUNCTION ${schema}.join_v1(run ${schema}.runs, clock float8) RETURNS ${schema}.runs LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots := ${schema}.slot_v1(run.slot);
  ahead ${schema}.runs;
  is_first boolean := true;
BEGIN
  IF its.first < 'Infinity' THEN
    ${firstInLine(schema, "r.* INTO ahead", "its.key", "its.first")} 1;
    is_first := NOT FOUND;
  END IF;
  IF is_first THEN
    its.first := 'Infinity';
  ELSE
    its.first := ahead.rank;
    is_first := run.rank IS NOT NULL AND (run.rank, run.id) < (ahead.rank, ahead.id);
  END IF;
  IF is_first AND its.held < run.slot_max THEN
    its.held := its.held + 1;
    run.holds_slot := true;
    run.rank := NULL;
    PERFORM ${schema}.put_slot_v1(its);
    RETURN run;
  END IF;
  run.line := run.slot;
  run.rank := coalesce(run.rank, greatest(clock, its.last + 1));
  run.since := NULL;
  its.first := least(its.first, run.rank);
  its.last := greatest(its.last, run.rank);
  IF NOT is_first AND its.held < ahead.slot_max THEN
    its.look_at := coalesce(its.look_at, clock);
  END IF;
  PERFORM ${schema}.put_slot_v1(its);
  RETURN run;
END $function$;`,
    grantFunction(schema, "CREATE", sinceOf("r.due_at")),
    // Places a run without an owner that was changed: due, in line, or neither. Under an owner it keeps the place that it
    // had, until it holds a permit.
    `
CREATE FUNCTION ${schema}.place_v1(run ${schema}.runs, placed ${schema}.runs, clock float8) RETURNS ${schema}.runs
LANGUAGE plpgsql AS $function$
BEGIN
  IF placed.owner IS NULL AND placed.finished_at IS NULL AND placed.due_at <= clock AND NOT placed.holds_slot
    AND NOT placed.for_look AND (placed.blocked IS NULL OR run.line IS NOT NULL)
  THEN
    IF run.line IS NULL THEN
      RETURN ${schema}.join_v1(placed, clock);
    END IF;
    placed.since := NULL;
    RETURN placed;
  END IF;
  placed.line := NULL;
  IF placed.holds_slot OR placed.finished_at IS NOT NULL OR (placed.owner IS NULL AND NOT placed.for_look) THEN
    placed.rank := NULL;
  END IF;
  RETURN placed;
END $function$;`,
    changeFunction(schema),
    createFunction(schema, "CREATE"),
    wakeFunction(schema),
  ].join("\n");
}

const nothingArrives: Arrivals = { variables: "", unlocked: "", first: "", checks: "", last: "", answer: "" };

/** Runs with owners stand in line for their slots, too. */
export function ownersInLine(schema: string): string {
  const since = `CASE WHEN r.owner IS NULL THEN ${sinceOf("r.due_at")} END`;
  return [grantFunction(schema, "CREATE OR REPLACE", since), createFunction(schema, "CREATE OR REPLACE")].join("\n");
}

/** What becomes of a run that asks for a permit under its owner. */
const asking = (schema: string) => ({
  variables: `
  asks boolean;`,
  before: `
  asks := kind = 'append' AND w ? 'asks' AND run.slot <> '' AND next.owner IS NOT NULL AND next.finished_at IS NULL;
  next.holds_slot := next.holds_slot OR asks AND run.holds_slot;`,
  place: `IF asks AND NOT next.holds_slot THEN
    IF run.line IS NULL THEN
      next := ${schema}.join_v1(next, clock);
    END IF;
  ELSIF`,
});
/** At first no run asked. */
const noAsking: ReturnType<typeof asking> = { variables: "", before: "", place: "IF" };

/** As the first one, but that a run which needs a permit stands in line. `arrivals`: what it has to do with an inbox. */
export function changeFunction(schema: string, arrivals = nothingArrives): string {
  const asks = arrivals === nothingArrives ? noAsking : asking(schema);
  return `
CREATE OR REPLACE FUNCTION ${schema}.change_v1(w jsonb, clock float8) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  kind text := w ->> 'kind';
  run ${schema}.runs;
  next ${schema}.runs;
  held boolean;
  holds boolean;${asks.variables}${arrivals.variables}
BEGIN${arrivals.unlocked}
  SELECT * INTO run FROM ${schema}.runs r
  WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN '{"conflict": "missing"}';
  END IF;${arrivals.first}
  IF kind <> 'append' AND run.finished_at IS NOT NULL THEN
    RETURN '{"conflict": "ended"}';
  END IF;
  IF kind <> 'post' AND (run.epoch <> (w ->> 'epoch')::integer OR run.position <> (w ->> 'position')::integer
    OR w ? 'owner' AND run.owner IS DISTINCT FROM w ->> 'owner')
  THEN
    RETURN jsonb_build_object('conflict', 'changed', 'epoch', run.epoch, 'position', run.position);
  END IF;

  next := jsonb_populate_record(run, coalesce(w -> 'head', '{}'));
  next.position := run.position + coalesce((w ->> 'count')::integer, 0);
  IF kind = 'post' THEN
    next.status := coalesce(w ->> 'status', run.status);
    IF w ? 'unblocks' THEN
      next.blocked := NULL;
    END IF;
    IF w ? 'due' AND run.owner IS NULL AND next.blocked IS NULL THEN
      next.due_at := least(run.due_at, clock);
      next.for_look := run.for_look OR w ->> 'due' = 'look';
    END IF;
  ELSIF kind = 'claim' THEN
    IF run.owner IS NOT NULL THEN
      PERFORM ${schema}.shorten_leases_v1(clock, run.owner);
    END IF;
    PERFORM 1 FROM ${schema}.leases l WHERE l.owner = run.owner AND l.until > clock;
    IF FOUND THEN
      RETURN '{"conflict": "owned"}';
    END IF;
  ELSIF next.owner IS NULL AND next.finished_at IS NULL AND run.owner IS NOT NULL THEN
    IF run.wakes <> (w ->> 'wakes')::integer THEN
      RETURN jsonb_build_object('conflict', 'woken', 'wakes', run.wakes);
    END IF;
  ELSIF next.owner IS NULL AND next.finished_at IS NULL AND run.wakes > 0 AND run.due_at IS NOT NULL
    AND next.blocked IS NULL
  THEN
    next.due_at := least(run.due_at, next.due_at);
  END IF;
${arrivals.checks}${asks.before}
  held := run.slot <> '' AND run.holds_slot AND run.finished_at IS NULL;
  holds := run.slot <> '' AND next.holds_slot AND next.finished_at IS NULL;
  IF holds AND NOT held AND NOT ${schema}.hold_v1(next) THEN
    RETURN '{"conflict": "full"}';
  END IF;

  IF kind = 'claim' OR next.owner IS DISTINCT FROM run.owner THEN
    next.wakes := 0;
  END IF;
  next.for_look := next.for_look AND next.owner IS NULL;
  IF next.owner IS NOT NULL THEN
    next.since := NULL;
  ELSIF run.owner IS NOT NULL OR run.line IS NOT NULL OR next.due_at IS DISTINCT FROM run.due_at THEN
    next.since := ${sinceOf("next.due_at")};
  END IF;
  ${asks.place} run.slot <> '' AND (next.owner IS NULL OR run.rank IS NOT NULL) THEN
    next := ${schema}.place_v1(run, next, clock);
  END IF;
  UPDATE ${schema}.runs r SET ${changed.map((name) => `${name} = next.${name}`).join(", ")} WHERE r.id = run.id;
  IF w ->> 'lines' <> '' THEN
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (run.id, run.position, w ->> 'lines');
  END IF;
  IF held AND NOT holds THEN
    PERFORM ${schema}.grant_v1(run.slot, 1, clock);
  ELSIF run.line IS NOT NULL AND next.line IS NULL THEN
    PERFORM ${schema}.grant_v1(run.slot, 0, clock);
  END IF;${arrivals.last}${arrivals.answer}
  RETURN NULL;
END $function$;`;
}

/** As the first one, but that a run which needs a permit stands in line. */
function createFunction(schema: string, create: Create): string {
  const columns = create === "CREATE" ? inserted : [...inserted, "plain"];
  const asks = `IF NOT added.holds_slot AND w ? 'asks' AND added.owner IS NOT NULL THEN
      added := ${schema}.join_v1(added, clock);
    ELSIF`;
  return `
${create} FUNCTION ${schema}.create_v2(w jsonb, clock float8) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  added ${schema}.runs := jsonb_populate_record(NULL::${schema}.runs, w || (w -> 'head'));
  refusal jsonb;
BEGIN
  IF w -> 'session' ? 'onlyOf' THEN
    PERFORM 1 FROM ${schema}.sessions s WHERE s.tenant = w ->> 'tenant'
      AND s.session_id = w -> 'session' ->> 'session_id' AND s.creator IS DISTINCT FROM w -> 'session' ->> 'onlyOf';
    IF FOUND THEN
      RETURN '{"conflict": "foreign"}';
    END IF;
  END IF;
  added.for_look := false;
  IF added.owner IS NULL THEN
    added.since := ${sinceOf("added.due_at")};
  END IF;
  IF added.slot <> '' AND added.finished_at IS NULL THEN
    refusal := ${schema}.used_v1(added);
    IF refusal IS NOT NULL THEN
      RETURN refusal;
    END IF;
    ${create === "CREATE" ? "IF" : asks} NOT added.holds_slot THEN
      added := ${schema}.place_v1(added, added, clock);
    ELSIF NOT ${schema}.hold_v1(added) THEN
      RETURN '{"conflict": "full"}';
    END IF;
  END IF;
  WHILE refusal IS NULL LOOP
    INSERT INTO ${schema}.runs (${columns.join(", ")}) VALUES (${columns.map((name) => `added.${name}`).join(", ")})
    ON CONFLICT DO NOTHING RETURNING id INTO added.id;
    EXIT WHEN added.id IS NOT NULL;
    refusal := ${schema}.used_v1(added);
  END LOOP;
  IF refusal IS NULL THEN
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (added.id, 0, w ->> 'lines');
    IF w ? 'labels' THEN
      INSERT INTO ${schema}.labels (run, name, value, tenant)
      SELECT added.id, l ->> 0, l ->> 1, added.tenant FROM jsonb_array_elements(w -> 'labels') l;
    END IF;
  ELSIF added.slot <> '' AND added.holds_slot AND added.finished_at IS NULL THEN
    PERFORM ${schema}.grant_v1(added.slot, 1, clock);
  END IF;
  RETURN refusal;
END $function$;`;
}

/** As the first one, but that a run which needs a permit stands in line. */
function wakeFunction(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.wake_v1(its_tenant text, its_id text, clock float8) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
  run ${schema}.runs;
BEGIN
  UPDATE ${schema}.runs r SET
    wakes = r.wakes + 1,
    due_at = CASE WHEN r.owner IS NULL THEN least(r.due_at, clock) ELSE r.due_at END
  WHERE r.tenant = its_tenant AND r.run_id = its_id AND r.finished_at IS NULL
    AND (r.owner IS NOT NULL OR r.blocked IS NULL)
  RETURNING * INTO run;
  IF run.slot <> '' AND run.owner IS NULL AND run.line IS NULL AND NOT run.holds_slot AND NOT run.for_look
  THEN
    run := ${schema}.join_v1(run, clock);
    UPDATE ${schema}.runs r SET holds_slot = run.holds_slot, line = run.line, rank = run.rank, since = run.since
    WHERE r.id = run.id;
  END IF;
END $function$;`;
}
