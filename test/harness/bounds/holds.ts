import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { AgentRuntime } from "cadenza";
import { CadenzaError } from "cadenza";
import type pg from "pg";
import type { Load } from "./load.ts";

/*
 * What may hold up a write on a PostgreSQL server, and a run that needs it.
 */

const RETRY_MS = 50;
/** The key of the lock for which a trigger waits, and of the one by which another one knows that it has to sleep. */
const WAITED_FOR = 4_711;
const ASLEEP = 4_712;

/** Something that does not move for a while. */
export interface Hold {
  readonly name: string;
  /** Resolves when the hold may begin. */
  readonly prepare?: (victims: Victims) => Promise<unknown>;
  /** Holds until the connection rolls back and unlocks all. `schema`: its name in SQL. */
  readonly sql: (schema: string) => string;
  /** A run that is held up. Resolves when it has ended. Undefined: those of `prepare` are. */
  readonly victim?: (victims: Victims) => Promise<unknown>;
  /** The process finds another way: no run is held up. */
  readonly isAvoided?: true;
}

const session = randomUUID();
const newSession = randomUUID();
const ofVictims = (column: string) => `agent_name IN ('steady', 'ends', 'limited') AND ${column}`;

export const holds: readonly Hold[] = [
  {
    name: "the rows of three runs",
    prepare: async (victims) => {
      for (let n = 0; n < 3; n++) await victims.begin("steady");
    },
    sql: (schema) => `SELECT 1 FROM ${schema}.runs WHERE ${ofVictims("finished_at IS NULL")} FOR UPDATE`,
  },
  {
    name: "the row of a session",
    prepare: (victims) => victims.end("ends", { session_id: session }),
    sql: (schema) => `SELECT 1 FROM ${schema}.sessions WHERE session_id = '${session}' FOR UPDATE`,
    victim: (victims) => victims.end("ends", { session_id: session }),
  },
  {
    name: "the lock of a session that is being made",
    sql: (schema) => `SELECT pg_advisory_lock(${schema}.session_lock_v1('', '${newSession}'))`,
    victim: (victims) => victims.end("ends", { session_id: newSession }),
  },
  // A batch needs it if it has several keys, and a write that goes alone does not.
  {
    name: "the lock of an idempotency key",
    sql: (schema) => `SELECT pg_advisory_lock(hashtextextended('${schema.replaceAll("'", "''")} key  held', 0))`,
    victim: (victims) => victims.end("ends", {}, "held"),
    isAvoided: true,
  },
  {
    name: "the lock of a slot",
    prepare: (victims) => victims.end("limited"),
    sql: (schema) =>
      `SELECT pg_advisory_lock(${schema}.slot_lock_v1(r.slot)) FROM
       (SELECT DISTINCT slot FROM ${schema}.runs WHERE agent_name = 'limited') r`,
    victim: (victims) => victims.end("limited"),
  },
  {
    name: "the counters of an agent",
    prepare: (victims) => victims.end("ends"),
    sql: (schema) => `SELECT 1 FROM ${schema}.counters WHERE agent_name = 'ends' FOR UPDATE`,
    victim: (victims) => victims.end("ends"),
    isAvoided: true,
  },
  {
    name: "a lock that a trigger needs",
    sql: () => `SELECT pg_advisory_lock(${WAITED_FOR})`,
    victim: (victims) => victims.end("ends", { input: "wait for the lock" }),
  },
  {
    name: "a statement that does not end",
    sql: () => `SELECT pg_advisory_lock(${ASLEEP})`,
    victim: (victims) => victims.end("tells", { input: "sleep-at-the-server" }),
  },
  // Each attempt of its caller is another run.
  {
    name: "the creation of a run that does not end",
    sql: () => `SELECT pg_advisory_lock(${ASLEEP})`,
    victim: (victims) => victims.end("ends", { input: "sleep at the server" }),
  },
];

/**
 * A trigger that waits for a lock, and one that sleeps while another transaction has a lock: for the entries of some runs. A
 * third one notes each run that is taken over.
 */
