import type { StepUse } from "../../core/ports.ts";
import type { Rate } from "../../core/slots.ts";
import type { StepPermits } from "../step-permits.ts";
import { permitsAfter } from "../step-permits.ts";
import { countable, fromText, toNumber, toText } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { leaseEnd } from "./work.ts";

/*
 * Limits of steps. The newest grant under a key has what the next call needs: when it was asked for, how many grants are kept
 * (the highest count that was asked for), and from which number on they are there.
 */
export const stepLimits = `
  CREATE TABLE cadenza_step_grants (
    key TEXT NOT NULL,
    n INTEGER NOT NULL,
    at REAL NOT NULL,
    asked_at REAL NOT NULL,
    kept INTEGER NOT NULL,
    first INTEGER NOT NULL,
    PRIMARY KEY (key, n)
  ) WITHOUT ROWID;
  CREATE TABLE cadenza_step_permits (
    key TEXT NOT NULL,
    owner TEXT NOT NULL,
    turn INTEGER NOT NULL,
    used INTEGER NOT NULL,
    given INTEGER NOT NULL,
    over INTEGER NOT NULL,
    wanted INTEGER NOT NULL,
    rank INTEGER,
    max INTEGER NOT NULL,
    PRIMARY KEY (key, owner)
  ) WITHOUT ROWID;
`;

const selectLast = "SELECT n, at, asked_at, kept, first FROM cadenza_step_grants WHERE key = ? ORDER BY n DESC LIMIT 1";
const selectAt = "SELECT at FROM cadenza_step_grants WHERE key = ? AND n = ?";
const setBack = "UPDATE cadenza_step_grants SET at = at - ? WHERE key = ?";
const insertGrant = "INSERT INTO cadenza_step_grants (key, n, at, asked_at, kept, first) VALUES (?, ?, ?, ?, ?, ?)";
const deleteGrants = "DELETE FROM cadenza_step_grants WHERE key = ? AND n < ?";
const selectPermits = "SELECT * FROM cadenza_step_permits WHERE key = ?";
/** Other owners whose lease has ended, or lasts longer than it was asked for. */
const selectDoubted = `SELECT 1 FROM cadenza_step_permits p WHERE key = ? AND owner <> ?
  AND NOT EXISTS (SELECT 1 FROM cadenza_leases l WHERE l.owner = p.owner AND l.until > ? AND l.until <= ? + l.for_ms) LIMIT 1`;
const deletePermits = "DELETE FROM cadenza_step_permits WHERE key = ? AND owner = ?";
const putPermits = `INSERT OR REPLACE INTO cadenza_step_permits (key, owner, turn, used, given, over, wanted, rank, max)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`;

export function grantSteps(
  connection: Connection,
  name: string,
  { count, perMs }: Rate,
  wanted: number,
  now: number,
): readonly number[] {
  const key = toText(name);
  const row = connection.get(selectLast, key);
  let n = Number(row?.["n"] ?? 0);
  let first = Number(row?.["first"] ?? 1);
  const kept = Math.max(Number(row?.["kept"] ?? 0), count);
  const backMs = Math.max(0, Number(row?.["asked_at"] ?? now) - now);
  if (backMs > 0) connection.run(setBack, backMs, key);
  let last = row === undefined ? now : Number(row["at"]) - backMs;
  const waits: number[] = [];
  while (waits.length < wanted) {
    // After a count was raised the grant before may be deleted. A later one is there.
    const place = Math.max(n + 1 - count, first);
    const before =
      n + 1 > count || first > 1 ? Number(connection.get(selectAt, key, place)?.["at"]) : Number.NEGATIVE_INFINITY;
    const at = Math.max(now, last, before + perMs);
    if (at > now && waits.length > 0) break;
    n += 1;
    first = Math.max(first, n + 1 - kept);
    connection.run(insertGrant, key, n, at, now, kept, first);
    connection.run(deleteGrants, key, first);
    last = at;
    waits.push(at - now);
    if (at > now) break;
  }
  return waits;
}

/** How many permits the owner was given in all, if the call changes nothing that is stored; else undefined. Writes nothing. */
export function permitsUnchanged(
  connection: Connection,
  owner: string,
  key: string,
  max: number,
  use: StepUse,
  now: number,
): number | undefined {
  const known = readPermits(connection, key);
  const mine = known.find((one) => one.owner === owner);
  const isSame = mine?.used === use.used && mine.over === use.over && mine.wanted === use.wanted && mine.max === max;
  if (mine === undefined || !isSame) return undefined;
  if (connection.get(selectDoubted, toText(key), toText(owner), now, now) !== undefined) return undefined;
  const held = known.reduce((sum, { given, over }) => sum + given - over, 0);
  return known.some(({ rank, max: most }) => rank !== null && held < most) ? undefined : mine.given;
}

export function permitSteps(
  connection: Connection,
  owner: string,
  key: string,
  max: number,
  use: StepUse,
  now: number,
): number {
  const known = readPermits(connection, key);
  const living = known.filter((one) => one.owner === owner || leaseEnd(connection, toText(one.owner), now) > now);
  const after = permitsAfter(living, owner, max, use);
  for (const one of known) if (!living.includes(one)) connection.run(deletePermits, toText(key), toText(one.owner));
  for (const one of after) {
    if (known.includes(one)) continue;
    const { turn, used, given, over, wanted, rank } = one;
    const values = [turn, used, given, over, wanted, rank, countable(one.max)];
    connection.run(putPermits, toText(key), toText(one.owner), ...values);
  }
  return after.find((one) => one.owner === owner)?.given ?? 0;
}

function readPermits(connection: Connection, key: string): readonly StepPermits[] {
  return connection.all(selectPermits, toText(key)).map(permitsOf);
}

function permitsOf(row: SqliteRow): StepPermits {
  const number = (name: string): number => Number(row[name]);
  const [turn, used, given, over, wanted, max] = ["turn", "used", "given", "over", "wanted", "max"].map(number);
  return {
    owner: fromText(String(row["owner"])),
    turn,
    used,
    given,
    over,
    wanted,
    max,
    rank: toNumber(row["rank"]),
  } as StepPermits;
}
