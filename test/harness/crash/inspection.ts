import type { Run, StreamedEvent } from "cadenza";
import { AgentRuntime } from "cadenza";
import type { Entry, Store } from "cadenza/store";
import type { IntentEntry, StepEntry } from "../internals.ts";
import { foldEntries, resultKey, transcript } from "../internals.ts";
import { misjudged } from "../judge.ts";
import type { NamedProgram } from "../program.ts";
import { print } from "../program.ts";
import { isRaceWithTime, questionsFallAnywhere } from "../program-maker.ts";
import { namedIn } from "../program-player.ts";
import { mistimed } from "../time-judge.ts";
import type { Ledger, RunRecord, StepRecord } from "./ledger.ts";
import type { Place } from "./place.ts";
import { openPlace } from "./place.ts";
import { Reference } from "./reference.ts";

/** A lease that leaves a server time to answer on a busy machine. */
const LONG_MS = 120_000;
/** How long the other processes need to take over what a killed one has left, in milliseconds. */
const RECOVERY_MS = 12_000;
/** By how much a process may misjudge the clock of its store, in milliseconds. */
const NEAR_MS = 50;
/** More entries than a log has. */
const MANY = 1_000_000;

/**
 * Compares what is stored with what was acknowledged, and each run with one that was never interrupted. Gives what is
 * wrong.
 */
export async function inspect(place: Place, ledger: Ledger): Promise<string[]> {
  const inspection = new Inspection(await openPlace(place, { durability: { leaseMs: LONG_MS } }), ledger);
  try {
    for (const run of ledger.runs.values()) await inspection.look(run);
    await inspection.lookAtSessions();
  } finally {
    await inspection.close();
  }
  return inspection.wrong;
}

class Inspection {
  readonly wrong: string[] = [];
  readonly #ledger: Ledger;
  /** The reports of each step, by run. */
  readonly #steps = new Map<string, (readonly [key: string, step: StepRecord])[]>();
  readonly #store: Store;
  readonly #runtime: AgentRuntime;
  readonly #reference = new Reference();
  /** How many messages the completed runs of each session have added to it. */
  readonly #messages = new Map<string, number>();

  constructor(store: Store, ledger: Ledger) {
    this.#ledger = ledger;
    for (const [name, step] of ledger.steps) {
      const [run_id = ""] = name.split(" ", 1);
      const steps = this.#steps.get(run_id) ?? [];
      steps.push([name.slice(run_id.length + 1), step]);
      this.#steps.set(run_id, steps);
    }
    this.#store = store;
    // No agent is registered, so no run begins or is taken over.
    this.#runtime = new AgentRuntime({ store: this.#store });
  }

  async close(): Promise<void> {
    await this.#store.close();
  }

