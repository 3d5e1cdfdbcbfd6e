import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPostgresStore } from "cadenza/postgres";
import { SqliteStore } from "cadenza/sqlite";
import type { DurabilityOptions, Store } from "cadenza/store";
import { durable } from "cadenza/store";
import pg from "pg";
import { HookedPool } from "../hooked-pool.ts";
import type { Losses } from "../outages/lossy-pool.ts";
import { lossy } from "../outages/lossy-pool.ts";
import type { ServerAddress } from "../postgres-server.ts";
import { openDatabase, temporaryFolder } from "../sqlite-files.ts";

/** Where the processes of a trial keep their runs: a file, or a schema of a PostgreSQL server. As JSON. */
export type Place =
  | { readonly file: string }
  | { readonly host: string; readonly port: number; readonly schema: string; readonly losses?: Losses };

/** A new place, and what deletes it. */
export interface NewPlace {
  readonly place: Place;
  remove(): void;
}

export interface PlaceOptions {
  /** How long PostgreSQL has for a statement. Default: that of the store. */
  readonly timeoutMs?: number;
  readonly durability?: DurabilityOptions;
  /** Of a file. */
  readonly synchronous?: "FULL" | "NORMAL";
  /** Called with each call of a server that took a second longer than its deadline. */
  readonly onLate?: (method: string, ms: number) => void;
}

export function newFile(): NewPlace {
  const folder = temporaryFolder(tmpdir());
  return {
    place: { file: join(folder.path, "runs.db") },
    remove: () => rmSync(folder.path, { recursive: true, force: true }),
  };
}

/** A schema of a server. It goes with the server. */
export function newSchemaOn(address: ServerAddress): NewPlace {
  if ("missing" in address) throw new Error(address.missing);
  const { host, port } = address;
  return { place: { host, port, schema: `trial_${process.pid}_${Date.now()}` }, remove: () => undefined };
}

/** Opens a place as one more process does. Closing the store closes its connections. */
export async function openPlace(
  place: Place,
  { durability, synchronous = "NORMAL", timeoutMs, onLate }: PlaceOptions = {},
): Promise<Store> {
  if ("file" in place) {
    const store = new SqliteStore(openDatabase(place.file), { synchronous, closeDatabase: true });
    return durable(store, durability);
  }
  const { host, port, schema, losses } = place;
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });
  const hooked = losses && new HookedPool(pool);
  const store = await openPostgresStore({ pool: hooked ?? pool, schema, timeoutMs, durability });
  if (hooked !== undefined && losses !== undefined) hooked.hook = lossy(losses);
  const lateMs = 0.4 * (durability?.leaseMs ?? 10_000) + 1_000;
  const timed = async (method: string, answer: Promise<unknown>): Promise<unknown> => {
    const since = performance.now();
    try {
      return await answer;
    } finally {
      const ms = performance.now() - since;
      if (method === "close") await pool.end();
      else if (ms > lateMs) onLate?.(method, ms);
    }
  };
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...parameters: unknown[]) => {
        const answer: unknown = Reflect.apply(member, target, parameters);
        return answer instanceof Promise ? timed(String(name), answer) : answer;
      };
    },
  });
}
