import type { Run, StreamedEvent } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import type { EmittedEntry } from "../internals.ts";
import { evolve, foldEntries, initialState, isFinal, project, runRecord, sameJson, transcript } from "../internals.ts";
import { checkEdges, firstDeadline, workOf } from "./edges.ts";
import type { Heard, Puppet } from "./puppet.ts";
import type { WatchedLog } from "./store.ts";
import type { Call, Reader, World } from "./world.ts";
import { GRACE_MS, RUN_TIMEOUT_MS } from "./world.ts";

/** How long a schema may take, in milliseconds: docs/reference/limits.md. */
const VALIDATION_MS = 5_000;

/** Checks the rules of a world in which no event is pending: each call that can settle has settled. */
export function checkAtRest(world: World): void {
  for (const log of world.store.logs.values()) checkNoRunIsForgotten(world, log);
  for (const call of world.calls) {
    if (call.outcome !== undefined) continue;
    const log = logOf(world, call);
    if (log === undefined) world.violate(`${call.does} is neither refused nor carried out`);
    else if (call.does !== "create" && call.does !== "resume") world.violate(`${call.does} ${log.run_id} hangs`);
    else if (rests(log)) world.violate(`${call.does} ${log.run_id} waits, and the run rests`);
  }
  for (const reader of world.readers) {
    if (reader.end !== undefined || reader.left) continue;
    const log = logOf(world, reader);
    const over = log !== undefined && (reader.until === "rest" ? rests(log) : log.head.finished_at !== null);
    if (log === undefined) world.violate("a stream is neither refused nor opened");
    else if (over)
      world.violate(`a stream of ${log.run_id} until ${reader.until} goes on, and the run is ${log.head.status}`);
  }
}

/** Checks the rules of a world whose runs have ended: all outcomes have to match the logs. */
export function checkAtEnd(world: World): void {
  for (const complaint of world.store.complaints) world.violate(complaint);
  // With a store that answers late, an agent is stopped when the cancel is committed.
  const graceMs = world.late === undefined ? GRACE_MS + world.clock.latestMs : Infinity;
  for (const log of world.store.logs.values()) {
    checkEdges(log, graceMs, (what) => world.violate(`${log.run_id}: ${what}`));
    if (log.head.finished_at === null) world.violate(`${log.run_id} never ends, and is ${log.head.status}`);
    checkActiveTime(world, log);
  }
  for (const call of world.calls) checkCall(world, call);
  for (const reader of world.readers) checkReader(world, reader);
  for (const [run_id, events] of world.heard) checkListener(world, run_id, events);
  for (const puppet of world.puppets) checkPuppet(world, puppet);
  checkKeys(world);
  checkSessions(world);
}

/** A run is stopped for its active time when that is over: not before, and not much later where its store answers at once. */
function checkActiveTime({ store, clock, late, violate }: World, { run_id, entries }: WatchedLog): void {
  const [created] = entries;
  if (created?.type !== "created") return;
  const own = created.agent_name === "hurried" ? RUN_TIMEOUT_MS : Number.POSITIVE_INFINITY;
  const limitMs = Math.min(own, created.timeout_ms ?? Number.POSITIVE_INFINITY);
  // A sub-run is at work for the run above it, also while that asks something.
  const hasSubRuns = [...store.logs.values()].some(({ entries: [its] }) => isSubRunOf(its, run_id));
  const work = workOf(entries);
  if (work === undefined || hasSubRuns) return;
  if (work.isOverrun && work.ms < limitMs) violate(`${run_id} is out of time after ${work.ms} ms of ${limitMs}`);
  if (late === undefined && work.ms > limitMs + clock.latestMs)
    violate(`${run_id} was at work for ${work.ms} ms, and its limit is ${limitMs}`);
}

function isSubRunOf(entry: Entry | undefined, run_id: string): boolean {
  return entry?.type === "created" && entry.parent?.run_id === run_id;
}

function logOf(world: World, about: Call | Reader): WatchedLog | undefined {
  const run_id = world.runOf(about);
  return run_id === undefined ? undefined : world.store.logs.get(run_id);
}

function rests({ head }: WatchedLog): boolean {
  return head.status === "awaiting" || head.finished_at !== null;
}

