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
export const STALE_MS = 250;
/** What a key has besides its number. */
const slotColumns = ["held", "first", "last", "look_at", "bands", "given", "kept", "counts_until"];
/** A key that is to be looked at without delay is marked so far in the past: also if the clock is set back, it is found. In milliseconds. */
export const LOOK_MS = 86_400_000;
/** To how many runs one write gives permits of a key. */
const MAX_GRANTED = 8;
/** After how many changes a key gets a new row. */
const CHANGES = 64;

/** Functions that read nothing but indexes, also if they were planned when the tables were empty. */
export const BY_INDEX =
  "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off";

/** How far the places of one priority are from those of the next, in milliseconds, and how far they go from the time 0. */
export const BAND_MS = 2 ** 43;
export const BAND_END = 2 ** 42;

/** Where a run stands among the due ones: its time, less `BAND_MS` for each step of its priority. */
export const duePlace = "coalesce(r.since, r.due_at)";
/** The runs that `take` may give from the index of due runs. */
export const isDue = "r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL AND r.line IS NULL";

/** The columns that a write changes. */
const changed = [
  ...headColumns,
  "wakes",
  "for_look",
  "slot",
  "slot_max",
  "limits",
  "line",
  "rank",
  "since",
  "position",
];
const inserted = [...insertedColumns, "line", "rank", "since", "creator", "plain", "priority", "fair", "limits"];

export function priorityOf(run: string): string {
  return `coalesce(${run}.priority, 0)`;
}

/** By how much the place of a run is less than its time. */
export function bandOf(run: string): string {
  return `${priorityOf(run)} * ${BAND_MS}`;
}

/** Where a run without an owner stands from now on. Null: at the time at which it is due. */
export function sinceOf(run: string): string {
  const isPast = `${run}.due_at < clock - CASE WHEN ${run}.fair IS NULL THEN ${STALE_MS} ELSE 0 END`;
  return `CASE WHEN ${isPast} THEN clock WHEN ${run}.priority <> 0 THEN least(${run}.due_at, ${BAND_END - 1}) END - ${bandOf(run)}`;
}

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
DROP FUNCTION ${schema}.create_v1(jsonb);
DROP FUNCTION ${schema}.is_closed_v1(text, float8);
DROP FUNCTION ${schema}.is_full_v1(text, float8);
`;
}

/** The columns and the table of priorities. No priority is null, as 0 is. */
export function priorities(schema: string): string {
  return `
ALTER TABLE ${schema}.runs ADD COLUMN priority smallint;
ALTER TABLE ${schema}.slots ADD COLUMN bands jsonb;
CREATE TABLE ${schema}.priorities (
  agent_name text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  priority smallint NOT NULL,
  PRIMARY KEY (agent_name, version, priority)
);
CREATE INDEX priorities_of_all ON ${schema}.priorities (priority);
`;
}

/** The keys of the slots that a run needs or holds, as an array. */
export function keysOf(run: string): string {
  return `CASE WHEN ${run}.limits IS NULL THEN ARRAY[${run}.slot]
      ELSE ARRAY(SELECT l ->> 'key' FROM jsonb_array_elements(${run}.limits) l) END`;
}

/** What a run with limits needs of a key. */
export function limitOf(run: string, key: string): string {
  return `(SELECT l FROM jsonb_array_elements(${run}.limits) l WHERE l ->> 'key' = ${key})`;
}

/** From when on the rate of a limit gives again. Null: now. `key`: a row of `slots`. */
export function nextOf(schema: string, key: string, limit: string): string {
  return `(SELECT g.at + (${limit} ->> 'per')::float8 FROM ${schema}.grants g
      WHERE g.key = ${key}.key AND g.n = ${key}.given + 1 - (${limit} ->> 'count')::bigint)`;
}

/** Whether a row of `slots` says something that no other row does. */
export function isUsed(its: string): string {
  return `${its}.held > 0 OR ${its}.first < 'Infinity' OR ${its}.bands IS NOT NULL OR ${its}.look_at IS NOT NULL
      OR coalesce(${its}.counts_until > clock, false)`;
}

/** The parts of a line, by priority: from which rank on each is read, and up to which. */
export function bandsOf(its: string): string {
  return `(
      SELECT 0 AS priority, ${its}.first AS first, CASE WHEN ${its}.bands IS NULL THEN 'Infinity'::float8 ELSE ${BAND_END} END AS until
      UNION ALL SELECT b.key::integer, b.value::float8, ${BAND_END} - b.key::integer * ${BAND_MS}
      FROM jsonb_each_text(${its}.bands) b (key, value)
    )`;
}

/** The first runs of a part of the line of a key. */
function firstInBand(schema: string, columns: string, key: string, band: string): string {
  return `SELECT ${columns} FROM ${schema}.runs r WHERE r.line IS NOT NULL AND r.line = ${key}
        AND r.rank >= ${band}.first AND r.rank < ${band}.until ORDER BY r.rank, r.id LIMIT`;
}

/** What the line of a slot consists of. */
export function lineFunctions(schema: string): string {
  return [
    // A key, with its lock. One that no run has used has the gen 0.
    `
