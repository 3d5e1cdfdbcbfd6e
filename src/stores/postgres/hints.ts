import { containedLogger, inBackground, listen } from "../../core/background.ts";
import type { Clock, Logger, RunKey, StoreHint } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import { machineClock, silentLogger, systemIds } from "../../runtime/log/system.ts";
import type { Connection } from "./connection.ts";
import { keep, lend } from "./connection.ts";
import type { PostgresPool } from "./options.ts";

/*
 * Hints. A transaction that notifies takes a lock of the whole database while it commits, so no write does. What has
 * been written is gathered for a moment, and told in a statement of its own. A hint may be lost: processes also poll.
 */

/** For how long runs are gathered, in milliseconds. */
const GATHER_MS = 10;
/** The longest payload of a notification is 8,000 bytes. */
const MAX_BYTES = 7_800;
/** How long a notification of the self-test may take. */
const TEST_MS = 2_000;
/** How often the connection that listens is asked whether it lives, and how long it waits for the answer. */
const PULSE_MS = 10_000;
/** The pause before a lost connection is replaced. */
const RECONNECT_MS = 1_000;

type Callback = (hint: StoreHint) => void;

/** What a notification says: who has sent it, which runs have moved, whether one is due, and what else has happened. */
interface Told {
  readonly from: string;
  readonly moved: readonly (readonly [tenant: string, run_id: string])[];
  readonly due: boolean;
  /** How many of `moved`, from the first on, are due. Left out: the due ones are not named. */
  readonly named?: number;
  readonly fed?: true;
  readonly permits?: true;
}

/** Tells other processes what this one has written, and hears what they have. */
export class Hints {
  readonly #connection: Connection;
  readonly #pool: PostgresPool;
  readonly #channel: string;
  readonly #logger: Logger;
  readonly #clock: Clock;
  readonly #name = systemIds.token();
  readonly #callbacks = new Set<{ readonly call: Callback }>();
  /** The runs that have moved, and whether each is due. */
  #moved = new Map<string, boolean>();
  #isDue = false;
  #isFed = false;
  #hasPermits = false;
  #cancelTelling: (() => void) | undefined;
  /** While a notification is under way. What is noted meanwhile goes with the next one: hints take one connection. */
  #isTelling = false;
  #cancelReconnecting: (() => void) | undefined;
  #stopListening: (() => void) | undefined;
  /** Raised with each start and stop, so that a connection that arrives too late is given back. */
  #round = 0;
  #isOn = false;
  #isClosed = false;

  constructor(connection: Connection, pool: PostgresPool, channel: string, logger: Logger | undefined) {
    this.#connection = connection;
    this.#pool = pool;
    this.#channel = channel;
    this.#logger = logger === undefined ? silentLogger : containedLogger(logger);
    this.#clock = machineClock(this.#logger);
  }

