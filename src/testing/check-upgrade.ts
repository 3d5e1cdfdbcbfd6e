import { CadenzaError } from "../core/errors.ts";
import { foldEntries } from "../core/evolve.ts";
import { newerPart } from "../core/format.ts";
import { LOCAL } from "../core/head.ts";
import type { CreatedEntry, Entry } from "../core/log.ts";
import { matchingCode } from "../core/matching-code.ts";
import type { Clock, FoundRun, RunHead, RunKey, Store } from "../core/ports.ts";
import { isFinal } from "../core/state.ts";
import type { SurveyPage } from "../core/survey.ts";
import type { Cassette } from "../durable/replay/cassette.ts";
import type { PlaceOf } from "../durable/replay/dry-replay.ts";
import { DryReplay } from "../durable/replay/dry-replay.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import { badArgument, checkAmount, checkCount, checkFunction, checkKeys, checkObject } from "../runtime/agent/check.ts";
import type { Interceptors } from "../runtime/agent/interceptors.ts";
import type { Inside } from "../runtime/api/inside.ts";
import { insideKey } from "../runtime/api/inside.ts";
import { readGeneration } from "../runtime/log/fold-log.ts";
import { guarded } from "../runtime/log/store-failures.ts";
import { machineClock, silentLogger } from "../runtime/log/system.ts";
import { callersOf, userPlaceOf } from "./stack.ts";

/** What to check. */
export interface CheckOptions {
  /**
   * The new code: agents, or a runtime that has them registered. The `run` of a runtime's interceptors is called, as in each
   * replay.
   */
  readonly agents: readonly Agent[] | { readonly [insideKey]: Inside };
  /** Whose open runs are replayed. It may be one that was opened with `readOnly`. */
  readonly store?: Store | undefined;
  /** Recorded runs, instead of a store or in addition to one. The end of a run that has ended is not compared. */
  readonly cassettes?: readonly Cassette[] | undefined;
  /**
   * How long code may take to the next operation of a history, in milliseconds. Default: 5,000, which is what a process
   * gives it.
   */
  readonly patienceMs?: number | undefined;
  /** Called when work on a run begins, and when it is over. */
  readonly onRun?: ((run: RunKey, is: "begun" | "over") => void) | undefined;
  /** The runs to leave out, by their ids: those on which an earlier check got stuck. */
  readonly without?: readonly string[] | undefined;
  /** How many runs are replayed side by side. Default: 16. Those that only wait for their code do not count. */
  readonly atOnce?: number | undefined;
}

/** A run that would be blocked. */
export interface BlockedByUpgrade {
  readonly tenant: string;
  readonly run_id: string;
  readonly agent_name: string;
  readonly version: string | null;
  /** How many entries of its log match. */
  readonly position: number;
  /** What the history holds next, and what the code did instead. */
  readonly expected: string;
  readonly asked: string;
  /** The line of the code, as `file:line:column`; null where no call of the context tells it. */
  readonly at: string | null;
  /** What to do. */
  readonly help: string;
}

/** The runs of an agent and a version. */
export interface CheckedVersion {
  readonly agent_name: string;
  readonly version: string | null;
  /** How many open runs there are, and how many of them go on with the code, or would be blocked. */
  readonly runs: number;
  readonly goOn: number;
  readonly blocked: number;
  /** Whether there is code for them. */
  readonly hasCode: boolean;
}

/** Runs that were not replayed. */
export interface LeftOut {
  readonly tenant: string;
  readonly run_id: string;
  readonly why: string;
}

/** The runs of a page are replayed side by side. */
const PAGE = 100;
const AT_ONCE = 16;
/** So many more may wait for their code to go on. */
const QUIET_AT_ONCE = 1_000;
const OPEN: readonly RunStatus[] = ["created", "in-progress", "awaiting", "cancelling"];
const PATIENCE_MS = 5_000;

/** What `checkUpgrade` has found. As text it is the message of a failing test, which names one of the runs that are blocked alike. */
export class UpgradeCheck {
  readonly versions: readonly CheckedVersion[];
  readonly blocked: readonly BlockedByUpgrade[];
  readonly leftOut: readonly LeftOut[];

  constructor(versions: readonly CheckedVersion[], blocked: readonly BlockedByUpgrade[], leftOut: readonly LeftOut[]) {
    this.versions = versions;
    this.blocked = blocked;
    this.leftOut = leftOut;
  }

  /** Whether no run would be blocked. Runs without code are not: they wait. */
  get ok(): boolean {
    return this.blocked.length === 0;
  }