CREATE OR REPLACE FUNCTION ${schema}.slot_v1(its_key text) RETURNS ${schema}.slots LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots;
BEGIN
  PERFORM pg_advisory_xact_lock(${schema}.slot_lock_v1(its_key));
  SELECT s.* INTO its FROM ${schema}.slots s WHERE s.key = its_key ORDER BY s.gen DESC LIMIT 1;
  IF NOT FOUND THEN
    its.key := its_key;
    its.gen := 0;
    its.n := 0;
    its.held := 0;
    its.first := 'Infinity';
    its.last := '-Infinity';
  END IF;
  RETURN its;
END $function$;`,
    // Writes a key that was read so, but for what is to change. Where the snapshot is older than the lock, it fails.
    `
CREATE OR REPLACE FUNCTION ${schema}.put_slot_v1(its ${schema}.slots) RETURNS void LANGUAGE plpgsql AS $function$
BEGIN
  IF its.gen > 0 AND its.n < ${CHANGES - 1} THEN
    UPDATE ${schema}.slots s SET n = its.n + 1, ${slotColumns.map((name) => `${name} = its.${name}`).join(", ")}
    WHERE s.key = its.key AND s.gen = its.gen;
    RETURN;
  END IF;
  DELETE FROM ${schema}.slots s WHERE s.key = its.key AND s.gen = its.gen;
  INSERT INTO ${schema}.slots (key, gen, n, ${slotColumns.join(", ")})
  VALUES (its.key, its.gen + 1, 0, ${slotColumns.map((name) => `its.${name}`).join(", ")}) ON CONFLICT DO NOTHING;
END $function$;`,
    // The first run in the line of a key. The bounds of the line are moved up to it. No run: the line is empty.
    `
CREATE OR REPLACE FUNCTION ${schema}.head_v1(INOUT its ${schema}.slots, OUT head ${schema}.runs) LANGUAGE plpgsql AS $function$
DECLARE
  band record;
BEGIN
  IF its.bands IS NULL THEN
    IF its.first < 'Infinity' THEN
      SELECT r.* INTO head FROM ${schema}.runs r WHERE r.line IS NOT NULL AND r.line = its.key AND r.rank >= its.first
      ORDER BY r.rank, r.id LIMIT 1;
      its.first := coalesce(head.rank, 'Infinity');
    END IF;
    RETURN;
  END IF;
  FOR band IN SELECT b.* FROM ${bandsOf("its")} b WHERE b.first < 'Infinity' ORDER BY b.priority DESC LOOP
    ${firstInBand(schema, "r.* INTO head", "its.key", "band")} 1;
    IF band.priority = 0 THEN
      its.first := coalesce(head.rank, 'Infinity');
    ELSIF head.id IS NULL THEN
      its.bands := nullif(its.bands - band.priority::text, '{}');
    ELSE
      its.bands := jsonb_set(its.bands, ARRAY[band.priority::text], to_jsonb(head.rank));
    END IF;
    EXIT WHEN head.id IS NOT NULL;
  END LOOP;
