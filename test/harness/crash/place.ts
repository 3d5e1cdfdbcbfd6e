import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Store } from "cadenza/store";
import pg from "pg";
import { durable } from "../../../src/durable/durable.ts";
import type { DurabilityOptions } from "../../../src/durable/options.ts";
import { openPostgresStore } from "../../../src/stores/postgres.ts";
import { SqliteStore } from "../../../src/stores/sqlite.ts";
import type { ServerAddress } from "../postgres-server.ts";
import { openDatabase, temporaryFolder } from "../sqlite-files.ts";

/** Where the processes of a trial keep their runs: a file, or a schema of a PostgreSQL server. As JSON. */
export type Place =
  | { readonly file: string }
  | { readonly host: string; readonly port: number; readonly schema: string };

/** A new place, and what deletes it. */
export interface NewPlace {
  readonly place: Place;
  remove(): void;
}

export interface PlaceOptions {
  readonly durability?: DurabilityOptions;
  /** Of a file. */
  readonly synchronous?: "FULL" | "NORMAL";
}

export function newFile(): NewPlace {
  const folder = temporaryFolder();
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
  { durability, synchronous = "NORMAL" }: PlaceOptions = {},
): Promise<Store> {
  if ("file" in place) {
    const store = new SqliteStore(openDatabase(place.file), { synchronous, closeDatabase: true });
    return durable(store, durability);
  }
  const { host, port, schema } = place;
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });
  const store = await openPostgresStore({ pool, schema, durability });
  const close = async (): Promise<void> => {
    await store.close();
    await pool.end();
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === "close") return close;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}
