import { evolve } from "../core/evolve.ts";
import { messageOf } from "../core/failure.ts";
import type { CreatedEntry, Entry, StepEntry, TakenEntry } from "../core/log.ts";
import { isWait } from "../core/operation-keys.ts";
import { initialState } from "../core/state.ts";
import type { Cassette } from "../durable/replay/cassette.ts";
import type { Run } from "../protocol/run.ts";
import type { Agent, AgentFunction } from "../runtime/agent/agent.ts";
import { checkObject } from "../runtime/agent/check.ts";
import type { Difference } from "./comparison.ts";
import { comparable, describeDifference, describeEntry, emittedBy, essence, sameEntry } from "./comparison.ts";
import { DriveError } from "./drive-error.ts";
import type { DriveOptions } from "./drive-options.ts";
import { readAgent, readDriveOptions } from "./drive-options.ts";
import type { Operation } from "./operation.ts";
import { RecordedResults } from "./recorded-results.ts";
import { Stage } from "./stage.ts";
import type { Recorded } from "./staged-context.ts";
import { describeWaiting } from "./waiting.ts";

/** How a cassette is replayed. Stand-ins take precedence over the cassette. */
export type ReplayOptions = Pick<DriveOptions, "steps" | "agents" | "strict" | "patienceMs">;

/** The agent does not match its cassette. The message shows the first difference. */
export class CassetteMismatch extends Error {
  override readonly name = "CassetteMismatch";
  readonly difference: Difference;

  constructor(message: string, difference: Difference) {
    super(message);
    this.difference = difference;
  }
}

/**
 * Runs the agent against a cassette: the same input, the same answers and messages at the same places, and the recorded
 * results for its steps and sub-runs. Time passes on a fake clock. Returns the run if the agent does the same as in the
 * cassette. Else throws a {@link CassetteMismatch} with the first difference.
 *
 * @example
 * ```ts
 * import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
 * import { record, replay } from "cadenza/testing";
 *
 * const greeter = defineAgent("greeter", async (_input, { ask }) => ask("Who are you?"));
 * const store = new MemoryStore();
 * const runtime = new AgentRuntime({ store }).register(greeter);
 * const { run_id } = await runtime.createRun({ agent_name: "greeter", input: "Hi" });
 * const run = await runtime.resume({ run_id, await_resume: { name: "Ada" } });
 * const cassette = await record(store, run); // in production
 * console.log((await replay(greeter, cassette)).status); // → completed
 * ```
 */
export async function replay(
  agent: Agent | AgentFunction,
  cassette: Cassette,
  options: ReplayOptions = {},
): Promise<Run> {
  return new Replay(readAgent(agent), readCassette(cassette), options).run();
}

class Replay {
  readonly #cassette: Cassette;
  /** The entries that are compared. */
  readonly #compared: ReadonlySet<Entry>;
  readonly #stage: Stage;
  readonly #results: RecordedResults;
  /** An operation that the cassette does not hold. */
  #unknown: Operation | undefined;
  /** The last entry that was compared, and how many there were. */
  #last: Entry | undefined;
  #count = 0;