END $function$;`,
    // Adds a run to the line of a key: at the place that it had, or behind the others of its priority.
    `
CREATE OR REPLACE FUNCTION ${schema}.rank_v1(its ${schema}.slots, run ${schema}.runs, clock float8) RETURNS float8
LANGUAGE plpgsql AS $function$
BEGIN
  RETURN coalesce(run.rank, CASE WHEN ${priorityOf("run")} = 0 THEN greatest(clock, its.last + 1) ELSE clock - ${bandOf("run")} END);
END $function$;

CREATE OR REPLACE FUNCTION ${schema}.stretch_v1(its ${schema}.slots, run ${schema}.runs) RETURNS ${schema}.slots
LANGUAGE plpgsql AS $function$
DECLARE
  name text := run.priority::text;
BEGIN
  IF ${priorityOf("run")} = 0 THEN
    its.first := least(its.first, run.rank);
    its.last := greatest(its.last, run.rank);
  ELSE
    its.bands := coalesce(its.bands, '{}')
      || jsonb_build_object(name, least(run.rank, (its.bands ->> name)::float8));
  END IF;
  RETURN its;
END $function$;`,
    // Gives a run a permit, and answers whether one is free. While others stand in line, none is.
    `
CREATE OR REPLACE FUNCTION ${schema}.hold_v1(run ${schema}.runs) RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots := ${schema}.slot_v1(run.slot);
  top record;
BEGIN
  SELECT h.* INTO top FROM ${schema}.head_v1(its) h;
  its := top.its;
  IF its.held >= run.slot_max OR ((top.head).id IS NOT NULL AND (top.head).id IS DISTINCT FROM run.id) THEN
    RETURN false;
  END IF;
  its.held := its.held + 1;
  PERFORM ${schema}.put_slot_v1(its);
  RETURN true;
END $function$;`,
    // Gives a run that is due a permit, or a place in the line.
    `
CREATE OR REPLACE FUNCTION ${schema}.join_v1(run ${schema}.runs, clock float8) RETURNS ${schema}.runs LANGUAGE plpgsql AS $function$
DECLARE
  its ${schema}.slots;
  top record;
  ahead ${schema}.runs;
  is_first boolean;
  refusing jsonb;
BEGIN
  IF run.limits IS NOT NULL THEN
    refusing := ${schema}.refusing_v1(run, NULL, true, clock);
    RETURN CASE WHEN refusing IS NULL THEN ${schema}.admit_v1(run, NULL, clock) ELSE ${schema}.stand_v1(run, refusing, clock) END;
  END IF;
  its := ${schema}.slot_v1(run.slot);
  SELECT h.* INTO top FROM ${schema}.head_v1(its) h;
  its := top.its;
  ahead := top.head;
  run.rank := ${schema}.rank_v1(its, run, clock);
  is_first := ahead.id IS NULL OR coalesce((run.rank, run.id) < (ahead.rank, ahead.id), false);
  IF is_first AND its.held < run.slot_max THEN
    its.held := its.held + 1;
    run.holds_slot := true;
    run.rank := NULL;
    PERFORM ${schema}.put_slot_v1(its);
    RETURN run;
  END IF;
  run.line := run.slot;
  IF run.fair IS NULL THEN
    run.since := NULL;
  END IF;
  its := ${schema}.stretch_v1(its, run);
  IF NOT is_first AND its.held < ahead.slot_max THEN
    its.look_at := coalesce(its.look_at, clock - ${LOOK_MS});
  END IF;
  PERFORM ${schema}.put_slot_v1(its);
  RETURN run;
