import { endOf } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { ignore } from "../../core/promises.ts";
import { silentLogger, systemChance } from "../../runtime/log/system.ts";
import type { Connection } from "./connection.ts";
import { clock, timeBy } from "./connection.ts";
import { DeadlineError, isLocked, outcomeOf, storeFailed } from "./errors.ts";
import type { PreparedWrite } from "./writes.ts";
import { withMessages } from "./writes.ts";

/** How many writes share a statement at most, and about how many characters. A write that is larger goes alone. */
const MAX_WRITES = 256;
const MAX_CHARACTERS = 1_048_576;
/** How many more milliseconds a write has for each character above that: it is read on the way by both sides. */
const MS_A_CHARACTER = 1 / 2_048;
/** After an answer a run hands in its next write within so many turns of the event loop: its agent gets a result in a turn of its own. */
const TURNS_TO_FOLLOW = 2;
/** How many rows the counters of an agent have. */
const SHARDS = 16;
/** How long a write waits for a lock, once it is known to lack one. Doubled with each attempt, in milliseconds. */
const FIRST_WAIT_MS = 250;
const LAST_WAIT_MS = 2_000;
/** The share of the time that is left to a write in which it waits for a lock. */
const SHARE_OF_WAIT = 0.8;
/** A write that lacks a lock is not tried again with less time than this, in milliseconds. */
const MIN_LEFT_MS = 100;
/** How often it is tried there at most: longer than the time of its call if each lock is waited for. */
const MAX_TRIES = 8;
/** After which share of the time of a call a batch without an answer does not hold up the next one. */
const OVERDUE = 0.25;
/** The share of the time of a call that a statement may take whose writes hold up others. */
const SHORT = 0.5;
/**
 * For how many times the time of a call creations stay apart. A creation without an answer that returns too early to the first
 * lane holds up the other writes for `OVERDUE` of that time.
 */
const APART = 4;
/** How many statements each of the lanes has at a time that are beside the first one. */
const WIDTH = { second: 1, creations: 2 } as const;
/** Which share of the creations that are apart share a statement: if one of them gets no answer, the statement gets none. */
const SHARE_OF_CREATIONS = 1 / 8;

/** The writes. Without OFFSET the planner would read them as JSON for itself, and copy all of it into the plan. */
const GIVEN = "FROM (SELECT $1::text AS writes OFFSET 0) g";

/** What the database answers to a write: null if it was made. */
export type Answer = unknown;

/** A lane beside the first one. */
type Lane = keyof typeof WIDTH;

interface Job {
  write: PreparedWrite;
  text: string;
  /** Undefined: the first one. */
  lane: Lane | undefined;
  /** Whether a statement of such a lane has it. */
  isUnderWay: boolean;
  /** The run and the session that it changes. Writes to the same ones are made in the order of the calls. */
  readonly keys: readonly string[];
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
  /** How often it was tried in the second lane. From once on it goes alone. */
  tries: number;
  /** When it was last tried there: a number that grows. */
  triedAt: number;
  /** Why it was not made when it was last tried. */
  refusal: unknown;
  /** Its caller has an answer. */
  isOver: boolean;
  /** Until when it has time, by the monotonic clock. */
  readonly until: number;
}

/**
 * Sends the writes of one turn of the event loop together, in the order of the calls. One batch is under way at a time,
 * and what is handed in meanwhile goes with the next one. A batch is one statement, and so one transaction, which waits for no lock.
 *
 * There is a second lane, so that no write holds up those of other runs. It has one statement at a time: a batch that has
 * got no answer for a while, or writes that lack a lock, or ones that were in a statement without an answer. These
 * go alone. While a run has a write there, its later writes go there too.
 *
 * Creations have a lane of their own for some time after one was without an answer for a while: its caller may try again with
 * another run, which no write is known of. There a second statement takes what comes while one gets no answer.
 */
