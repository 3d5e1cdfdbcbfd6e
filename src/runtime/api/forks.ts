import { CadenzaError, notFound } from "../../core/errors.ts";
import { cutBefore, cutToTryAgain, forkedLog, operationsOf, stopOf } from "../../core/fork.ts";
import { sameJson } from "../../core/json.ts";
import type { CreatedEntry, Entry, ForkOrigin, Growing } from "../../core/log.ts";
import type { RunKey, StoredRun } from "../../core/ports.ts";
import { positionIn } from "../../core/positions.ts";
import { ignore } from "../../core/promises.ts";
import { userOf } from "../../core/user.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Agent } from "../agent/agent.ts";
import { checkInput } from "../agent/agent-schemas.ts";
import { badArgument, checkKey, checkText, maxLengths } from "../agent/check.ts";
import type { RunInput } from "../agent/input.ts";
import { readInput } from "../agent/input.ts";
import type { RunElsewhere } from "../agent/new-run.ts";
import { keyConflict } from "../agent/new-run.ts";
import { queuedBy } from "../agent/queueing.ts";
import { onceTaken } from "../execution/operations.ts";
import { keySeedOf, seedOf } from "../execution/random.ts";
import { findStored, readLog } from "../log/fold-log.ts";
import { closedError } from "../log/refusals.ts";
import type { LiveRun } from "../runs/live-run.ts";
import { checkCallersKey, checkOptions } from "../runs/requests.ts";
import type { Runs } from "../runs/runs.ts";

/** The options of `fork`. */
export interface ForkOptions {
  /**
   * The key of the operation before which the fork begins, such as `charge#1`, `ask#1` or `run:triage#2`. Default: for a
   * run that has failed with the error of an operation, that operation; for a run past the deadline of a question, that
   * question; otherwise after all that is recorded, or before the run was stopped.
   */
  readonly before?: string | undefined;
  /** The version of the agent that continues; null for the one without. It must be registered here. Default: the run's. */
  readonly version?: string | null | undefined;
  /** Another input. The recorded results stay as they are. Default: the run's. */
  readonly input?: RunInput | undefined;
  /**
   * The idempotency keys of the fork's steps. `same`: the keys of the run, so that nothing is charged twice. `new`: others.
   * Default: `same`.
   */
  readonly keys?: "same" | "new" | undefined;
  /** What the call gives: `sync` the fork when it rests, `async` the fork when it is accepted. Default: `sync`. */
  readonly mode?: "sync" | "async" | undefined;
  /**
   * A repeated call with the same key gives the same fork. Another call with the key throws `idempotency_conflict`.
   * Default: none.
   */
  readonly idempotencyKey?: string | undefined;
  /** Ends the caller's wait: the call rejects with the signal's reason. It does not stop the fork. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** A fork that was accepted. Its caller lets it begin. */
export interface Forked {
  readonly run: LiveRun;
  /** The entries with which it begins. */
  readonly entries: readonly Entry[];
}

const options: readonly (keyof ForkOptions)[] = [
  "before",
  "version",
  "input",
  "keys",
  "mode",
  "idempotencyKey",
  "signal",
];

/** Makes new runs that begin with the recorded results of others. */
export class Forks {
  readonly #runs: Runs;
  readonly #begin: "here" | "anywhere";

  /** `begin`: see {@link ScopeParts.forks}. */
  constructor(runs: Runs, begin: "here" | "anywhere" = "here") {
    this.#runs = runs;
    this.#begin = begin;
  }

