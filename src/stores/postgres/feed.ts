import type { FeedOptions } from "../../core/feed.ts";
import type { FeedPage, FeedQuery } from "../../core/ports.ts";
import type { StoredRow } from "../stored-rows.ts";
import { countable, toFeedItem, toText } from "../stored-rows.ts";
import type { Connection } from "./connection.ts";
import { fromFeedText, lettersOf } from "./feed-text.ts";

/*
 * The feed. Its order is that of `tx` and `id`, and holds for all readers at once:
 *
 * - A row is read when no transaction is open that may still add one in front of it. `tx` is at least the number of the
 *   transaction that has written the row, and all numbers below the `xmin` of a snapshot belong to transactions that are over. So rows with
 *   a `tx` below `xmin` are all there, and no later row gets such a `tx`.
 * - The rows of a run have the order of its writes. A transaction that began first may write to a run last, after it has waited for the
 *   row of the run. So `tx` is also at least the number of the last transaction that was over when all rows of runs were
 *   locked: that is not lower than the `tx` of any earlier write to one of them. Of rows with the same `tx` that of the
 *   earlier write has the lower `id`, since the lock is held while it is drawn.
 * - Numbers of transactions may come again: after a failover that has lost the last ones, and in another server that a dump was
 *   restored to. The upper bits of `tx` are the era of the feed, which a write raises when it finds another server
 *   (`system_identifier`), or the same one on another timeline. In another server the feed also gets another id.
 *
 * `trimmed_tx` and `trimmed_id` say up to which row events were deleted. Without `keep_ms` the feed has ended.
 */

/** How many bits of `tx` are the number of a transaction. */
const TX_BITS = 48;
/** How many events are deleted in one statement. */
const TRIM_CHUNK = 1_000;

/** The number by which an event that is added now comes behind those that were added before. */
const txNow = (era: string): string => `${era} << ${TX_BITS} | greatest(
      pg_current_xact_id()::text::bigint,
      pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1
    )`;

/**
 * A post to a run with an owner tells the feed nothing: the owner tells what becomes of it. If it goes into the log without
 * an owner, its own events are told.
 */
export function feedWrites(schema: string): string {
  const events = `${schema}.feed_events`;
  return `
CREATE FUNCTION ${schema}.tell_feed_v1(run ${schema}.runs, feed jsonb, clock float8) RETURNS void LANGUAGE plpgsql AS $function$
DECLARE
  its_era bigint := ${schema}.feed_era_v1();
BEGIN
  INSERT INTO ${events} (tx, at, run_id, tenant, agent_name, event)
  SELECT ${txNow("its_era")}, clock, run.run_id::uuid, run.tenant, run.agent_name, e.event
  FROM jsonb_array_elements_text(feed) WITH ORDINALITY e (event, m) WHERE its_era IS NOT NULL ORDER BY e.m;
END $function$;
${writeFedFunction(schema, "write_v1")}`;
}