export class Writer {
  readonly #connection: Connection;
  readonly #answers: string;
  readonly #now: () => number | null;
  /** Writes of different processes seldom meet in one row of counters. */
  #shard = Math.floor(systemChance() * SHARDS);
  readonly #queue: Job[] = [];
  #sending: Promise<void> | undefined;
  /** The writes of the other lanes, in the order of the calls. */
  #late: Job[] = [];
  /** The statements of the other lanes that are under way. */
  readonly #underWay = { second: new Set<Promise<void>>(), creations: new Set<Promise<void>>() };
  /** Until when creations have their own lane, by the monotonic clock. */
  #apartUntil = Number.NEGATIVE_INFINITY;
  /** How many writes of the other lanes change a run or a session. */
  readonly #held = new Map<string, number>();
  /** The runs whose writes were in a statement without an answer. */
  readonly #suspects = new Set<string>();
  #attempts = 0;
  #isClosed = false;

  /** `schema`: its name in SQL. `now` gives the time for the statement; null: that of the server. */
  constructor(connection: Connection, schema: string, isFed: boolean, now: () => number | null) {
    this.#connection = connection;
    this.#answers = `${schema}.try_write_v1(g.writes::jsonb, $2::float8, $3::integer, ${isFed}, $4::integer)::text AS answers`;
    this.#now = now;
  }

  /** Resolves with the answer when the transaction has been committed. The deadline counts from this call. */
  write(write: PreparedWrite): Promise<Answer> {
    if (this.#isClosed) return Promise.reject(new CadenzaError("store_failed", "The store is closed."));
    const text = JSON.stringify(write.json);
    let job: Job | undefined;
    const answer = new Promise<Answer>((resolve, reject) => {
      const until = clock.monotonic() + this.#connection.timeoutMs + moreMs(text.length);
      const untried = { lane: undefined, isUnderWay: false, tries: 0, triedAt: 0, refusal: undefined, isOver: false };
      job = { write, text, keys: keysOf(write), resolve, reject, until, ...untried };
      this.#queue.push(job);
      this.#sending ??= endOf(silentLogger, this.#sendAll());
    });
    const late = (): unknown => {
      if (job === undefined) return undefined;
      job.isOver = true;
      return job.refusal === undefined ? undefined : storeFailed(job.refusal);
    };
    return this.#connection.inTime(answer, late, this.#connection.timeoutMs + moreMs(text.length));
  }

  /** Makes a write in a statement of its own, over a connection that carries nothing else. Answers the time of the write. */
  async writeAlone({ json }: PreparedWrite, connection: Connection): Promise<number> {
    const values = [JSON.stringify([json]), this.#now(), this.#shard, LAST_WAIT_MS];
    const [row] = await connection.query(`SELECT ${this.#answers}, ${timeBy("$2")} AS time ${GIVEN}`, values);
    return Number(row?.["time"]);
  }

  /** Sends what is waiting, and accepts no more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#sending;
    const { second, creations } = this.#underWay;
    while (second.size + creations.size > 0) await Promise.all([...second, ...creations]);
  }

  async #sendAll(): Promise<void> {
    try {
      await clock.turn();
      while (this.#queue.length > 0) {
        const batch = this.#nextBatch();
        if (batch.length > 0) await this.#sendOrLeave(batch);
        // The runs of this batch hand in their next writes, which share a statement with the writes that wait already.
        for (let turn = 0; turn < TURNS_TO_FOLLOW && this.#queue.length < MAX_WRITES; turn++) await clock.turn();
      }
    } finally {
      this.#sending = undefined;
    }
  }

  /** The next writes, without those that have to go over another lane. A new lease is there before the runs of its owner. */
  #nextBatch(): readonly Job[] {
    let characters = 0;
    const batch: Job[] = [];
    let count = 0;
    let areApart = clock.monotonic() < this.#apartUntil;
    for (const job of this.#queue) {
      const isSuspect = job.keys.some((key) => this.#suspects.has(key));
      const isHeld = isSuspect || job.keys.some((key) => this.#held.has(key));
      const isLate = isHeld || (areApart && isCreation(job));
      if (job.write.json["kind"] === "lease") areApart = false;
      if (!isLate && !job.isOver) {
        characters += job.text.length;
        if (batch.length > 0 && (batch.length >= MAX_WRITES || characters > MAX_CHARACTERS)) break;
        batch.push(job);
      }
      count += 1;
      if (!isLate || job.isOver) continue;
      if (isSuspect) job.tries = 1;
      this.#putOff(job, isHeld ? "second" : "creations");
    }
    this.#queue.splice(0, count);
    return batch;
  }

  /** Sends a batch, and resolves when the next one may be sent. */
  async #sendOrLeave(batch: readonly Job[]): Promise<void> {
    const { timeoutMs } = this.#connection;
    const sent = this.#send(batch, batch.length > 1 ? SHORT * timeoutMs : timeoutMs);
    let isOverdue = false;
    let clear = ignore;
    const overdue = new Promise<void>((resolve) => {
      clear = clock.setTimeout(() => {
        if (batch.some(isCreation)) this.#setApart();
        isOverdue = this.#underWay.second.size === 0;
        if (isOverdue) resolve();
      }, OVERDUE * timeoutMs);
    });
    await Promise.race([sent, overdue]);
    clear();
    if (!isOverdue) return;
    for (const { keys } of batch) this.#hold(keys);
    this.#occupy("second", async () => {
      await sent;
      for (const { keys } of batch) this.#letGo(keys);
    });
  }