END $function$;`,
    // Takes back permits of a key, and gives those that are free to the first in line. Rows that others have locked are left
    // out: they may wait for this key.
    `
CREATE OR REPLACE FUNCTION ${schema}.grant_v1(its_key text, freed integer, clock float8) RETURNS void LANGUAGE plpgsql AS $function$
DECLARE
  was ${schema}.slots := ${schema}.slot_v1(its_key);
  its ${schema}.slots := was;
  top record;
  run ${schema}.runs;
  next_at float8;
  refusing jsonb;
BEGIN
  its.held := was.held - freed;
  its.look_at := NULL;
  FOR n IN 0 .. ${MAX_GRANTED} LOOP
    SELECT h.* INTO top FROM ${schema}.head_v1(its) h;
    its := top.its;
    EXIT WHEN (top.head).id IS NULL OR its.held >= (top.head).slot_max;
    IF (top.head).limits IS NOT NULL THEN
      next_at := ${nextOf(schema, "its", limitOf("(top.head)", "its_key"))};
      IF next_at > clock THEN
        its.look_at := next_at;
        EXIT;
      END IF;
    END IF;
    IF n < ${MAX_GRANTED} THEN
      SELECT r.* INTO run FROM ${schema}.runs r WHERE r.id = ANY (ARRAY(
        SELECT x.id FROM ${bandsOf("its")} b CROSS JOIN LATERAL (
        ${firstInBand(schema, "r.id, r.rank", "its_key", "b")} ${MAX_GRANTED}
        ) x ORDER BY x.rank, x.id LIMIT ${MAX_GRANTED}
      )) AND r.line = its_key AND r.slot_max > its.held ORDER BY r.rank, r.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF n = ${MAX_GRANTED} OR NOT FOUND
      OR run.limits IS NOT NULL AND (${nextOf(schema, "its", limitOf("run", "its_key"))} > clock OR NOT ${schema}.try_keys_v1(run))
    THEN
      its.look_at := clock - ${LOOK_MS};
      EXIT;
    END IF;
    IF run.limits IS NULL THEN
      its.held := its.held + 1;
      run.holds_slot := true;
      run.line := NULL;
      run.rank := NULL;
    ELSE
      refusing := ${schema}.refusing_v1(run, its_key, NULL, clock);
      IF refusing IS NULL THEN
        its := ${schema}.count_v1(its, ${limitOf("run", "its_key")}, clock);
        run := ${schema}.admit_v1(run, its_key, clock);
      ELSE
        run := ${schema}.stand_v1(run, refusing, clock);
      END IF;
    END IF;
    UPDATE ${schema}.runs r SET holds_slot = run.holds_slot, line = run.line, rank = run.rank, slot = run.slot,
      slot_max = run.slot_max, limits = run.limits,
      since = CASE WHEN run.line IS NOT NULL THEN run.since WHEN r.owner IS NULL THEN ${sinceOf("r")} END
    WHERE r.id = run.id;
  END LOOP;
  IF its.held = 0 AND its.first = 'Infinity' THEN
    its.last := '-Infinity';
  END IF;
  IF its IS DISTINCT FROM was THEN
    PERFORM ${schema}.put_slot_v1(its);
  END IF;
END $function$;`,
    // Places a run without an owner that was changed: due, in line, behind its gate, or neither. Under an owner it keeps the
    // place in line that it had, until it holds a permit. `run`: as it was before; without an id, it is new.
    `
CREATE OR REPLACE FUNCTION ${schema}.place_v1(run ${schema}.runs, placed ${schema}.runs, clock float8) RETURNS ${schema}.runs
LANGUAGE plpgsql AS $function$
DECLARE
  needs boolean := placed.slot <> '' AND NOT placed.holds_slot;
  was_behind boolean := coalesce(run.line = run.fair, false);
  was_through boolean := coalesce(run.id IS NOT NULL AND run.owner IS NULL AND run.blocked IS NULL AND run.due_at <= clock, false)
    AND NOT was_behind;