/** As the function that writes, and adds the events of the writes that were made. */
function writeFedFunction(schema: string, write: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.write_fed_v1(writes jsonb, given_time float8, its_shard integer) RETURNS jsonb
LANGUAGE plpgsql AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  answers jsonb := ${schema}.${write}(writes, given_time, its_shard);
  write record;
BEGIN
  PERFORM 1 FROM jsonb_array_elements(writes) w WHERE w ? 'feed';
  IF NOT FOUND OR jsonb_typeof(answers) <> 'array' THEN
    RETURN answers;
  END IF;
  FOR write IN
    SELECT r AS run, x.w -> 'feed' AS feed FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
    JOIN ${schema}.runs r ON r.tenant = x.w ->> 'tenant' AND r.run_id = x.w ->> 'run_id'
    WHERE x.w ? 'feed' AND (answers -> (x.n - 1)::integer = 'null' OR answers -> (x.n - 1)::integer ? 'inbox')
      AND (x.w ->> 'kind' <> 'post' OR CASE WHEN x.w ? 'tells' THEN answers -> (x.n - 1)::integer = 'null' ELSE r.owner IS NULL END)
    ORDER BY x.n
  LOOP
    PERFORM ${schema}.tell_feed_v1(write.run, write.feed, clock);
  END LOOP;
  RETURN answers;
END $function$;`;
}

export function fedWrites(schema: string): string {
  return writeFedFunction(schema, "write_v2");
}

export function feed(schema: string): string {
  const events = `${schema}.feed_events`;
  return [
    `
CREATE TABLE ${schema}.feed (
  one boolean PRIMARY KEY CHECK (one),
  id text NOT NULL,
  era integer NOT NULL,
  server text NOT NULL,
  timeline text NOT NULL,
  keep_ms float8,
  trimmed_tx bigint NOT NULL,
  trimmed_id bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE ${events} (
  tx bigint NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  at float8 NOT NULL,
  run_id uuid NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  agent_name text COLLATE "C" NOT NULL,
  event text COLLATE "C" NOT NULL,
  PRIMARY KEY (tx, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);`,
    // Begins the feed, or changes for how long events are kept. What is left of a feed that has ended is deleted.
    `
CREATE FUNCTION ${schema}.begin_feed_v1(its_ms float8) RETURNS void LANGUAGE plpgsql AS $function$
BEGIN
  INSERT INTO ${schema}.feed AS f (one, id, era, server, timeline, keep_ms, trimmed_tx, trimmed_id)
  VALUES (true, left(gen_random_uuid()::text, 13), 0, '', '', its_ms, 0, 0)
  ON CONFLICT (one) DO UPDATE SET
    keep_ms = its_ms,
    id = CASE WHEN f.keep_ms IS NULL THEN excluded.id ELSE f.id END,
    trimmed_tx = CASE WHEN f.keep_ms IS NULL THEN (f.era + 1)::bigint << ${TX_BITS} ELSE f.trimmed_tx END,
    trimmed_id = CASE WHEN f.keep_ms IS NULL THEN 0 ELSE f.trimmed_id END,
    era = CASE WHEN f.keep_ms IS NULL THEN f.era + 1 ELSE f.era END
  WHERE f.keep_ms IS DISTINCT FROM its_ms;
  PERFORM ${schema}.feed_era_v1();
  DELETE FROM ${events} e USING ${schema}.feed f WHERE (e.tx, e.id) <= (f.trimmed_tx, f.trimmed_id);
END $function$;`,
    // The era of the feed, which another one follows if the server or its timeline is another. Null: there is no feed.
    `
CREATE FUNCTION ${schema}.feed_era_v1() RETURNS bigint LANGUAGE plpgsql AS $function$
DECLARE
  this_server text := (SELECT c.system_identifier::text FROM pg_control_system() c);
  this_timeline text := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  its ${schema}.feed;
BEGIN
  LOOP
    SELECT f.* INTO its FROM ${schema}.feed f WHERE f.keep_ms IS NOT NULL;
    IF NOT FOUND OR (its.server = this_server AND its.timeline = this_timeline) THEN
      RETURN its.era;
    END IF;
    UPDATE ${schema}.feed f SET
      era = f.era + 1,
      id = CASE WHEN f.server IN ('', this_server) THEN f.id ELSE left(gen_random_uuid()::text, 13) END,
      server = this_server,
      timeline = this_timeline
    WHERE f.era = its.era;
  END LOOP;
END $function$;`,
    // As write_v1, for a store that keeps a feed. All rows of runs are locked by the time that events are added.
    `
CREATE FUNCTION ${schema}.write_fed_v1(writes jsonb, given_time float8, its_shard integer) RETURNS jsonb
LANGUAGE plpgsql AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  answers jsonb := ${schema}.write_v1(writes, given_time, its_shard);
  its_era bigint;
BEGIN
  PERFORM 1 FROM jsonb_array_elements(writes) w WHERE w ? 'feed';
  IF NOT FOUND OR jsonb_typeof(answers) <> 'array' THEN
    RETURN answers;
  END IF;
  its_era := ${schema}.feed_era_v1();
  INSERT INTO ${events} (tx, at, run_id, tenant, agent_name, event)
  SELECT its_era << ${TX_BITS} | greatest(
      pg_current_xact_id()::text::bigint,
      pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1
    ), clock, r.run_id::uuid, r.tenant, r.agent_name, e.event
  FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
  CROSS JOIN LATERAL jsonb_array_elements_text(x.w -> 'feed') WITH ORDINALITY e (event, m)
  JOIN ${schema}.runs r ON r.tenant = x.w ->> 'tenant' AND r.run_id = x.w ->> 'run_id'
  WHERE its_era IS NOT NULL AND answers -> (x.n - 1)::integer = 'null'
  ORDER BY x.n, e.m;
  RETURN answers;
END $function$;`,
    // Deletes some of the events that are too old, the oldest first, and answers whether there may be more of them.
    `
CREATE FUNCTION ${schema}.trim_feed_v1(given_time float8, chunk integer) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  its ${schema}.feed;
  event record;
  last_tx bigint;
  last_id bigint;
  count integer := 0;
BEGIN
  SELECT f.* INTO its FROM ${schema}.feed f WHERE f.keep_ms IS NOT NULL FOR UPDATE SKIP LOCKED;
  FOR event IN
    SELECT e.tx, e.id, e.at FROM ${events} e
    WHERE (e.tx, e.id) > (its.trimmed_tx, its.trimmed_id)
      AND e.tx < (its.era::bigint << ${TX_BITS} | pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
    ORDER BY e.tx, e.id LIMIT chunk
  LOOP
    EXIT WHEN event.at >= clock - its.keep_ms;
    last_tx := event.tx;
    last_id := event.id;
    count := count + 1;
  END LOOP;
  IF count = 0 THEN
    RETURN false;
  END IF;
  DELETE FROM ${events} e
  WHERE (e.tx, e.id) > (its.trimmed_tx, its.trimmed_id) AND (e.tx, e.id) <= (last_tx, last_id);
  UPDATE ${schema}.feed f SET trimmed_tx = last_tx, trimmed_id = last_id;
  RETURN count = chunk;
END $function$;`,
    // Ends the feed, deletes some of its events, and answers whether there may be more of them.
    `
CREATE FUNCTION ${schema}.end_feed_v1(chunk integer) RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  deleted integer;
BEGIN
  UPDATE ${schema}.feed f SET keep_ms = NULL WHERE f.keep_ms IS NOT NULL;
  DELETE FROM ${events} e WHERE (e.tx, e.id) IN (
    SELECT d.tx, d.id FROM ${events} d ORDER BY d.tx, d.id LIMIT chunk);
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted = chunk;
END $function$;`,
  ].join("\n");
}

/** The feed of a store on PostgreSQL. */
export class PostgresFeed {
  readonly #connection: Connection;
  readonly #schema: string;
  readonly #now: () => number | null;

  /** `now` gives the time; null: that of the server. */
  constructor(connection: Connection, schema: string, now: () => number | null) {
    this.#connection = connection;
    this.#schema = schema;
    this.#now = now;
  }

  /** Begins or ends the feed, as the options say, and answers whether there is one. Undefined: it stays as it is. */
  async open(options: FeedOptions | false | undefined): Promise<boolean> {
    if (options) await this.#call("begin_feed_v1($1::float8)", [countable(options.keepMs)]);
    const [row] = await this.#connection.query(
      `SELECT count(*) AS count FROM ${this.#schema}.feed f WHERE f.keep_ms IS NOT NULL`,
      [],
    );
    const isKept = Number(row?.["count"]) === 1;
    if (options !== false) return isKept;
    for (let isOver = !isKept; !isOver; ) isOver = !(await this.#call("end_feed_v1($1::integer)", [TRIM_CHUNK]));
    return false;
  }

  /** One statement, and so one snapshot: no later write adds an event between a position and the events that it finds. */
  async read({ from, limit, tenant, types }: FeedQuery): Promise<FeedPage | undefined> {
    if (from === "now") return this.#readEnd();
    const [, its = "", tx = null, id = null] = /^([\da-f-]+)\.(\d{1,18})\.(\d{1,18})$/.exec(from) ?? [];
    if (from !== "start" && tx === null) return undefined;
    const rows = await this.#connection.query(
      `WITH feed AS MATERIALIZED (${this.#feed}),
        chunk AS (
          SELECT e.* FROM ${this.#schema}.feed_events e
          WHERE (e.tx, e.id) > (
              coalesce($1::bigint, (SELECT f.trimmed_tx FROM feed f)),
              coalesce($2::bigint, (SELECT f.trimmed_id FROM feed f)))
            AND e.tx < (SELECT f.horizon FROM feed f)
          ORDER BY e.tx, e.id LIMIT $3::bigint
        )
        SELECT f.id AS feed, f.trimmed_tx::text, f.trimmed_id::text,
          coalesce(($1::bigint, $2::bigint) < (f.trimmed_tx, f.trimmed_id), false) AS is_lost,
          (SELECT e.tx FROM ${this.#schema}.feed_events e ORDER BY e.tx DESC, e.id DESC LIMIT 1) >= f.horizon AS is_held,
          c.tx::text, c.id::text, c.at, c.tenant, c.run_id::text, c.agent_name, c.event, c.count, c.is_wanted
        FROM feed f LEFT JOIN (
          SELECT c.*, count(*) OVER () AS count, row_number() OVER (ORDER BY c.tx, c.id) AS n,
            ($4::text IS NULL OR c.tenant = $4::text) AND ($5::text IS NULL OR strpos($5::text, left(c.event, 1)) > 0) AS is_wanted
          FROM chunk c
        ) c ON c.is_wanted OR c.n = c.count
        ORDER BY c.tx, c.id`,
      [tx, id, limit, tenant === undefined ? null : toText(tenant), types === undefined ? null : lettersOf(types)],
    );
    const [first] = rows;
    const last = rows.at(-1);
    if (first === undefined || first["is_lost"] === true || (from !== "start" && first["feed"] !== its))
      return undefined;
    const positionOf = (row: StoredRow): string => `${row["feed"]}.${row["tx"]}.${row["id"]}`;
    const isEmpty = last === undefined || last["tx"] === null;
    const start = from === "start" ? `${first["feed"]}.${first["trimmed_tx"]}.${first["trimmed_id"]}` : from;
    return {
      items: rows
        .filter((row) => row["is_wanted"] === true)
        .map((row) => toFeedItem(row, positionOf(row), fromFeedText(String(row["event"])))),
      position: isEmpty ? start : positionOf(last),
      more: Number(first["count"] ?? 0) === limit ? "now" : first["is_held"] === true ? "soon" : null,
    };
  }

  /** Deletes the events that are too old, in small transactions. */
  async trim(): Promise<void> {
    for (let isOver = false; !isOver; )
      isOver = !(await this.#call("trim_feed_v1($1::float8, $2::integer)", [this.#now(), TRIM_CHUNK]));
  }

  async #readEnd(): Promise<FeedPage | undefined> {
    const [row] = await this.#connection.query(
      `WITH feed AS MATERIALIZED (${this.#feed})
        SELECT f.id AS feed, coalesce(e.tx, f.trimmed_tx)::text AS tx, coalesce(e.id, f.trimmed_id)::text AS id
        FROM feed f LEFT JOIN LATERAL (
          SELECT e.tx, e.id FROM ${this.#schema}.feed_events e
          WHERE e.tx < f.horizon AND (e.tx, e.id) > (f.trimmed_tx, f.trimmed_id) ORDER BY e.tx DESC, e.id DESC LIMIT 1
        ) e ON true`,
      [],
    );
    return row && { items: [], position: `${row["feed"]}.${row["tx"]}.${row["id"]}`, more: null };
  }

  /** The feed, and below which `tx` nothing is added any more. */
  get #feed(): string {
    return `SELECT f.id, f.trimmed_tx, f.trimmed_id,
            f.era::bigint << ${TX_BITS} | pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon
          FROM ${this.#schema}.feed f WHERE f.keep_ms IS NOT NULL`;
  }

  async #call(call: string, values: readonly (number | null)[]): Promise<boolean> {
    const [row] = await this.#connection.query(`SELECT ${this.#schema}.${call} AS answer`, values);
    return row?.["answer"] === true;
  }
}