  /** Throws an error with the whole report if runs would be blocked. */
  assert(): void {
    if (!this.ok) throw new Error(this.toString());
  }

  toString(): string {
    const all = this.versions.reduce((sum, { runs }) => sum + runs, 0);
    const looked = this.versions.reduce((sum, { goOn, blocked }) => sum + goOn + blocked, 0);
    const lines = [`${count(all, "open run")}, ${looked} of them looked at: ${this.blocked.length} would be blocked.`];
    for (const { runs, goOn, blocked, hasCode, ...of } of this.versions)
      lines.push(
        `  ${nameOf(of)}: ${count(runs, "run")}, ${hasCode ? `${goOn} go on, ${blocked} blocked` : "no code"}`,
      );
    for (const [first, runs] of this.#alike()) {
      const { tenant, run_id, position, expected, asked, at, help } = first;
      const many = runs === 1 ? "" : `${runs} runs, for example `;
      lines.push(
        "",
        `✗ ${many}${tenant === "" ? "" : `${tenant} `}${run_id} (${nameOf(first)}), position ${position}`,
        `    history: ${expected}`,
        `    code: ${asked}${at === null ? "" : `, at ${at}`}`,
        `    ${help}`,
      );
    }
    const reasons = new Map<string, number>();
    for (const { why } of this.leftOut) reasons.set(why, (reasons.get(why) ?? 0) + 1);
    if (reasons.size > 0) lines.push("", "Not looked at:");
    for (const [why, runs] of reasons) lines.push(`  ${count(runs, "run")}: ${why}`);
    return lines.join("\n");
  }

  /** The first of all runs that are blocked alike, and how many these are. */
  #alike(): Iterable<readonly [BlockedByUpgrade, number]> {
    const alike = new Map<string, [BlockedByUpgrade, number]>();
    for (const one of this.blocked) {
      const { agent_name, version, expected, asked, at, help } = one;
      const cause = JSON.stringify([agent_name, version, expected, asked, at, help]);
      const [first, runs] = alike.get(cause) ?? [one, 0];
      alike.set(cause, [first, runs + 1]);
    }
    return alike.values();
  }
}

/**
 * Replays the open runs of a store against new code, and tells which of them it would block. Nothing is written: no body of a
 * step runs, no operation begins that is not in a run's history, and the store is only read. Code between operations and at
 * the top of modules runs, as in each replay.
 *
 * A run counts as blocked where its code does something else than its history, or does not come to the next operation
 * within `patienceMs`. Code that computes without end is not interrupted: `npx cadenza check` does that.
 *
 * Rejects with `invalid_argument`, and with `store_failed` if the store fails.
 *
 * @example
 * ```ts
 * import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
 * import { durable } from "cadenza/store";
 * import { checkUpgrade } from "cadenza/testing";
 *
 * const store = durable(new MemoryStore());
 * const before = defineAgent("order", { durable: true }, async (_input, { ask }) => `${await ask("Ship it?")}`);
 * const runtime = new AgentRuntime({ store }).register(before);
 * await runtime.createRun({ agent_name: "order", input: "" });
 *
 * const after = defineAgent("order", { durable: true }, async (_input, { step, ask }) => {
 *   await step("weigh", () => "2 kg");
 *   return `${await ask("Ship it?")}`;
 * });
 * const check = await checkUpgrade({ agents: [after], store, patienceMs: 100 });
 * console.log(check.ok, check.blocked[0]?.expected, check.blocked[0]?.asked); // → false ask#1 weigh#1
 * ```
 */
export async function checkUpgrade(options: CheckOptions): Promise<UpgradeCheck> {
  const settings = readCheck(options);
  const release = settings.clock.hold?.();
  try {
    return await new Check(settings).run();
  } finally {
    release?.();
  }
}

interface CheckSettings {
  readonly find: (name: string, version: string | undefined) => Agent | undefined;
  /** What wraps the calls of the agents. */
  readonly wrap: Interceptors["run"];
  readonly store: Store | undefined;
  readonly cassettes: readonly Cassette[];
  readonly patienceMs: number;
  readonly onRun: CheckOptions["onRun"];
  readonly without: ReadonlySet<string>;
  readonly atOnce: number;
  readonly clock: Clock;
}

