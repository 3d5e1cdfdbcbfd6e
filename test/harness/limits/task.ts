import pg from "pg";
import type { Place } from "../crash/place.ts";

/** What a worker gets to do. */
export interface Task {
  readonly place: Place & { readonly host: string; readonly port: number };
  /** How many runs it creates. */
  readonly runs: number;
  /** How many runs all workers together execute. */
  readonly total: number;
  readonly max: number;
  /** How long a run works, in milliseconds. */
  readonly work: number;
}

export function connect({ host, port }: Task["place"]): pg.Pool {
  return new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });
}