/** A run waits for a slot only if all are taken, and each answer and deadline has taken effect. */
function checkNoRunIsForgotten(world: World, log: WatchedLog): void {
  const { run_id, head, entries } = log;
  if (head.status === "created" && !isSlotTaken(world, log)) world.violate(`${run_id} waits for a slot that is free`);
  const deadline = firstDeadline(entries);
  if (head.status === "awaiting" && deadline !== null && deadline <= world.clock.now())
    world.violate(`${run_id} awaits an answer after its deadline`);
  if (head.status !== "in-progress" && head.status !== "awaiting") return;
  const puppet = world.puppets.find((one) => one.run_id === run_id);
  const undelivered = entries.filter((entry) => {
    if (entry.type !== "resumed" || entry.await_id.includes("/")) return false;
    return puppet?.heard.find(({ key }) => key === entry.await_id)?.outcome === undefined;
  });
  if (undelivered.length > 0 && !isSlotTaken(world, log))
    world.violate(`${run_id} has an answer that its agent did not get`);
}

function isSlotTaken(world: World, { run_id, entries }: WatchedLog): boolean {
  const [created] = entries;
  if (created?.type !== "created" || !["narrow", "picky", "private"].includes(created.agent_name)) return false;
  // Its creation is refused without a slot. Only a run that has released its slot may wait for another one.
  if (created.agent_name === "picky" && entries.length === 1) return false;
  return [...world.store.logs.values()].some((other) => {
    const [its] = other.entries;
    if (other.run_id === run_id || its?.type !== "created" || its.agent_name !== created.agent_name) return false;
    const { status } = other.head;
    if (created.agent_name === "private") return its.session_id === created.session_id && isUnderWay(status);
    return (
      status === "in-progress" || status === "cancelling" || (status === "awaiting" && hasSubRunAtWork(world, other))
    );
  });
}

/** A run that waits for something else keeps its slot for the sub-runs that are at work in it. */
function hasSubRunAtWork(world: World, above: WatchedLog): boolean {
  return [...world.store.logs.values()].some((other) => {
    const [its] = other.entries;
    if (its?.type !== "created" || its.parent?.run_id !== above.run_id || isFinal(other.head.status)) return false;
    return other.head.status !== "awaiting" || hasSubRunAtWork(world, other);
  });
}

function isUnderWay(status: Run["status"]): boolean {
  return status === "in-progress" || status === "cancelling" || status === "awaiting";
}

function checkCall(world: World, call: Call): void {
  const { outcome, does, answer } = call;
  const log = logOf(world, call);
  if (outcome === undefined) {
    world.violate(`${does} ${log?.run_id} never settled`);
    return;
  }
  if ("error" in outcome) {
    checkRefusal(world, call, log, CadenzaError.is(outcome.error) ? outcome.error.code : String(outcome.error));
    return;
  }
  if (log === undefined || log.run_id !== outcome.run.run_id) {
    world.violate(`${does} gave the run ${outcome.run.run_id} instead of ${log?.run_id}`);
    return;
  }
  const { run } = outcome;
  // A store that fails may have written what the runtime does not know of yet.
  const before = (world.late?.failures ?? 0) > 0 ? 0 : call.before;
  const fits = recordsOf(log).some((record, position) => {
    return position + 1 >= before && position < outcome.committed && (sameJson(record, run) || isBetween(record, run));
  });
  if (!fits) world.violate(`${does} ${run.run_id} gave a record (${run.status}) that was not committed then`);
  const mayBeStopped = log.entries[1]?.type === "cancel-requested";
  if (does === "accept" && call.idempotencyKey === undefined && run.status !== "created" && !mayBeStopped)
    world.violate(`${run.run_id} was accepted as ${run.status}`);
  if ((does === "create" || does === "resume") && !(run.status === "awaiting" || run.finished_at !== null))
    world.violate(`${does} ${run.run_id} gave a run that does not rest`);
  if (does === "cancel" && run.status !== "cancelling" && run.status !== "cancelled")
    world.violate(`cancel ${run.run_id} gave a run that is ${run.status}`);
  if (answer !== undefined && !answersOf(log.entries).some((given) => isGiven(given, answer)))
    world.violate(`${does} ${run.run_id} took the answer ${answer.n}, which is not in the log`);
}

interface GivenAnswer {
  readonly n: unknown;
  readonly await_id: string;
  readonly key: string | null;
}

/** Whether the record is that between an answer and the next open question: what an answer in mode `async` gives. */
function isBetween(record: Run, given: Run): boolean {
  return record.status === "awaiting" && sameJson({ ...record, status: "in-progress", await_request: null }, given);
}