function readCheck(options: CheckOptions): CheckSettings {
  checkObject("options", options);
  checkKeys("options", options, ["agents", "store", "cassettes", "patienceMs", "onRun", "without", "atOnce"]);
  const { agents, store, cassettes = [], patienceMs = PATIENCE_MS, onRun, without = [], atOnce = AT_ONCE } = options;
  const code = codeIn(agents);
  checkAmount("options.patienceMs", patienceMs);
  checkCount("options.atOnce", atOnce, 1);
  if (onRun !== undefined) checkFunction("options.onRun", onRun);
  if (store === undefined && options.cassettes === undefined)
    throw badArgument("options.store", "a store, unless there are cassettes", store);
  if (store !== undefined && typeof store.survey !== "function") throw badArgument("options.store", "a store", store);
  if (!Array.isArray(cassettes)) throw badArgument("options.cassettes", "a list of cassettes", cassettes);
  return {
    ...code,
    store: store && guarded(store),
    cassettes,
    patienceMs,
    onRun,
    without: new Set(without),
    atOnce,
    clock: machineClock(silentLogger),
  };
}

function codeIn(agents: CheckOptions["agents"]): Pick<CheckSettings, "find" | "wrap"> {
  if (Array.isArray(agents)) {
    const list = agents as readonly Agent[];
    const find: CheckSettings["find"] = (name, version) =>
      list.find((agent) => agent.name === name && agent.options.version === version);
    return { find, wrap: undefined };
  }
  if (typeof agents !== "object" || agents === null || !(insideKey in agents))
    throw badArgument("options.agents", "a list of agents, or a runtime", agents);
  const { registry, interceptors } = agents[insideKey];
  return { find: (name, version) => registry.known(name, version), wrap: interceptors.run };
}

class Check {
  readonly #settings: CheckSettings;
  readonly #versions = new Map<string, { -readonly [Key in keyof CheckedVersion]: CheckedVersion[Key] }>();
  readonly #blocked: BlockedByUpgrade[] = [];
  readonly #leftOut: LeftOut[] = [];
  readonly #replays = new WeakMap<Store, DryReplay>();
  readonly #active: Places;
  readonly #quiet = new Places(QUIET_AT_ONCE);

  constructor(settings: CheckSettings) {
    this.#settings = settings;
    this.#active = new Places(settings.atOnce);
  }

  async run(): Promise<UpgradeCheck> {
    const { store, cassettes } = this.#settings;
    const pending = new Set<Promise<void>>();
    const begin = async (key: RunKey, check: (onQuiet: () => void) => Promise<void>): Promise<void> => {
      await this.#active.enter();
      const done = this.#watched(key, check).finally(() => pending.delete(done));
      pending.add(done);
    };
    if (store !== undefined)
      for await (const found of openRuns(store))
        await begin(found.key, (onQuiet) => this.#checkStored(store, found, onQuiet));
    for (const cassette of cassettes) await begin(keyOf(cassette), (onQuiet) => this.#checkCassette(cassette, onQuiet));
    while (pending.size > 0) await Promise.all(pending);
    const versions = [...this.#versions.values()].sort((a, b) => order(nameOf(a), nameOf(b)));
    const blocked = this.#blocked.sort((a, b) => order(a.agent_name, b.agent_name) || order(a.run_id, b.run_id));
    return new UpgradeCheck(versions, blocked, this.#leftOut);
  }

  /** A replay that only waits for its code gives its place to another one. */
  async #watched(key: RunKey, check: (onQuiet: () => void) => Promise<void>): Promise<void> {
    const { onRun } = this.#settings;
    let isQuiet = false;
    let becomesQuiet: Promise<void> | undefined;
    onRun?.(key, "begun");
    try {
      await check(() => {
        isQuiet = true;
        becomesQuiet = this.#quiet.enter().then(() => this.#active.leave());
      });
    } finally {
      onRun?.(key, "over");
      await becomesQuiet;
      (isQuiet ? this.#quiet : this.#active).leave();
    }
  }

  async #checkStored(store: Store, found: FoundRun, onQuiet: () => void): Promise<void> {
    const { key, head, position } = found;
    if (found.created === null) {
      this.#leftOut.push({ ...key, why: "its log cannot be read" });
      return;
    }
    const { created } = found;
    const agent = this.#agentFor(key, created);
    if (agent === undefined) return;
    try {
      const entries = await readGeneration(store, key, position);
      // It was deleted, or has ended meanwhile.
      if (entries !== undefined) await this.#replay(key, created, agent, head, entries, store, onQuiet);
    } catch (error) {
      if (newerPart(error) === undefined && !isDamage(error)) throw error;
      const why =
        newerPart(error) === undefined ? "its log cannot be read" : "a newer version of cadenza has written it";
      this.#leftOut.push({ ...key, why });
    }
  }

  async #checkCassette(cassette: Cassette, onQuiet: () => void): Promise<void> {
    const key = keyOf(cassette);
    const entries = cassette.entries.filter(({ type }) => type !== "ended");
    const [created] = entries;
    if (created?.type !== "created")
      throw badArgument("options.cassettes", "results of record(…), or the same read from JSON", cassette);
    const agent = this.#agentFor(key, created);
    if (agent === undefined) return;
    const { status } = foldEntries(key.run_id, entries);
    const head: RunHead = { ...noHead, status };
    await this.#replay(key, created, agent, head, entries, recordedSession(cassette), onQuiet);
  }

  /** The code for a run. Undefined: it is left out. */
  #agentFor(key: RunKey, { agent_name, version, durable }: CreatedEntry): Agent | undefined {
    const of = this.#versionOf(agent_name, version ?? null);
    of.runs += 1;
    const agent = this.#settings.find(agent_name, version);
    of.hasCode = agent !== undefined;
    const why =
      durable !== true
        ? "it is not durable, and ends with its process"
        : agent === undefined
          ? `there is no code of ${nameOf(of)}`
          : this.#settings.without.has(key.run_id)
            ? "an earlier check got stuck on it"
            : undefined;
    if (why === undefined) return agent;
    this.#leftOut.push({ ...key, why });
    return undefined;
  }

  async #replay(
    key: RunKey,
    created: CreatedEntry,
    agent: Agent,
    head: RunHead,
    entries: readonly Entry[],
    store: Store,
    onQuiet: () => void,
  ): Promise<void> {
    const { agent_name } = created;
    const version = created.version ?? null;
    const of = this.#versionOf(agent_name, version);
    if (isFinal(head.status)) {
      of.runs -= 1;
      return;
    }
    const mismatch = await this.#replayOn(store).mismatch({ key, agent, head, entries }, onQuiet);
    if (mismatch === undefined) {
      of.goOn += 1;
      return;
    }
    of.blocked += 1;
    const { position, expected, asked, at } = mismatch;
    this.#blocked.push({ ...key, agent_name, version, position, expected, asked, at, help: matchingCode(mismatch) });
  }