BEGIN
  IF was_behind THEN
    placed.line := NULL;
    placed.rank := NULL;
  END IF;
  IF placed.owner IS NULL AND placed.finished_at IS NULL AND placed.due_at <= clock AND NOT placed.for_look
    AND (placed.blocked IS NULL OR placed.line IS NOT NULL)
  THEN
    IF placed.fair IS NOT NULL AND (needs OR placed.slot = '') AND placed.status <> 'cancelling' AND placed.blocked IS NULL THEN
      IF was_behind THEN
        placed.line := run.line;
        placed.rank := run.rank;
        placed.since := NULL;
        RETURN placed;
      ELSIF NOT was_through AND placed.rank IS NULL THEN
        placed := ${schema}.behind_v1(placed, clock);
        IF placed.line IS NOT NULL THEN
          RETURN placed;
        END IF;
      END IF;
    END IF;
    IF needs THEN
      IF placed.line IS NULL THEN
        RETURN ${schema}.join_v1(placed, clock);
      ELSIF placed.fair IS NULL THEN
        placed.since := NULL;
      END IF;
      RETURN placed;
    END IF;
  END IF;
  placed.line := NULL;
  IF placed.slot = '' OR placed.holds_slot OR placed.finished_at IS NOT NULL OR (placed.owner IS NULL AND NOT placed.for_look) THEN
    placed.rank := NULL;
  END IF;
  RETURN placed;
END $function$;`,
    createFunction(schema),
    wakeFunction(schema),
  ].join("\n");
}

/**
 * As the first one, but that a run which needs a permit stands in line, also one that asks for a permit under its owner.
 * `arrivals`: what it has to do with its inbox.
 */
export function changeFunction(schema: string, arrivals: Arrivals): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.change_v1(w jsonb, clock float8) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  kind text := w ->> 'kind';
  run ${schema}.runs;
  next ${schema}.runs;
  held boolean;
  holds boolean;
  asks boolean;${arrivals.variables}
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
    OR kind = 'post' AND coalesce(w ->> 'status', 'cancelling') <> 'cancelling' AND run.owner IS NULL
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
${arrivals.checks}
  asks := kind = 'append' AND w ? 'asks' AND run.slot <> '' AND next.owner IS NOT NULL AND next.finished_at IS NULL;
  next.holds_slot := next.holds_slot OR asks AND run.holds_slot;
  held := run.slot <> '' AND run.holds_slot AND run.finished_at IS NULL;
  holds := run.slot <> '' AND next.holds_slot AND next.finished_at IS NULL;
  IF holds AND NOT held AND next.limits IS NOT NULL THEN
    IF ${schema}.refusing_v1(next, NULL, false, clock) IS NOT NULL THEN
      RETURN '{"conflict": "full"}';
    END IF;
    next := ${schema}.admit_v1(next, NULL, clock);
  ELSIF holds AND NOT held AND NOT ${schema}.hold_v1(next) THEN
    RETURN '{"conflict": "full"}';
  END IF;

  IF kind = 'claim' OR next.owner IS DISTINCT FROM run.owner THEN
    next.wakes := 0;
  END IF;
  next.for_look := next.for_look AND next.owner IS NULL;
  IF next.owner IS NOT NULL THEN
    next.since := NULL;
  ELSIF run.owner IS NOT NULL OR run.line IS NOT NULL OR next.due_at IS DISTINCT FROM run.due_at THEN
    next.since := ${sinceOf("next")};
  END IF;
  IF asks AND NOT next.holds_slot THEN
    IF run.line IS NULL THEN
      next := ${schema}.join_v1(next, clock);
    END IF;
  ELSIF (run.slot <> '' OR run.fair IS NOT NULL) AND (next.owner IS NULL OR run.rank IS NOT NULL) THEN
    next := ${schema}.place_v1(run, next, clock);
  END IF;
  UPDATE ${schema}.runs r SET ${changed.map((name) => `${name} = next.${name}`).join(", ")} WHERE r.id = run.id;
  IF w ->> 'lines' <> '' THEN
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (run.id, run.position, w ->> 'lines');
  END IF;
  IF held AND NOT holds THEN
    PERFORM ${schema}.give_back_v1(run, clock);
  ELSIF run.line = run.slot AND next.line IS NULL THEN
    PERFORM ${schema}.grant_v1(run.slot, 0, clock);
  END IF;${arrivals.last}${arrivals.answer}
  RETURN NULL;
END $function$;`;
}