  #setApart(): void {
    this.#apartUntil = clock.monotonic() + APART * this.#connection.timeoutMs;
  }

  /** Occupies a lane with a statement. */
  #occupy(lane: Lane, work: () => Promise<unknown>): void {
    const done = endOf(silentLogger, work()).then(() => {
      this.#underWay[lane].delete(done);
      this.#sendLate("second");
      this.#sendLate("creations");
    });
    this.#underWay[lane].add(done);
  }

  #hold(keys: readonly string[]): void {
    for (const key of keys) this.#held.set(key, (this.#held.get(key) ?? 0) + 1);
  }

  #letGo(keys: readonly string[]): void {
    for (const key of keys) {
      const count = (this.#held.get(key) ?? 1) - 1;
      if (count > 0) this.#held.set(key, count);
      else this.#held.delete(key);
    }
  }

  /** Hands a write to another lane. If it was in one, it keeps its place in the order. */
  #putOff(job: Job, lane: Lane): void {
    if (job.lane === undefined) {
      this.#hold(job.keys);
      this.#late.push(job);
    }
    job.lane = lane;
    this.#sendLate(lane);
  }

  /** Sends what another lane may send now. */
  #sendLate(lane: Lane): void {
    if (this.#underWay[lane].size < WIDTH[lane] && this.#nextLate(lane).length > 0)
      this.#occupy(lane, () => this.#sendOneLate(lane));
  }

  async #sendOneLate(lane: Lane): Promise<void> {
    // What was handed in within this turn goes together.
    await clock.turn();
    const batch = this.#nextLate(lane);
    for (const job of batch) job.isUnderWay = true;
    if (batch.length > 0) await (lane === "second" ? this.#tryLate(batch) : this.#create(batch));
    for (const job of batch) job.isUnderWay = false;
    this.#late = this.#late.filter((job) => {
      const isDone = job.isOver && !job.isUnderWay;
      if (isDone) this.#letGo(job.keys);
      return !isDone;
    });
  }

  async #create(batch: readonly Job[]): Promise<void> {
    const { timeoutMs } = this.#connection;
    const since = clock.monotonic();
    await this.#send(batch, batch.length > 1 ? SHORT * timeoutMs : timeoutMs);
    if (clock.monotonic() - since > OVERDUE * timeoutMs) this.#setApart();
  }

  async #tryLate(batch: readonly Job[]): Promise<void> {
    const tries = Math.max(0, ...batch.map((job) => job.tries));
    // The answer comes before the caller's deadline, and says why the write was not made.
    const leftMs = Math.min(...batch.map(({ until }) => until)) - clock.monotonic();
    const { timeoutMs } = this.#connection;
    const limitMs = this.#late.length > batch.length ? SHORT * timeoutMs : timeoutMs;
    const mostMs = Math.min(SHARE_OF_WAIT * Math.min(leftMs, limitMs), LAST_WAIT_MS);
    const waitMs = Math.ceil(Math.min(FIRST_WAIT_MS * 2 ** Math.max(tries - 1, 0), mostMs));
    await this.#send(batch, limitMs, waitMs);
    const triedAt = ++this.#attempts;
    for (const job of batch) {
      job.tries += 1;
      job.triedAt = triedAt;
    }
  }

  /**
   * What a lane sends next: together all that it has not tried, and else the one that was tried least recently, with those that
   * lack the same lock. None comes before an earlier write to the same run or session.
   */
  #nextLate(lane: Lane): readonly Job[] {
    const before = new Set<string>();
    const fresh: Job[] = [];
    const tried: Job[] = [];
    for (const job of this.#late) {
      if (job.isOver && !job.isUnderWay) continue;
      const isFirst = !job.isUnderWay && job.lane === lane && !job.keys.some((key) => before.has(key));
      if (isFirst && job.tries === 0) {
        fresh.push(job);
        continue;
      }
      if (isFirst) tried.push(job);
      for (const key of job.keys) before.add(key);
    }
    const untried = fitting(fresh);
    if (lane === "creations") return untried.slice(0, Math.ceil(SHARE_OF_CREATIONS * untried.length));
    if (untried.length > 0) return untried;
    tried.sort((a, b) => a.triedAt - b.triedAt);
    const slot = tried[0] && slotOf(tried[0]);
    return slot === undefined ? tried.slice(0, 1) : fitting(tried.filter((job) => slotOf(job) === slot));
  }

  /**
   * Sends a batch, and settles its writes. `waitMs`: it is one of the second lane, and waits so long for each lock. Answers
   * whether the server can be reached.
   */
  async #send(batch: readonly Job[], limitMs: number, waitMs?: number, isAgain = false): Promise<boolean> {
    try {
      const answers = await this.#call(batch, limitMs, waitMs);
      if (Array.isArray(answers)) {
        for (const [index, job] of batch.entries()) {
          if (answers[index] === "busy") this.#putOff(job, "second");
          else this.#settle(job, answers[index]);
        }
        return true;
      }
      // Nothing was written: some of the writes have to bring their messages with them.
      const wanted = bringMessages(batch, (answers as { readonly wanted: readonly number[] }).wanted);
      return await this.#send(wanted, limitMs, waitMs);
    } catch (error) {
      return this.#failed(batch, error, limitMs, waitMs, isAgain);
    }
  }

  async #failed(
    batch: readonly Job[],
    error: unknown,
    limitMs: number,
    waitMs: number | undefined,
    isAgain: boolean,
  ): Promise<boolean> {
    if (isLocked(error)) {
      // Their row of counters may be the one that is locked. There are others.
      this.#shard = (this.#shard + 1) % SHARDS;
      for (const job of batch) job.refusal = error;
      if (waitMs !== undefined) {
        const least = clock.monotonic() + MIN_LEFT_MS;
        this.#reject(
          batch.filter(({ tries, until }) => tries >= MAX_TRIES || until < least),
          error,
        );
        return true;
      }
      // A new run may wait for one that another transaction adds, and so may the next one of its caller.
      const rest = isAgain ? [] : batch.filter((job) => !isCreation(job));
      if (batch.some(isCreation)) this.#setApart();
      for (const job of batch) if (!rest.includes(job)) this.#putOff(job, "second");
      return rest.length === 0 || this.#send(rest, limitMs, waitMs, true);
    }
    const outcome = outcomeOf(error);
    if (batch.length > 1 && (outcome === "statement" || outcome === "retry")) {
      // One write made the statement fail. Each is tried alone, so that the others succeed.
      for (const [index, job] of batch.entries()) {
        if (await this.#send([job], limitMs, waitMs)) continue;
        const untried = new CadenzaError(
          "store_failed",
          "The connection to PostgreSQL failed before the write was sent.",
        );
        this.#reject(batch.slice(index + 1), untried);
        return false;
      }
      return true;
    }
    this.#reject(batch, error);
    if (outcome !== "unknown") return true;
    if (error instanceof DeadlineError) {
      for (const { keys } of batch) if (keys[0] !== undefined) this.#suspects.add(keys[0]);
      return false;
    }
    // While the server does not answer, no call waits for longer than its own deadline.
    this.#reject(this.#queue.splice(0), error);
    return false;
  }

  async #call(batch: readonly Job[], limitMs: number, waitMs: number | undefined): Promise<unknown> {
    for (const job of batch) job.refusal = undefined;
    const writes = `[${batch.map(({ text }) => text).join(",")}]`;
    const values = [writes, this.#now(), this.#shard, waitMs ?? null];
    const [row] = await this.#connection.attempt(
      `SELECT ${this.#answers} ${GIVEN}`,
      values,
      limitMs + moreMs(writes.length),
    );
    return JSON.parse(String(row?.["answers"]));
  }

  #settle(job: Job, answer: Answer): void {
    job.isOver = true;
    if (job.keys[0] !== undefined) this.#suspects.delete(job.keys[0]);
    job.resolve(answer);
  }

  #reject(jobs: readonly Job[], error: unknown): void {
    const failure = storeFailed(error);
    for (const job of jobs) {
      job.isOver = true;
      job.reject(failure);
    }
  }
}