function answersOf(entries: readonly Entry[]): readonly GivenAnswer[] {
  return entries.flatMap((entry) => {
    if ((entry.type !== "resumed" && entry.type !== "settled") || entry.answer === undefined) return [];
    const { answer, await_id, idempotency_key = null } = entry;
    return [{ n: (answer as { n?: unknown }).n, await_id, key: idempotency_key }];
  });
}

function isGiven(given: GivenAnswer, { n, await_id }: NonNullable<Call["answer"]>): boolean {
  return given.n === n && (await_id === undefined || given.await_id === await_id);
}

function checkRefusal(world: World, call: Call, log: WatchedLog | undefined, code: string): void {
  if (code === "store_failed" && (world.late?.failures ?? 0) > 0) return;
  const entries = log?.entries ?? [];
  // The store refused to create the run.
  if (log === undefined && call.run_id !== undefined && (world.late?.failures ?? 0) > 0) return;
  if (!isRefusalFounded(world, call, log, entries, code))
    world.violate(`${call.does} ${log?.run_id} was refused with ${code} without a reason`);
  const { answer } = call;
  if (answer === undefined || code === "run_not_found") return;
  const answers = answersOf(entries);
  if (answer.n >= 10 && answers.some(({ n }) => n === answer.n))
    world.violate(`the answer ${answer.n} to ${log?.run_id} was refused with ${code}, and is in the log`);
  const known = answersOf(entries.slice(0, call.before));
  if (answer.key === undefined && answer.await_id !== undefined && known.some((given) => isGiven(given, answer)))
    world.violate(`the answer ${answer.n} to ${log?.run_id} was refused with ${code} when it was repeated`);
}

/** Whether the schema of a question has kept this answer for longer than the runtime waits for it. */
function isOutwaited({ clock, slowSince }: World, n: number): boolean {
  return clock.now() - (slowSince.get(n) ?? Number.POSITIVE_INFINITY) >= VALIDATION_MS;
}

function isCancelled(entries: readonly Entry[]): boolean {
  return entries.some(({ type }) => type === "cancel-requested");
}

/** The runs at which questions that a run shows may be asked: its sub-runs, and theirs. */
function subRunsOf(world: World, log: WatchedLog | undefined): readonly WatchedLog[] {
  if (log === undefined) return [];
  const own = [...world.store.logs.values()].filter(({ entries: [created] }) => isSubRunOf(created, log.run_id));
  return own.flatMap((one) => [one, ...subRunsOf(world, one)]);
}

function isRefusalFounded(
  world: World,
  { does, answer, idempotencyKey }: Call,
  log: WatchedLog | undefined,
  entries: readonly Entry[],
  code: string,
): boolean {
  const answers = answersOf(entries);
  const [created] = entries;
  switch (code) {
    case "run_not_found":
      return log === undefined || log.removed;
    case "run_finished":
      return does === "cancel" && (log?.head.status === "completed" || log?.head.status === "failed");
    case "run_cancelling":
      return (
        isCancelled(entries) || (answer !== undefined && subRunsOf(world, log).some((its) => isCancelled(its.entries)))
      );
    case "not_awaiting":
      return answer !== undefined;
    case "answer_rejected":
      return answer !== undefined && (answer.n % 7 === 0 || isOutwaited(world, answer.n));
    case "answer_conflict":
      // Without an id the answer is for the question that was shown when it came.
      return answers.some(({ n, await_id }) => await_id === (answer?.await_id ?? await_id) && n !== answer?.n);
    case "idempotency_conflict":
      if (answer === undefined) return idempotencyKey !== undefined;
      return answers.some((given) => given.key === answer.key && !isGiven(given, answer));
    case "limit_reached":
      return does === "create" || does === "accept";
    case "lost_ownership":
      return (created === undefined || log?.removed === true) && (world.late?.failures ?? 0) > 0;
    default:
      return false;
  }
}

const recordsByLog = new WeakMap<WatchedLog, readonly Run[]>();

/** The record of a run after each of its entries. */
function recordsOf(log: WatchedLog): readonly Run[] {
  let records = recordsByLog.get(log);
  if (records === undefined) {
    const state = initialState(log.run_id);
    records = log.entries.map((entry) => runRecord(evolve(state, entry)));
    recordsByLog.set(log, records);
  }
  return records;
}

/** The status of a run after a number of its events. */
function statusAfter({ run_id, entries }: WatchedLog, events: number): Run["status"] {
  const state = initialState(run_id);
  for (const entry of entries) if (state.events < events) evolve(state, entry);
  return state.status;
}