export function triggers(schema: string): string {
  return `CREATE FUNCTION ${schema}.wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared(${WAITED_FOR}); RETURN NEW; END $$;
  CREATE TRIGGER wait_for_lock BEFORE INSERT ON ${schema}.entries FOR EACH ROW
    WHEN (NEW.lines LIKE '%wait for the lock%') EXECUTE FUNCTION ${schema}.wait_for_lock();
  CREATE FUNCTION ${schema}.sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(${ASLEEP}) THEN PERFORM pg_sleep(3600); END IF; RETURN NEW; END $$;
  CREATE TRIGGER sleep BEFORE INSERT ON ${schema}.entries FOR EACH ROW
    WHEN (NEW.lines LIKE '%sleep at the server%') EXECUTE FUNCTION ${schema}.sleep();
  CREATE TABLE ${schema}.takeovers (run_id text);
  CREATE FUNCTION ${schema}.note_takeover() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO ${schema}.takeovers VALUES (NEW.run_id); RETURN NULL; END $$;
  CREATE TRIGGER note_takeover AFTER UPDATE ON ${schema}.runs FOR EACH ROW
    WHEN (NEW.takeovers > OLD.takeovers) EXECUTE FUNCTION ${schema}.note_takeover();`;
}

/** The runs that are held up. */
export class Victims {
  readonly #runtime: AgentRuntime;
  readonly #load: Load;
  readonly #ends = new Set<Promise<unknown>>();
  /** Whether runs that have begun go on. */
  isHeld = false;

  constructor(runtime: AgentRuntime, load: Load) {
    this.#runtime = runtime;
    this.#load = load;
  }

  register(runtime: AgentRuntime): void {
    runtime.register("steady", { durable: true }, async (_input, { step, run_id }) => {
      for (let n = 0; this.isHeld; n++) await step(`step ${n}`, () => this.#load.body(`${run_id} ${n}`));
      return "done";
    });
    const end = { durable: true } as const;
    runtime.register("ends", end, async (input, { step, run_id }) => {
      await step("one", () => this.#load.body(`${run_id} 0`));
      await step("two", () => this.#load.body(`${run_id} 1`));
      return input;
    });
    runtime.register("tells", end, async (input, { step, run_id }) => {
      await step("one", () => this.#load.body(`${run_id} 0`));
      await step("two", () => (input[0]?.parts[0]?.content ?? "").replaceAll("-", " "));
      return "done";
    });
    runtime.register("limited", { ...end, concurrency: { max: 2 } }, async (_input, { step, run_id }) => {
      await step("one", () => this.#load.body(`${run_id} 0`));
      return "done";
    });
  }

  /** Begins a run that goes on until nothing is held up any more. */
  async begin(agent_name: string): Promise<void> {
    const { run_id } = await this.#runtime.createRun({ agent_name, input: "", mode: "async" });
    const read = async (): Promise<void> => {
      for await (const event of this.#runtime.events(run_id, { until: "end" }))
        if (event.type === "run.failed") throw new Error(`A run that was held up has failed: ${JSON.stringify(event)}`);
    };
    this.#ends.add(read());
  }

  /** Creates a run, again and again until it is accepted, and resolves when it has ended. */
  async end(
    agent_name: string,
    request: { readonly session_id?: string; readonly input?: string } = {},
    idempotencyKey?: string,
  ): Promise<void> {
    for (;;) {
      try {
        const asked = { agent_name, input: "", ...request };
        const { status, error } = await this.#runtime.createRun(asked, { idempotencyKey });
        if (status !== "completed") throw new Error(`A run that was held up is ${status}: ${error?.message}`);
        return;
      } catch (error) {
        if (!CadenzaError.is(error) || error.code !== "store_failed") throw error;
        await pause(RETRY_MS);
      }
    }
  }

  /** Resolves when all runs have ended that were begun. */
  async ended(): Promise<void> {
    await Promise.all(this.#ends);
    this.#ends.clear();
  }
}

/** Holds for a while, and calls back when it does. Resolves when it has let go. */
export async function holdFor(locker: pg.PoolClient, sql: string, ms: number, onHeld: () => void): Promise<void> {
  await locker.query("BEGIN");
  await locker.query(sql);
  onHeld();
  await pause(ms);
  await locker.query("ROLLBACK");
  await locker.query("SELECT pg_advisory_unlock_all()");
}