  async look(record: RunRecord): Promise<void> {
    const stored = await this.#store.findByIdempotencyKey("", record.name);
    if (stored === undefined) {
      this.#complain(record, "is not in the store");
      return;
    }
    const { run_id } = stored.key;
    if (record.run_id !== undefined && record.run_id !== run_id) this.#complain(record, `has become ${run_id}`);
    const log = await this.#log(run_id);
    const run = await this.#runtime.getRun(run_id);
    const events: StreamedEvent[] = [];
    for await (const event of this.#runtime.events(run_id, { until: "now" })) events.push(event);
    this.#lookAtEvents(record, events);
    await this.#lookAtPromises(record, log, run);
    const family = await this.#family(run_id, log);
    for (const [id, each] of family) {
      await this.#lookAtLog(record, id, each);
      this.#lookAtTimes(record, id, each);
    }
    if (record.ended) this.wrong.push(...(await misjudged(run_id, (id) => family.get(id))));
    if (run.status === "completed" && record.session_id !== null) {
      const added = transcript(foldEntries(run_id, log)).length;
      this.#messages.set(record.session_id, (this.#messages.get(record.session_id) ?? 0) + added);
    }
    if (!record.ended) this.#complain(record, `hangs: ${wordsOf(log)}`);
    if (!record.ended || (record.cancel !== "no" && run.status === "cancelled")) return;
    const named = namedIn(log);
    if (named === undefined) throw new Error(`The log of ${record.name} is empty.`);
    // The judge has looked at the others.
    if (!isRaceWithTime(named.program)) await this.#compare(record, run, named, [...family.values()]);
  }

  async lookAtSessions(): Promise<void> {
    for (const [session_id, expected] of this.#messages) {
      const { history } = await this.#runtime.getSession(session_id);
      if (history.length !== expected)
        this.wrong.push(`session ${session_id} has ${history.length} messages, expected ${expected}`);
    }
  }

  /** The log of a run and those of its sub-runs, by run. */
  async #family(run_id: string, log: readonly Entry[]): Promise<Map<string, readonly Entry[]>> {
    const family = new Map([[run_id, log]]);
    for (const entry of log) {
      if (entry.type !== "intent" || entry.run_id === null) continue;
      // A run that was cancelled may have ended before its sub-run began.
      const found = await this.#store.find({ tenant: "", run_id: entry.run_id });
      if (found === undefined) continue;
      for (const [id, each] of await this.#family(entry.run_id, await this.#log(entry.run_id))) family.set(id, each);
    }
    return family;
  }

  async #log(run_id: string): Promise<readonly Entry[]> {
    return (await this.#store.read({ tenant: "", run_id }, 0, MANY)) ?? [];
  }

  #lookAtEvents(record: RunRecord, events: readonly StreamedEvent[]): void {
    for (const [index, { id }] of events.entries())
      if (id !== index + 1) this.#complain(record, `has event ${id} at position ${index + 1}`);
    for (const seen of record.seen) {
      const event = events[seen.id - 1];
      if (JSON.stringify(event) !== JSON.stringify(seen))
        this.#complain(record, `has ${JSON.stringify(event)} where ${JSON.stringify(seen)} was seen`);
    }
  }

