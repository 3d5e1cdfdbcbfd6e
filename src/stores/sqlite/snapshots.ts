import type { RunKey } from "../../core/ports.ts";
import type { Snapshot } from "../../core/snapshot.ts";
import { snapshotIn, toText } from "../stored-rows.ts";
import type { Connection } from "./database.ts";

const select = `
  SELECT s.position, s.format, s.state FROM cadenza_runs r JOIN cadenza_snapshots s ON s.run = r.id
  WHERE r.tenant = ? AND r.run_id = ?`;
const replace = `
  INSERT OR REPLACE INTO cadenza_snapshots (run, position, format, state)
  SELECT r.id, ?, ?, ? FROM cadenza_runs r WHERE r.tenant = ? AND r.run_id = ?`;

/** See `Store.snapshot`. */
export function readSnapshot(connection: Connection, { tenant, run_id }: RunKey): Snapshot | undefined {
  const row = connection.get(select, toText(tenant), toText(run_id));
  return row && snapshotIn(row);
}

/** See `Store.keepSnapshot`. */
export function keepSnapshot(connection: Connection, { tenant, run_id }: RunKey, snapshot: Snapshot): void {
  connection.run(replace, snapshot.position, snapshot.format, snapshot.state, toText(tenant), toText(run_id));
}