  /**
   * Accepts a fork. `by`: who makes it, for its log. It acts in the name of the run's principal. `elsewhere`: one that is in the store, because its idempotency key has made it before, or because
   * it does not begin here.
   */
  async make(key: RunKey, given: ForkOptions, by: JsonValue): Promise<Forked | RunElsewhere> {
    checkForkOptions(given);
    if (this.#begin === "here") checkCallersKey(given.idempotencyKey);
    const { store, clock } = this.#runs.shared;
    await clock.ready();
    const stored = await this.#committed(key);
    const agent = this.#agentFor(stored, given.version);
    const log = await readLog(store, key, stored.position);
    if (log === undefined) throw notFound(key.run_id);
    const cut = cutOf(key, log, given.before);
    const origin: Growing<ForkOrigin> = { run_id: key.run_id, position: positionIn(log, cut - 1) + 1 };
    if (by !== null) origin.by = by;
    const input = given.input === undefined ? stored.created.input : readInput(given.input);
    await checkInput(agent, input, this.#runs.shared);
    const runId = this.#runs.ids.uuid();
    const created = createdEntryOf(stored, agent, { ...stored.created, input, origin }, runId, given.keys);
    const repeated = await this.#repeated(key.tenant, created, given);
    if (repeated !== undefined) return repeated;
    // The fork acts for the user of its origin, and belongs to that user.
    const { principal = null } = created;
    const user = { tenant: key.tenant, principal };
    const { change } = await this.#runs.sessions.join(user, created.session_id, runId);
    const { shared } = this.#runs;
    const fork = { ...key, run_id: runId };
    const first = shared.withCarrier(fork, { ...created, at: shared.clock.now() });
    const entries = forkedLog(first, log, cut, runId);
    try {
      const mayBeginAnywhere = this.#begin === "anywhere" && this.#runs.isDurable && store.persistent;
      if (mayBeginAnywhere || !this.#runs.begins(agent, key.tenant)) {
        if (this.#runs.shared.isClosed) throw closedError();
        const { idempotencyKey } = given;
        await this.#runs.addElsewhere({ key: fork, log: entries, session: change, idempotencyKey, agent });
        return { elsewhere: fork, of: created };
      }
      const run = this.#runs.acceptFork(agent, fork, entries, given.idempotencyKey, change);
      const forked: Forked = { run, entries };
      if (given.idempotencyKey !== undefined) await onceTaken(run.log, () => beginFork(forked));
      return forked;
    } catch (error) {
      // Another caller used the key between the look and the write.
      const instead = await this.#repeated(key.tenant, created, given);
      if (instead === undefined) throw error;
      return instead;
    }
  }

  /** The fork that the idempotency key has made before. Undefined: none. Throws `idempotency_conflict`. */
  async #repeated(
    tenant: string,
    wanted: CreatedEntry,
    { idempotencyKey, keys, before }: ForkOptions,
  ): Promise<RunElsewhere | undefined> {
    const known = idempotencyKey && (await this.#runs.shared.store.findByIdempotencyKey(tenant, idempotencyKey));
    if (!known) return undefined;
    const { key, created } = known;
    // Where a fork begins that names no operation depends on how far its run had come when it was made.
    const isSameOrigin =
      created.origin?.run_id === wanted.origin?.run_id &&
      (before === undefined || created.origin?.position === wanted.origin?.position);
    const isSame =
      isSameOrigin &&
      sameJson(created.input, wanted.input) &&
      created.version === wanted.version &&
      (created.key_seed === key.run_id) === (keys === "new");
    if (isSame) return { elsewhere: key, of: created, repeated: true };
    const isSeen = userOf(created.principal) === userOf(wanted.principal);
    throw keyConflict(isSeen ? key.run_id : undefined);
  }

  /** The run as it is in the store, with what has been decided here. */
  async #committed(key: RunKey): Promise<StoredRun> {
    await this.#runs.find(key)?.log.acknowledge()?.catch(ignore);
    return findStored(this.#runs.shared.store, key);
  }

  #agentFor({ key, created }: StoredRun, version: string | null | undefined): Agent {
    const { agent_name, durable } = created;
    if (durable !== true) throw notForkable(key.run_id, "its agent is not durable");
    if (!this.#runs.isDurable) throw notForkable(key.run_id, "its store is not durable");
    const wanted = version === undefined ? created.version : (version ?? undefined);
    const agent = this.#runs.registry.known(agent_name, wanted);
    if (agent !== undefined && agent.options.durable !== true)
      throw notForkable(key.run_id, "the agent that would go on is not durable");
    if (agent !== undefined) return agent;
    const which = wanted === undefined ? "without a version" : `of version ${JSON.stringify(wanted)}`;
    const message = `Run ${key.run_id} cannot be forked here: agent ${JSON.stringify(agent_name)} ${which} is not registered.`;
    throw new CadenzaError("agent_not_found", message, { agent_name, run_id: key.run_id });
  }
}

function checkForkOptions(given: ForkOptions): void {
  checkOptions(given, options);
  const { before, version, keys, mode } = given;
  if (before !== undefined) checkText("options.before", before);
  if (version !== undefined && version !== null) checkKey("options.version", version, maxLengths.version);
  if (keys !== undefined && keys !== "same" && keys !== "new")
    throw badArgument("options.keys", '"same" or "new"', keys);
  if (mode !== undefined && mode !== "sync" && mode !== "async")
    throw badArgument("options.mode", '"sync" or "async"', mode);
}

function cutOf({ run_id }: RunKey, log: readonly Entry[], before: string | undefined): number {
  const cut = before === undefined ? cutToTryAgain(log) : cutBefore(log, before);
  if (cut === undefined) {
    const known = operationsOf(log);
    const some = known.length === 0 ? "none" : known.slice(0, 20).join(", ");
    throw badArgument("options.before", `the key of an operation of run ${run_id} (${some})`, before);
  }
  if (cut > (stopOf(log) ?? log.length)) throw notForkable(run_id, `it was stopped before ${before}`);
  return cut;
}

/** The first entry of a fork. What its creator gave to the run stays. */
function createdEntryOf(
  { key, created }: StoredRun,
  agent: Agent,
  {
    start_at: _start,
    parent: _parent,
    version: _version,
    key_seed: _seed,
    carrier: _carrier,
    queue: _queue,
    ...given
  }: CreatedEntry,
  runId: string,
  keys: ForkOptions["keys"],
): CreatedEntry {
  const { version } = agent.options;
  const seed = seedOf(created, key.run_id);
  const key_seed = keys === "new" ? runId : keySeedOf(created, key.run_id);
  const entry: Growing<CreatedEntry> = { ...given, seed };
  const queue = queuedBy(agent.options, key.tenant, entry, created.queue?.priority);
  if (queue !== undefined) entry.queue = queue;
  // What was left above a sub-run does not limit its fork.
  if (created.parent !== undefined) delete entry.timeout_ms;
  if (version !== undefined) entry.version = version;
  if (key_seed !== seed) entry.key_seed = key_seed;
  return entry;
}

/** Lets the agent of a fork begin with what it has to do again. */
export function beginFork({ run, entries }: Forked): void {
  if (run.log.state.started !== null) run.residence?.note({ redoes: entries });
  run.begin();
}

function notForkable(runId: string, why: string): CadenzaError {
  return new CadenzaError("not_forkable", `Run ${runId} cannot be forked: ${why}.`, { run_id: runId });
}