  #replayOn(store: Store): DryReplay {
    const { clock, patienceMs: stallMs, wrap } = this.#settings;
    let replay = this.#replays.get(store);
    if (replay === undefined) {
      const placeOf: PlaceOf = (callee) => userPlaceOf(callersOf(callee));
      replay = new DryReplay(store, { clock, stallMs, placeOf, wrap });
      this.#replays.set(store, replay);
    }
    return replay;
  }

  #versionOf(agent_name: string, version: string | null) {
    const name = JSON.stringify([agent_name, version]);
    const known = this.#versions.get(name) ?? { agent_name, version, runs: 0, goOn: 0, blocked: 0, hasCode: false };
    this.#versions.set(name, known);
    return known;
  }
}

/** A number of places. */
class Places {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  async enter(): Promise<void> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

/** The open runs of a store, of all tenants. */
async function* openRuns(store: Store): AsyncGenerator<FoundRun, void> {
  for (let after: number | null | undefined; after !== null; ) {
    const page: SurveyPage<FoundRun> = await store.survey({ statuses: OPEN, limit: PAGE, after });
    yield* page.runs;
    after = page.next;
  }
}

const noHead: RunHead = {
  ...{ status: "in-progress", epoch: 1, owner: LOCAL, due_at: null, blocked: null },
  ...{ holds_slot: false, finished_at: null, takeovers: 0 },
};

function keyOf({ run_id }: Cassette): RunKey {
  return { tenant: "", run_id };
}

/** A store that has only the session of a cassette. */
function recordedSession({ history, state }: Cassette): Store {
  const session = (_key: unknown, range = { from: 0, to: history.length }) => ({
    history: history.slice(range.from, range.to),
    state,
  });
  return { session, sessionHead: () => ({ length: history.length, state }) } as unknown as Store;
}

/** Whether the store cannot read the run, and can read others. */
function isDamage(error: unknown): boolean {
  return CadenzaError.is(error) && error.run_id !== undefined;
}

function nameOf({ agent_name, version }: Pick<CheckedVersion, "agent_name" | "version">): string {
  return version === null
    ? `${JSON.stringify(agent_name)}`
    : `${JSON.stringify(agent_name)}, version ${JSON.stringify(version)}`;
}

function order(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}