const eventsByLog = new WeakMap<WatchedLog, readonly StreamedEvent[]>();

function eventsOf(log: WatchedLog): readonly StreamedEvent[] {
  let events = eventsByLog.get(log);
  if (events === undefined) {
    const state = initialState(log.run_id);
    const told: StreamedEvent[] = [];
    for (const entry of log.entries) {
      evolve(state, entry);
      for (let index = 0; index < state.last_events; index++) {
        const event = project(state, entry, index);
        if (event !== undefined) told.push(event);
      }
    }
    events = told;
    eventsByLog.set(log, events);
  }
  return events;
}

/** A reader gets a range of the run's events without a gap, which ends at its `until`. */
function checkReader(world: World, reader: Reader): void {
  const log = logOf(world, reader);
  // A reader of a run that has been removed gets an error.
  const isLate = log?.removed === true && reader.events.at(-1)?.type === "error";
  const events = isLate ? reader.events.slice(0, -1) : reader.events;
  if (reader.left) {
    if (log !== undefined) checkPiece(world, "a reader that left", log, events, reader.after);
    return;
  }
  if (reader.end === undefined) {
    world.violate(`a stream of ${log?.run_id} never ended`);
    return;
  }
  if (reader.end !== "done") {
    const { error } = reader.end;
    const does = reader.answer !== undefined ? "resume" : reader.run_id === undefined ? "create" : "get";
    const { answer, before, run_id, idempotencyKey } = reader;
    const call: Call = { does, run_id, idempotencyKey, before, outcome: undefined, ...(answer && { answer }) };
    if (reader.events.length > 0) world.violate(`a stream of ${log?.run_id} broke: ${String(error)}`);
    else checkRefusal(world, call, log, CadenzaError.is(error) ? error.code : String(error));
    return;
  }
  if (log === undefined) {
    if (reader.run_id === undefined || reader.events.length > 0) world.violate("a stream had no run");
    return;
  }
  checkPiece(world, "a reader", log, events, reader.after);
  if (isLate) return;
  const status = statusAfter(log, events.at(-1)?.id ?? reader.after);
  const isOver = status === "completed" || status === "failed" || status === "cancelled";
  if (!isOver && (reader.until === "end" || status !== "awaiting"))
    world.violate(`a stream of ${log.run_id} until ${reader.until} ended when the run was ${status}`);
}

function checkPiece(world: World, who: string, log: WatchedLog, events: Reader["events"], after: number): void {
  const expected = eventsOf(log);
  // The stream of an answer begins at the answer.
  let next = after === -1 ? (events[0]?.id ?? 1) : after + 1;
  for (const event of events) {
    const { id, type } = event;
    if (id !== next++) world.violate(`${who} of ${log.run_id} saw event ${id} instead of ${next - 1}`);
    if (!sameJson(event, expected[id - 1])) world.violate(`${who} of ${log.run_id} saw another event ${id} (${type})`);
  }
}

function checkListener(world: World, run_id: string, events: Reader["events"]): void {
  const log = world.store.logs.get(run_id);
  if (log === undefined) {
    world.violate(`a listener heard of ${run_id}, which does not exist`);
    return;
  }
  const told = events.filter(({ type }) => type !== "error" || !log.removed);
  checkPiece(world, "a listener", log, told, 0);
  if (told.length !== log.events && !log.removed)
    world.violate(`a listener heard ${told.length} of the ${log.events} events of ${run_id}`);
}

function checkPuppet(world: World, puppet: Puppet): void {
  const { run_id, heard, histories } = puppet;
  const log = world.store.logs.get(run_id);
  // The store refused to create the run: its agent was abandoned.
  if (log === undefined) return;
  for (const one of heard) checkHeard(world, log, one);
  if (!puppet.finished && !wasLeftBehind(log)) world.violate(`the agent of ${run_id} never ended`);
  if (!puppet.unwound) world.violate(`${run_id} ended, and its finally block did not run`);
  const emitted = emittedIn(log);
  for (const [index, serial] of emitted.entries())
    if (emitted.indexOf(serial) !== index) world.violate(`${run_id} emits no. ${serial} twice`);
  if (log.head.status === "completed" && !sameJson(emitted, puppet.emitted))
    world.violate(`${run_id} emits ${emitted.join()}, and its agent emitted ${puppet.emitted.join()}`);
  const [created] = log.entries;
  for (const history of histories)
    if (created?.type === "created" && history.length !== (created.history_length ?? 0))
      world.violate(`${run_id} saw ${history.length} messages of ${created.history_length ?? 0}`);
}