  constructor(agent: Agent, cassette: Cassette, options: ReplayOptions) {
    const created = createdOf(cassette);
    this.#cassette = cassette;
    this.#compared = new Set(comparable(cassette.entries).map(({ entry }) => entry));
    this.#results = new RecordedResults(cassette);
    const settings = readDriveOptions({
      ...options,
      principal: created.principal ?? null,
      metadata: created.metadata,
      labels: created.labels,
      now: created.at,
      timeoutMs: timeoutOf(cassette, created),
      budget: created.budget && { totalTokens: created.budget.total_tokens },
      session: sessionOf(cassette, created),
    });
    this.#stage = new Stage(agent, created.input, settings, {
      firstId: cassette.run_id,
      recorded: (operation) => this.#recorded(operation),
      patched: (id, runId) => runId !== cassette.run_id || this.#hasPatch(id),
      // An agent that goes on after a wait is held, since something from outside may come next.
      holdsAt: (entry) => isEndOfWait(entry) || (entry.type === "intent" && isWait(entry)),
    });
  }

  /** Goes through the log: what came from outside is brought about, and what the agent did is compared. */
  async run(): Promise<Run> {
    await this.#stage.begin();
    const state = initialState(this.#cassette.run_id);
    for (const [index, entry] of this.#cassette.entries.entries()) {
      const number = index + 1;
      if (!evolve(state, entry).last_counts) continue;
      await this.#keepTime(entry);
      await this.#bringAbout(entry, number);
      if (!this.#compared.has(entry)) continue;
      await this.#waitFor(() => this.#next !== undefined || this.#unknown !== undefined, this.#endOf(entry));
      const received = this.#next;
      if (received === undefined || !sameEntry(entry, received)) throw this.#mismatch(number, entry, received);
      this.#last = entry;
      this.#count += 1;
    }
    const unused = this.#results.unused;
    if (unused !== undefined && this.#stage.isOver) throw this.#unasked(unused);
    return this.#stage.run as Run;
  }

  /** Repeats an entry that came from outside: an answer, a message, a result, a cancel, or a deadline. */
  async #bringAbout(entry: Entry, number: number): Promise<void> {
    const stage = this.#stage;
    try {
      if (entry.type === "resumed") {
        await stage.reply({ await_resume: entry.answer }, entry.await_id, entry.by ?? null);
      } else if (entry.type === "declined") {
        await stage.reply({ decline: entry.decline }, entry.await_id, entry.by ?? null);
      } else if (entry.type === "received") {
        await stage.send(entry.name, entry.data, entry.by ?? null);
      } else if (entry.type === "step") {
        this.#results.release(entry.key);
      } else if (entry.type === "intent" && isWait(entry)) {
        // An agent that finds its message there does not wait.
        await this.#waitFor(() => this.#hasBegun(entry.key), entry.at);
      } else if (entry.type === "cancel-requested") {
        await stage.cancel();
      } else if (entry.type === "exceeded") {
        // What steps and sub-runs use is not reported again. It counts when the agent has begun them.
        stage.gate.open();
        await stage.until(() => false, { patienceMs: 0 });
        const usage = stage.cast.lead?.usage;
        if (stage.state?.overdue === null) usage?.add({ totalTokens: usage.remaining + 1 });
      } else if (entry.type === "timed-out") {
        // The agent goes on until its deadline stops it.
        stage.gate.open();
        await stage.until(() => false, { patienceMs: 0 });
        const { nextDue } = stage.clock;
        if (nextDue !== undefined) await stage.clock.set(nextDue);
      }
    } catch (error) {
      throw this.#mismatch(number, entry, this.#next, messageOf(error));
    }
  }

  /**
   * Lets the agent go on until a goal, and the clock up to a time. If the agent does nothing more, it gets the results
   * that come later in the cassette: it may have changed their order.
   */
  async #waitFor(goal: () => boolean, until: number): Promise<void> {
    const stage = this.#stage;
    do {
      stage.gate.open();
      if (await stage.until(goal, { patienceMs: 0, until })) return;
    } while (!stage.gate.isOpen || this.#results.releaseNext());
    await stage.until(goal, { patienceMs: stage.settings.patienceMs, until });
  }

  #hasBegun(key: string): boolean {
    const { run_id } = this.#cassette;
    return this.#stage.cast.operations.some((operation) => operation.run_id === run_id && operation.key === key);
  }

  /** Up to when the clock may move for an entry. A wait may last longer than in the cassette. */
  #endOf(entry: Entry): number {
    const wait = isEndOfWait(entry) ? this.#stage.state?.waits?.get(entry.key) : undefined;
    return Math.max(entry.at, wait?.until ?? 0);
  }

  /** Moves the clock to the time of an entry, as long as nothing falls due by that. */
  async #keepTime({ at }: Entry): Promise<void> {
    const { clock } = this.#stage;
    if (at > clock.now() && (clock.nextDue === undefined || clock.nextDue > at)) await clock.set(at);
  }

  /** What the agent has done next; undefined if it has done nothing more. */
  get #next(): Entry | undefined {
    return comparable(this.#stage.view?.entries ?? [])[this.#count]?.entry;
  }

  /** Whether the cassette has the patch, or has nothing that the agent has not done. */
  #hasPatch(id: string): boolean {
    if (this.#cassette.entries.some((entry) => entry.type === "patched" && entry.id === id)) return true;
    const done = comparable(this.#stage.view?.entries ?? []).length;
    return done >= this.#compared.size && this.#results.unused === undefined;
  }

  #recorded(operation: Operation): Recorded | undefined {
    if (operation.run_id !== this.#cassette.run_id) return undefined;
    const result = this.#results.take(operation.key);
    if (result !== undefined) return { result, emitted: emittedBy(operation.key, this.#cassette.entries) };
    if (!this.#cassette.complete) return undefined;
    this.#unknown ??= operation;
    throw new DriveError(`The cassette does not hold ${operation.key}.`);
  }

  #mismatch(number: number, entry: Entry, received: Entry | undefined, reason?: string): CassetteMismatch {
    const difference: Difference = {
      entry: number,
      expected: essence(entry),
      received: received === undefined ? undefined : essence(received),
    };
    const unknown = this.#unknown;
    const before = this.#last;
    const lines = [
      `${JSON.stringify(this.#stage.agent.name)} does not match its cassette any more. ` +
        `Entry ${number} of ${this.#cassette.entries.length} is the first mismatch: - cassette, + agent`,
      "",
      describeDifference(difference),
      "",
      before === undefined
        ? "It is the first entry that is compared."
        : `The entries before it match, up to: ${describeEntry(before)}.`,
    ];
    if (unknown !== undefined) lines.push(`The agent uses ${unknown.key}, which the cassette does not hold.`);
    else if (received === undefined && !this.#stage.isOver) lines.push(describeWaiting(this.#stage));
    if (reason !== undefined) lines.push(reason);
    const cause = this.#stage.cast.conduct.thrown?.error;
    if (cause !== undefined) lines.push(`The agent threw: ${String(cause)}`);
    return new CassetteMismatch(lines.join("\n"), difference);
  }

  #unasked(key: string): CassetteMismatch {
    const index = this.#cassette.entries.findIndex((entry) => entry.type === "step" && entry.key === key);
    const number = index < 0 ? this.#cassette.entries.length : index + 1;
    const message = `${JSON.stringify(this.#stage.agent.name)} does not use ${key} any more, which its cassette holds.`;
    return new CassetteMismatch(message, { entry: number, expected: { step: key }, received: undefined });
  }
}

/** The entries that hold the end of a wait. Those of steps do, too: an agent under test leaves none in its log. */
function isEndOfWait(entry: Entry): entry is StepEntry | TakenEntry {
  return entry.type === "step" || entry.type === "taken";
}

function readCassette(cassette: unknown): Cassette {
  checkObject("cassette", cassette);
  if ((cassette as Partial<Cassette>).cassette !== 1)
    throw new DriveError("cassette: expected the result of record(…), or the same read from JSON.");
  return cassette as Cassette;
}

function createdOf({ entries: [first] }: Cassette): CreatedEntry {
  if (first?.type !== "created")
    throw new DriveError("cassette: expected `created` as the first entry. Record the run again.");
  return first;
}

/** The time of a cassette passes also where its run was not active. Only a run that was stopped for its time has a limit. */
function timeoutOf({ entries }: Cassette, { timeout_ms }: CreatedEntry): number | undefined {
  const isOver = entries.some((entry) => entry.type === "timed-out" && entry.await_id === null);
  return isOver ? (timeout_ms ?? undefined) : Number.POSITIVE_INFINITY;
}

function sessionOf({ run_id, history, state }: Cassette, { session_id }: CreatedEntry): DriveOptions["session"] {
  return session_id === run_id ? undefined : { id: session_id, history, state };
}