  /** Whether a notification of this process reaches it. Behind a transaction pooler it does not. */
  async arrive(): Promise<boolean> {
    if (this.#pool.connect === undefined) return false;
    let heard: (isHeard: boolean) => void = ignore;
    const answer = new Promise<boolean>((resolve) => {
      heard = resolve;
    });
    const cancel = this.#clock.setTimeout(() => heard(false), TEST_MS);
    // A pooler may bring what another process tells, on a connection that it has lent to both.
    const listening = this.#listen(({ from }) => from === this.#name && heard(true), ignore);
    const stop = await this.#connection
      .inTime(listening, () =>
        inBackground(
          this.#logger,
          listening.then((late) => late(), ignore),
        ),
      )
      .catch(() => undefined);
    try {
      if (stop === undefined) return false;
      await this.#notify({ from: this.#name, moved: [], due: false });
      return await answer;
    } finally {
      cancel();
      stop?.();
    }
  }

  /** Notes a run that has been written, and tells of it soon. */
  note(key: RunKey | undefined, isDue: boolean, isFed = false): void {
    if (key === undefined) this.#isDue ||= isDue;
    else this.#moved.set(JSON.stringify([key.tenant, key.run_id]), isDue);
    this.#isFed ||= isFed;
    this.#tellSoon();
  }

  /** Notes that owners were given permits of limits of steps, and tells of it soon. */
  notePermits(): void {
    this.#hasPermits = true;
    this.#tellSoon();
  }

  #tellSoon(): void {
    if (this.#isTelling || this.#isClosed) return;
    this.#cancelTelling ??= this.#clock.setTimeout(() => inBackground(this.#logger, this.#tell()), GATHER_MS);
  }

  /**
   * Calls back with what other processes tell. The first call begins to listen on a connection, which stays: it would be
   * too late to begin when a reader comes.
   */
  watch(call: Callback): () => void {
    const entry = { call };
    this.#callbacks.add(entry);
    if (!this.#isOn) this.#start();
    return () => {
      this.#callbacks.delete(entry);
    };
  }

  close(): void {
    this.#isClosed = true;
    this.#callbacks.clear();
    this.#cancelTelling?.();
    this.#stop();
  }

  async #tell(): Promise<void> {
    this.#cancelTelling = undefined;
    this.#isTelling = true;
    const due = [...this.#moved].filter(([, isDue]) => isDue).map(([key]) => key);
    const moved = [...new Set([...due, ...this.#moved.keys()])];
    let isDue = this.#isDue;
    let fed = this.#isFed;
    let permits = this.#hasPermits;
    this.#moved = new Map();
    this.#isDue = false;
    this.#isFed = false;
    this.#hasPermits = false;
    do {
      let bytes = 0;
      const tooMany = moved.findIndex((key) => {
        bytes += new TextEncoder().encode(key).length + 1;
        return bytes > MAX_BYTES - 100;
      });
      // A key that is too long for any payload is found by polling.
      const some = moved.splice(0, tooMany === -1 ? moved.length : Math.max(tooMany, 1));
      if (tooMany === 0) continue;
      const named = due.splice(0, some.length).length;
      const told = {
        from: this.#name,
        moved: some.map((key) => JSON.parse(key) as [string, string]),
        due: isDue || named > 0,
        ...(!isDue && { named }),
        ...(fed && { fed }),
        ...(permits && { permits }),
      };
      // A hint that does not arrive is replaced by the next poll.
      await this.#notify(told).catch(ignore);
      isDue = false;
      fed = false;
      permits = false;
    } while (moved.length > 0 && !this.#isClosed);
    this.#isTelling = false;
    if (this.#moved.size > 0 || this.#isDue || this.#isFed || this.#hasPermits) this.#tellSoon();
  }

  async #notify(told: Told): Promise<void> {
    await this.#connection.query("SELECT pg_notify($1::text, $2::text)", [this.#channel, JSON.stringify(told)]);
  }

  #start(): void {
    this.#isOn = true;
    const round = ++this.#round;
    const listening = this.#listen(
      (told) => this.#heard(told),
      () => this.#lost(round),
    ).then(
      (stop) => {
        if (round === this.#round) this.#stopListening = stop;
        else stop();
      },
      () => this.#lost(round),
    );
    inBackground(this.#logger, listening);
  }

  #stop(): void {
    this.#round += 1;
    this.#cancelReconnecting?.();
    this.#stopListening?.();
    this.#stopListening = undefined;
  }

  #lost(round: number): void {
    if (round !== this.#round || this.#isClosed) return;
    this.#stop();
    this.#logger.warn("The connection that listens for hints was lost.", { channel: this.#channel });
    const again = this.#round;
    this.#cancelReconnecting = this.#clock.setTimeout(() => {
      if (again !== this.#round) return;
      this.#start();
      // What was told in between is not repeated.
      this.#call({ due: true, fed: true, permits: true });
    }, RECONNECT_MS);
  }

  #heard({ from, moved, due, named = 0, fed, permits }: Told): void {
    if (from === this.#name) return;
    const keys = moved.map(([tenant, run_id]) => ({ tenant, run_id }));
    if (due) this.#call({ moved: keys.slice(0, named), due });
    this.#call({ moved: keys.slice(named), fed, permits });
  }

  #call(hint: StoreHint): void {
    for (const { call } of this.#callbacks) {
      try {
        call(hint);
      } catch {
        // What a callback throws is lost.
      }
    }
  }

  /** Listens on a connection of its own, until the returned function is called or the connection is lost. */
  async #listen(heard: (told: Told) => void, lost: () => void): Promise<() => void> {
    const client = await lend(this.#pool);
    const letGo = keep(this.#pool);
    let cancelPulse: (() => void) | undefined;
    let isOver = false;
    const stop = (): void => {
      if (isOver) return;
      isOver = true;
      letGo();
      cancelPulse?.();
      for (const stopListening of listeners) stopListening();
      // A listener stays one until its connection ends.
      client.on("error", ignore);
      client.release(true);
    };
    const onLost = (): void => {
      if (isOver) return;
      stop();
      lost();
    };
    const onNotification = (notification: unknown): void => {
      const { channel, payload } = notification as { readonly channel: string; readonly payload?: string };
      const told = channel === this.#channel ? toldIn(payload ?? "") : undefined;
      if (told !== undefined) heard(told);
    };
    const beat = (): void => {
      const cancel = this.#clock.setTimeout(onLost, PULSE_MS);
      cancelPulse = cancel;
      const answered = client.query("SELECT 1", []).then(
        () => {
          cancel();
          if (!isOver) cancelPulse = this.#clock.setTimeout(beat, PULSE_MS);
        },
        () => {
          cancel();
          onLost();
        },
      );
      inBackground(this.#logger, answered);
    };
    const listeners = [
      listen(this.#logger, client, "error", onLost),
      listen(this.#logger, client, "end", onLost),
      listen(this.#logger, client, "notification", onNotification),
    ];
    try {
      await this.#connection.inTime(client.query(`LISTEN "${this.#channel.replaceAll('"', '""')}"`, []));
    } catch (error) {
      stop();
      throw error;
    }
    cancelPulse = this.#clock.setTimeout(beat, PULSE_MS);
    return stop;
  }
}

/** Undefined for what another program has sent. */
function toldIn(payload: string): Told | undefined {
  try {
    const told = JSON.parse(payload) as Partial<Told> | null;
    return typeof told?.from === "string" && Array.isArray(told.moved) ? (told as Told) : undefined;
  } catch {
    return undefined;
  }
}
