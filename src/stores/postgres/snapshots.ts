import type { RunKey } from "../../core/ports.ts";
import type { Snapshot } from "../../core/snapshot.ts";
import { snapshotIn, toText } from "../stored-rows.ts";
import type { Connection } from "./connection.ts";

/**
 * Folded states of long logs. They go with their runs, in each way in which these are deleted, also by a role that has no
 * right on the table.
 */
export function snapshots(schema: string): string {
  return `
CREATE TABLE ${schema}.snapshots (
  run bigint PRIMARY KEY,
  position integer NOT NULL,
  format integer NOT NULL,
  state text NOT NULL
);
CREATE FUNCTION ${schema}.drop_snapshots_v1() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
  DELETE FROM ${schema}.snapshots s USING gone g WHERE s.run = g.id;
  RETURN NULL;
END $function$;
CREATE TRIGGER drop_snapshots AFTER DELETE ON ${schema}.runs REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION ${schema}.drop_snapshots_v1();
`;
}

/** See `Store.snapshot`. */
export async function readSnapshot(
  connection: Connection,
  schema: string,
  { tenant, run_id }: RunKey,
): Promise<Snapshot | undefined> {
  const [row] = await connection.query(
    `SELECT s.position, s.format, s.state FROM ${schema}.runs r JOIN ${schema}.snapshots s ON s.run = r.id
     WHERE r.tenant = $1::text AND r.run_id = $2::text`,
    [toText(tenant), toText(run_id)],
  );
  return row && snapshotIn(row);
}

/** See `Store.keepSnapshot`. A run that is being deleted keeps none, and no write of the run is waited for. */
export async function keepSnapshot(
  connection: Connection,
  schema: string,
  { tenant, run_id }: RunKey,
  { position, format, state }: Snapshot,
): Promise<void> {
  await connection.query(
    `INSERT INTO ${schema}.snapshots (run, position, format, state)
     SELECT r.id, $3::integer, $4::integer, $5::text FROM ${schema}.runs r
     WHERE r.tenant = $1::text AND r.run_id = $2::text FOR KEY SHARE SKIP LOCKED
     ON CONFLICT (run) DO UPDATE SET position = excluded.position, format = excluded.format, state = excluded.state`,
    [toText(tenant), toText(run_id), position, format, state],
  );
}