/** Whether the run ended with the grace period: its agent did not stop in time, and was abandoned. */
function wasLeftBehind({ entries }: WatchedLog): boolean {
  const stopped = entries.find(({ type }) => type === "cancel-requested" || type === "timed-out");
  const last = entries.at(-1);
  return stopped !== undefined && last !== undefined && last.at >= stopped.at + GRACE_MS;
}

/** The serial numbers in a run's output. */
function emittedIn({ entries }: WatchedLog): readonly number[] {
  return entries.flatMap((entry) => {
    if (entry.type !== "emitted" || entry.kind === "close") return [];
    const [, serial] = /no\. (\d+)/.exec(textIn(entry)) ?? [];
    return serial === undefined ? [] : [Number(serial)];
  });
}

function textIn(entry: Exclude<EmittedEntry, { readonly kind: "close" }>): string {
  if (entry.kind === "part") return entry.part.content ?? "";
  if (entry.kind === "message") return entry.message.parts.at(-1)?.content ?? "";
  return String(entry.generic["text"]);
}

/** The result that an agent got has to be that of its question in the log. */
function checkHeard(world: World, log: WatchedLog, { key, outcome }: Heard): void {
  const isAwait = key.startsWith("await");
  if (outcome === undefined) {
    // The generator was returned instead.
    if (!isAwait) world.violate(`${log.run_id} has never heard of ${key}`);
    return;
  }
  if (key.startsWith("run:")) {
    checkSubRun(world, log, key, outcome);
    return;
  }
  const result = log.entries.find((entry) => {
    if (entry.type === "resumed") return entry.await_id === key;
    return entry.type === "timed-out" && entry.await_id === key && entry.defaulted;
  });
  if ("error" in outcome) {
    const code = CadenzaError.is(outcome.error) ? outcome.error.code : String(outcome.error);
    const isOver = log.entries.some(
      ({ type }) => type === "cancel-requested" || type === "timed-out" || type === "ended",
    );
    if (!isOver || !["run_cancelled", "run_timeout", "await_timeout", "run_ended"].includes(code))
      world.violate(`${key} of ${log.run_id} rejected with ${code}`);
  } else if (result === undefined) world.violate(`${key} of ${log.run_id} got an answer that is not in the log`);
  else if (!sameJson(outcome.answer, result.type === "resumed" ? result.answer : { n: -1 }))
    world.violate(`${key} of ${log.run_id} got another answer than its own`);
}

function checkSubRun(world: World, log: WatchedLog, key: string, outcome: NonNullable<Heard["outcome"]>): void {
  const child = [...world.store.logs.values()].find(({ entries: [created] }) => {
    return created?.type === "created" && created.parent?.run_id === log.run_id && created.parent.key === key;
  });
  if ("error" in outcome) return;
  const run = outcome.answer as Run;
  if (child === undefined || run.finished_at === null)
    world.violate(`${key} of ${log.run_id} gave no run that has ended`);
  else if (!sameJson(run, recordsOf(child).at(-1))) world.violate(`${key} of ${log.run_id} gave another record`);
}

/** A key creates one run. */
function checkKeys(world: World): void {
  const keys = new Set<string>();
  for (const { idempotencyKey, run_id } of world.store.logs.values()) {
    if (idempotencyKey === null) continue;
    if (keys.has(idempotencyKey)) world.violate(`${idempotencyKey} made a second run, ${run_id}`);
    keys.add(idempotencyKey);
  }
}

/** A session holds the messages of its completed runs, one run after the other. */
function checkSessions(world: World): void {
  const expected = new Map<string, unknown[]>();
  for (const run_id of world.store.ended) {
    const log = world.store.logs.get(run_id);
    const [created] = log?.entries ?? [];
    if (log === undefined || created?.type !== "created" || log.head.status !== "completed") continue;
    const messages = expected.get(created.session_id) ?? [];
    expected.set(created.session_id, messages);
    messages.push(...transcript(foldEntries(run_id, log.entries)));
  }
  for (const [session_id, messages] of expected) {
    const session = world.store.session({ tenant: "", session_id });
    const isOwn = world.store.logs.has(session_id);
    // The session of a run that named none has no record until another run joins it, and is removed with the run.
    if (isOwn && (session === undefined || world.setting.forgetful)) continue;
    if (!sameJson(session?.history ?? [], messages))
      world.violate(`session ${session_id} holds ${session?.history.length} messages instead of ${messages.length}`);
  }
}