  #lookAtTimes(record: RunRecord, run_id: string, log: readonly Entry[]): void {
    const { taken, disturbances, isClockSet: isSet } = this.#ledger;
    const times = { taken: taken.get(run_id) ?? [], disturbances, isSet };
    const timing = { log, ...times, recoveryMs: RECOVERY_MS, toleranceMs: NEAR_MS };
    for (const what of mistimed(timing)) this.#complain(record, `${what}: ${wordsOf(log)}`);
  }

  async #lookAtPromises(record: RunRecord, log: readonly Entry[], run: Run): Promise<void> {
    for (const await_id of record.answered) {
      const answers = await this.#answersTo(await_id, log);
      if (answers !== 1) this.#complain(record, `has ${answers} answers to ${await_id}: ${wordsOf(log)}`);
    }
    if (record.cancel === "accepted" && run.status !== "cancelled")
      this.#complain(record, `is ${run.status} although its cancellation was accepted: ${wordsOf(log)}`);
  }

  /** How many answers to a question there are in a log, or in that of the sub-run that asks. */
  async #answersTo(await_id: string, log: readonly Entry[]): Promise<number> {
    const isReply = ({ type }: Entry): boolean => type === "resumed" || type === "declined";
    const answers = log.filter((entry) => isReply(entry) && resultKey(entry) === await_id).length;
    const [key, ...rest] = await_id.split("/");
    if (answers > 0 || rest.length === 0) return answers;
    // A run that is cancelled does not note the answer to its sub-run any more.
    const begun = log.find((entry) => entry.type === "intent" && entry.key === key);
    return begun?.type === "intent" && begun.run_id !== null
      ? this.#answersTo(rest.join("/"), await this.#log(begun.run_id))
      : 0;
  }

  async #lookAtLog(record: RunRecord, run_id: string, log: readonly Entry[]): Promise<void> {
    const stored = await this.#store.find({ tenant: "", run_id });
    if (stored?.position !== log.length)
      this.#complain(record, `has ${log.length} entries of ${stored?.position} in ${run_id}`);
    const once = count(log, "created") === 1 && count(log, "started") <= 1 && count(log, "ended") === 1;
    if (!once || log[0]?.type !== "created" || log.at(-1)?.type !== "ended")
      this.#complain(record, `has an inconsistent log: ${log.map(({ type }) => type).join(" ")}`);
    this.#lookAtSteps(record, run_id, log);
    for (const mail of this.#ledger.sent.get(run_id) ?? []) {
      const { name, data, idempotencyKey } = mail;
      // A message that is posted once more counts once.
      const arrived = log.filter((entry) => entry.type === "received" && entry.idempotency_key === idempotencyKey);
      const isSame = (entry: Entry): boolean =>
        entry.type === "received" && entry.name === name && JSON.stringify(entry.data) === JSON.stringify(data);
      if (arrived.length === 0 || !arrived.every(isSame))
        this.#complain(record, `has lost the message ${idempotencyKey} to ${run_id}: ${wordsOf(log)}`);
    }
  }

  #lookAtSteps(record: RunRecord, run_id: string, log: readonly Entry[]): void {
    const results = new Map<string, StepEntry>();
    const intents = new Map<string, IntentEntry>();
    for (const entry of log) {
      if (entry.type === "intent") {
        if (results.has(entry.key)) this.#complain(record, `went on with ${entry.key} after its result`);
        // A second entry of the same attempt says that the store holds the sub-run.
        const before = intents.get(entry.key);
        const isSame = entry.stored === true && before?.stored !== true && before?.run_id === entry.run_id;
        if (entry.attempt !== (before?.attempt ?? 0) + (isSame ? 0 : 1))
          this.#complain(record, `has attempt ${entry.attempt} at ${entry.key} out of order`);
        intents.set(entry.key, entry);
      }
      if (entry.type !== "step") continue;
      if (results.has(entry.key)) this.#complain(record, `has two results of ${entry.key}`);
      if (!intents.has(entry.key)) this.#complain(record, `has a result of ${entry.key}, which it never began`);
      results.set(entry.key, entry);
    }
    for (const [key, { began, got }] of this.#steps.get(run_id) ?? []) {
      const attempts = intents.get(key)?.attempt ?? 0;
      for (const { attempt } of began) if (attempt > attempts) this.#complain(record, `ran ${key} without an intent`);
      if (got && began.length > 0 && !results.has(key)) this.#complain(record, `has lost the result of ${key}`);
    }
  }

  async #compare(record: RunRecord, run: Run, named: NamedProgram, logs: readonly (readonly Entry[])[]): Promise<void> {
    const expected = await this.#reference.play(named, logs);
    const isAnywhere = questionsFallAnywhere(named.program);
    const outcomeOf = isAnywhere ? textsOf : messagesOf;
    const [is, ought] = [run, expected].map(outcomeOf);
    if (is !== ought)
      this.#complain(
        record,
        `came to\n  ${is}\ninstead of\n  ${ought}\nby\n  ${logs.map(wordsOf).join("\n  ")}\n${print(named.program)}`,
      );
  }

  #complain(record: RunRecord, what: string): void {
    this.wrong.push(`${record.name} (${record.run_id}) ${what}`);
  }
}

/** A log in short, for a message. */
function wordsOf(log: readonly Entry[]): string {
  const detail = (entry: Entry): string => {
    switch (entry.type) {
      case "intent":
        return `${entry.key}/${entry.attempt}`;
      case "awaited":
        return entry.await_id;
      case "ended":
        return entry.outcome;
      default:
        return resultKey(entry) ?? "";
    }
  };
  return log.map((entry) => `${entry.type} ${detail(entry)}`.trim()).join(", ");
}

function messagesOf({ status, output, error }: Run): string {
  const messages = output.map(({ role, parts }) => [role, ...parts.map(({ content }) => content)]);
  return JSON.stringify([status, error, messages]);
}

/** As {@link messagesOf}, whatever messages the texts are in. */
function textsOf({ status, output, error }: Run): string {
  return JSON.stringify([status, error, output.flatMap(({ parts }) => parts.map(({ content }) => content))]);
}

function count(log: readonly Entry[], type: Entry["type"]): number {
  return log.filter((entry) => entry.type === type).length;
}