/** As the first one, but that a run which needs a permit stands in line. */
function createFunction(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.create_v2(w jsonb, clock float8) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  added ${schema}.runs := jsonb_populate_record(NULL::${schema}.runs, w || (w -> 'head'));
  refusal jsonb;
  refusing jsonb;
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
    added.since := ${sinceOf("added")};
  END IF;
  IF added.slot <> '' AND added.finished_at IS NULL THEN
    refusal := ${schema}.used_v1(added);
    IF refusal IS NOT NULL THEN
      RETURN refusal;
    END IF;
    IF NOT added.holds_slot AND w ? 'asks' AND added.owner IS NOT NULL THEN
      added := ${schema}.join_v1(added, clock);
    ELSIF NOT added.holds_slot THEN
      added := ${schema}.place_v1(added, added, clock);
    ELSIF added.limits IS NOT NULL THEN
      refusing := ${schema}.refusing_v1(added, NULL, false, clock);
      IF refusing IS NOT NULL THEN
        RETURN jsonb_build_object('conflict', 'full', 'key', refusing ->> 'key');
      END IF;
      added := ${schema}.admit_v1(added, NULL, clock);
    ELSIF NOT ${schema}.hold_v1(added) THEN
      RETURN jsonb_build_object('conflict', 'full', 'key', added.slot);
    END IF;
  ELSIF added.fair IS NOT NULL AND added.finished_at IS NULL THEN
    added := ${schema}.place_v1(added, added, clock);
  END IF;
  WHILE refusal IS NULL LOOP
    INSERT INTO ${schema}.runs (${inserted.join(", ")}) VALUES (${inserted.map((name) => `added.${name}`).join(", ")})
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
    PERFORM ${schema}.give_back_v1(added, clock);
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
  before ${schema}.runs;
BEGIN
  UPDATE ${schema}.runs r SET
    wakes = r.wakes + 1,
    due_at = CASE WHEN r.owner IS NULL THEN least(r.due_at, clock) ELSE r.due_at END,
    since = CASE WHEN (r.priority <> 0 OR r.fair IS NOT NULL) AND r.owner IS NULL AND r.line IS NULL AND coalesce(r.due_at, 'Infinity') > clock
      THEN clock - ${bandOf("r")} ELSE r.since END
  WHERE r.tenant = its_tenant AND r.run_id = its_id AND r.finished_at IS NULL
    AND (r.owner IS NOT NULL OR r.blocked IS NULL)
  RETURNING * INTO run;
  IF run.owner IS NULL AND run.line IS NULL AND NOT run.for_look
    AND (run.slot <> '' AND NOT run.holds_slot OR run.fair IS NOT NULL)
  THEN
    before := run;
    before.due_at := nullif(run.due_at, clock);
    run := ${schema}.place_v1(before, run, clock);
    UPDATE ${schema}.runs r SET holds_slot = run.holds_slot, line = run.line, rank = run.rank, since = run.since, slot = run.slot,
      slot_max = run.slot_max, limits = run.limits WHERE r.id = run.id;
  END IF;
END $function$;`;
}
