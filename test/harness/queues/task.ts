import type { AgentOptions } from "cadenza";
import pg from "pg";
import type { Place } from "../crash/place.ts";

/** The agents whose runs share the limit of a customer. */
export const AGENTS = ["research", "draw", "write"] as const;

/** What a process gets to do. */
export interface QueueTask {
  readonly place: Place & { readonly host: string; readonly port: number };
  /** The number of the process in the table of what was done. */
  readonly worker: number;
  /** The runs that it creates, by customer. Left out: it executes runs. */
  readonly creates?: readonly string[];
  /** Of each customer. Left out: none. */
  readonly limit?: Omit<NonNullable<AgentOptions["limits"]>[number], "name" | "key">;
  /** How many runs it may be executing. */
  readonly atWork: number;
  /** How long a run works, in milliseconds. */
  readonly work: number;
}

export function connectTo({ host, port }: QueueTask["place"]): pg.Pool {
  return new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });
}