function isCreation({ write }: Job): boolean {
  return write.json["kind"] === "create";
}

/** As many of the writes as share a statement. */
function fitting(jobs: readonly Job[]): readonly Job[] {
  let characters = 0;
  const end = jobs.findIndex(({ text }, index) => {
    characters += text.length;
    return index > 0 && (index >= MAX_WRITES || characters > MAX_CHARACTERS);
  });
  return end === -1 ? jobs : jobs.slice(0, end);
}

/** The slot whose lock is all that a creation can lack. */
function slotOf({ keys, write: { json } }: Job): string | undefined {
  const needsOthers = json["kind"] !== "create" || keys.length > 1 || json["idempotency_key"] !== null;
  return needsOthers || json["slot"] === "" ? undefined : String(json["slot"]);
}

function moreMs(characters: number): number {
  return Math.max(0, characters - MAX_CHARACTERS) * MS_A_CHARACTER;
}

/** The run of a write comes first. A lease has no keys. */
function keysOf({ json }: PreparedWrite): readonly string[] {
  const { tenant, run_id, session } = json;
  const session_id = (session as { readonly session_id?: unknown } | undefined)?.session_id;
  const keys = run_id === undefined ? [] : [`run ${tenant} ${run_id}`];
  if (session_id !== undefined) keys.push(`session ${tenant} ${session_id}`);
  return keys;
}

/** The batch, in which the wanted writes bring their messages. Those whose messages cannot be had fail. */
function bringMessages(batch: readonly Job[], wanted: readonly number[]): readonly Job[] {
  const wantedOnes = new Set(wanted);
  return batch.flatMap((job, index) => {
    if (!wantedOnes.has(index)) return [job];
    try {
      const write = withMessages(job.write);
      return [Object.assign(job, { write, text: JSON.stringify(write.json) })];
    } catch (error) {
      job.isOver = true;
      job.reject(error);
      return [];
    }
  });
}
