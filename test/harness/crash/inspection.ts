import { AgentRuntime } from "cadenza";
import type { Entry, Store } from "cadenza/store";
import type { Shown } from "../judge.ts";
import { describe, inboxIn, misjudged, misremembered, mistold, shownBy } from "../judge.ts";
import { print } from "../program.ts";
import { KILLED, programNamed } from "../program-maker.ts";
import { disordered, mistimed } from "../time-judge.ts";
import type { Ledger, RunRecord } from "./ledger.ts";
import type { Place } from "./place.ts";
import { openPlace } from "./place.ts";

/** A lease that leaves a server time to answer on a busy machine. */
const LONG_MS = 120_000;
/** How long the other processes need to take over what a killed one has left, in milliseconds. */
const RECOVERY_MS = 12_000;
/** By how much a process may misjudge the clock of its store, in milliseconds. */
const NEAR_MS = 50;
/** More entries than a log has. */
const MANY = 1_000_000;

/** Has each run judged by what is stored and what was acknowledged, and gives all that is wrong. */
export async function inspect(place: Place, ledger: Ledger): Promise<string[]> {
  const inspection = new Inspection(await openPlace(place, { durability: { leaseMs: LONG_MS } }), ledger);
  ledger.judgeBodies();
  try {
    for (const run of ledger.runs.values()) await inspection.look(run);
    await inspection.lookAtAll();
  } finally {
    await inspection.close();
  }
  return [...ledger.wrong, ...inspection.wrong];
}

class Inspection {
  readonly wrong: string[] = [];
  readonly #ledger: Ledger;
  readonly #store: Store;
  readonly #runtime: AgentRuntime;
  /** The runs that have ended. */
  readonly #shown: Shown[] = [];

  constructor(store: Store, ledger: Ledger) {
    this.#ledger = ledger;
    this.#store = store;
    // It only looks: no run begins or is taken over.
    this.#runtime = new AgentRuntime({ store: this.#store, work: false });
    this.#runtime.declare({ name: "program", durable: true, version: "1" });
  }

  async close(): Promise<void> {
    await this.#store.close();
  }

  async look(record: RunRecord): Promise<void> {
    const stored = await this.#store.findByIdempotencyKey("", record.name);
    const wrong = stored === undefined ? ["is not in the store"] : await this.#judge(record, stored.key.run_id);
    if (wrong.length === 0) return;
    const { name, run_id = stored?.key.run_id ?? "" } = record;
    this.wrong.push(...wrong.map((what) => `${name} (${run_id}): ${what}`), describe(await this.#log(run_id)));
    this.wrong.push(print(programNamed(name, KILLED).program), this.#ledger.again(name));
  }

  async #judge(record: RunRecord, run_id: string): Promise<string[]> {
    const { seen, replies, cancel, ended } = record;
    const { sent, taken, bodies, disturbances, isClockSet: isSet } = this.#ledger;
    const wrong: string[] = [];
    if (record.run_id !== undefined && record.run_id !== run_id) wrong.push(`has become ${run_id}`);
    if (!ended) wrong.push("hangs");
    const family = await this.#family(run_id);
    const logOf = (id: string): readonly Entry[] | undefined => family.get(id);
    for (const [id, log] of family) {
      const shown = await shownBy(this.#runtime, id);
      const stored = await this.#store.find({ tenant: "", run_id: id });
      if (stored?.position !== log.length) wrong.push(`has ${log.length} entries of ${stored?.position} in ${id}`);
      const times = { log, taken: taken.get(id) ?? [], disturbances, isSet };
      wrong.push(
        ...bodies.misran(id, log),
        ...mistimed({ ...times, recoveryMs: RECOVERY_MS, toleranceMs: NEAR_MS }),
        ...disordered(shown),
      );
      if (id !== run_id) continue;
      if (ended) this.#shown.push(shown);
      const own = new Map([...family.keys()].flatMap((one) => [[one, sent.get(one) ?? []]]));
      const told = { seen, replies, sent: own, isCancelled: cancel === "accepted", sentInOrder: false };
      wrong.push(...(await mistold(id, told, shown, logOf, (to) => inboxIn(this.#store, { tenant: "", run_id: to }))));
    }
    if (ended) wrong.push(...(await misjudged(run_id, logOf)));
    return wrong;
  }

  /** Looks at what several runs share. */
  async lookAtAll(): Promise<void> {
    const sessions = new Set([...this.#ledger.runs.values()].flatMap(({ session_id }) => session_id ?? []));
    for (const session_id of sessions) {
      const its = this.#shown.filter(({ run }) => run.session_id === session_id);
      if (its.length === 0) continue;
      const { history } = await this.#runtime.getSession(session_id);
      this.wrong.push(...misremembered(history, [], its).map((what) => `${session_id}: ${what}`));
    }
    const { completed = 0, failed = 0, cancelled = 0 } = (await this.#runtime.stats()).agents["program"] ?? {};
    const [is, must] = [completed + failed + cancelled, this.#shown.length];
    if (this.#ledger.open === 0 && is !== must) this.wrong.push(`${is} runs are counted as ended, and ${must} have`);
  }

  /** The log of a run and those of its sub-runs, by run. */
  async #family(run_id: string): Promise<Map<string, readonly Entry[]>> {
    const log = await this.#log(run_id);
    const family = new Map([[run_id, log]]);
    for (const entry of log) {
      if (entry.type !== "intent" || entry.run_id === null) continue;
      // A run that was cancelled may have ended before its sub-run began.
      const found = await this.#store.find({ tenant: "", run_id: entry.run_id });
      if (found === undefined) continue;
      for (const [id, each] of await this.#family(entry.run_id)) family.set(id, each);
    }
    return family;
  }

  async #log(run_id: string): Promise<readonly Entry[]> {
    return (await this.#store.read({ tenant: "", run_id }, 0, MANY)) ?? [];
  }
}
