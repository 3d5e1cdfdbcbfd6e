import { decideArrived } from "../../core/decide.ts";
import { CadenzaError, notFound } from "../../core/errors.ts";
import { evolve, foldEntries } from "../../core/evolve.ts";
import type { ContinuedEntry, Entry } from "../../core/log.ts";
import type { Arrived, Clock, RunKey, Store, StoredRun } from "../../core/ports.ts";
import { behind, positionIn } from "../../core/positions.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { runRecord, saidUntil } from "../../core/record.ts";
import { roughLengthOf } from "../../core/rough-length.ts";
import type { Snapshot } from "../../core/snapshot.ts";
import { fromSnapshot } from "../../core/snapshot.ts";
import type { RunState } from "../../core/state.ts";
import { initialState } from "../../core/state.ts";
import type { Message } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import { isLogSizeError, logSizeError } from "./part-size.ts";
import { nextTurn, TURN_ENTRIES } from "./system.ts";

/** How many entries are read from the store at a time. */
export const READ_CHUNK = 256;
/** How many entries a log may have that is not long. A long one is searched from its end, and measured, by so many at a time. */
const LONG_CHUNK = 1_000;
/** How many entries at the end of a long log are looked at for the beginning of its last generation. */
const LOOK_BACK = 8 * LONG_CHUNK;

/** About how many characters of a log are kept before it is known whether the whole log may be read. */
const KEPT_UNMEASURED = 16 * 1024 * 1024;

/** After so many characters other work has a turn. */
const LARGE_CHUNK = 256 * 1024;

/** About how many characters of JSON the log of a run may have, unless a runtime says otherwise. */
export const MAX_LOG = 256 * 1024 * 1024;
const readings = new WeakMap<Store, LogReading>();

/** How the logs of a store are read. */
interface LogReading {
  /** How long a log of a persistent store may be that is folded or read as a whole. */
  readonly maxLogBytes: number;
  /** How long a log is whose snapshot is looked for. */
  readonly snapshotsFrom: number;
  readonly clock: Pick<Clock, "turn">;
}

/** How logs are read that no runtime reads. */
const plainly: LogReading = { maxLogBytes: MAX_LOG, snapshotsFrom: TURN_ENTRIES, clock: { turn: nextTurn } };

/** Says how a runtime reads the logs of its store. */
export function readLogsOf(store: Store, reading: Partial<LogReading>): void {
  readings.set(store, { ...readingOf(store), ...reading });
}

function readingOf(store: Store): LogReading {
  return readings.get(store) ?? plainly;
}

/** A turn of the event loop for other work: a store that answers at once would hold up all that is timed. */
export function turnOf(store: Store): Promise<void> {
  return readingOf(store).clock.turn();
}

/**
 * Counts what is read of a log of a persistent store, anew for each generation of the run. `kept`: what comes behind it and
 * is counted already. Throws `limit_reached` if it is too much.
 */
function measure(store: Store, key: RunKey, size: number, entries: readonly Entry[] | undefined, kept = 0): number {
  if (!store.persistent || entries === undefined) return 0;
  const most = readingOf(store).maxLogBytes;
  const begin = entries.findLastIndex(({ type }) => type === "continued");
  const measured = begin === -1 ? size + roughLengthOf(entries) : kept + roughLengthOf(entries.slice(begin));
  if (measured > most) throw logSizeError(key.run_id, most);
  return measured;
}

/** The state of a run in the store, up to a position of its log. Undefined: the store does not have the run. */
export function foldLog(store: Store, key: RunKey, until: number): MaybePromise<RunState | undefined> {
  const onError = (error: unknown) => foldEnds(store, key, until, error);
  try {
    const isLong = until > readingOf(store).snapshotsFrom && Number.isFinite(until);
    const folded = isLong ? foldLong(store, key, until) : foldOn(store, key, initialState(key.run_id), until);
    return isPromise(folded) ? folded.catch(onError) : folded;
  } catch (error) {
    return onError(error);
  }
}

/**
 * The newest snapshot of a run that holds at most so many entries and events, as a state on which later entries can be folded. Where
 * it holds more events, the beginning of the last generation that does not. Undefined: there is neither.
 */
export async function snapshotOf(
  store: Store,
  key: RunKey,
  entries: number,
  events = Number.POSITIVE_INFINITY,
): Promise<RunState | undefined> {
  if (events === 0 || entries <= readingOf(store).snapshotsFrom) return undefined;
  const snapshot = await readSnapshot(store, key);
  if (snapshot === undefined || snapshot.position > entries) return undefined;
  const state = fromSnapshot(snapshot);
  return state === undefined || state.events <= events ? state : generationBefore(store, key, state, events);
}

/**
 * The beginning of the last generation that holds at most so many events, looked for from a later state. Undefined: it is the
 * first one, or is deleted.
 */
async function generationBefore(
  store: Store,
  key: RunKey,
  { generation }: RunState,
  events: number,
): Promise<RunState | undefined> {
  for (let position = generation?.position; position !== undefined; await turnOf(store)) {
    const [entry] = (await store.read(key, position, 1)) ?? [];
    if (entry?.type !== "continued" || entry.position !== position) return undefined;
    const state = initialState(key.run_id);
    if (entry.events < events && (await foldOn(store, key, state, 1)) !== undefined) {
      evolve(state, entry);
      if (state.events <= events) return state;
    }
    position = entry.previous;
  }
  return undefined;
}

/** A run can be read without its snapshot. Where the store fails as a whole, so does what is read instead. */
async function readSnapshot(store: Store, key: RunKey): Promise<Snapshot | undefined> {
  try {
    return await store.snapshot?.(key);
  } catch {
    return undefined;
  }
}

/** Begins with a snapshot, or with the last generation, if that is not far from the end. */
async function foldLong(store: Store, key: RunKey, until: number): Promise<RunState | undefined> {
  const state = (await snapshotOf(store, key, until)) ?? initialState(key.run_id);
  // What is looked at for a generation is not read twice.
  if (until - state.position <= LOOK_BACK + LONG_CHUNK) return foldOn(store, key, state, until);
  const tail = await tailOf(store, key, until);
  if (tail === undefined) return foldOn(store, key, state, until);
  const begun = tail.isGeneration ? initialState(key.run_id) : state;
  if ((await foldOn(store, key, begun, tail.isGeneration ? 1 : tail.from)) === undefined) return undefined;
  await eachInTurns(store, tail.entries, (entry) => evolve(begun, entry));
  return begun;
}

/** The end of a log. `isGeneration`: its last generation begins there. */
interface Tail {
  readonly from: number;
  /** About how many characters they have as JSON. */
  readonly size: number;
  readonly entries: readonly Entry[];
  readonly isGeneration: boolean;
}

/** Of a log that is short. */
const noTail: Omit<Tail, "from"> = { size: 0, entries: [], isGeneration: false };

/** Looks back from the end of a log for the beginning of its last generation. Undefined: the store has fewer entries. */
async function tailOf(store: Store, key: RunKey, until: number): Promise<Tail | undefined> {
  let entries: readonly Entry[] = [];
  let from = until;
  let size = 0;
  while (from > 1 && until - from < LOOK_BACK && size < KEPT_UNMEASURED) {
    const at = Math.max(1, from - LONG_CHUNK);
    const chunk = await readWhole(store, key, at, from);
    if (chunk === undefined) return undefined;
    const begin = chunk.findLastIndex(({ type }) => type === "continued");
    const found = chunk.slice(Math.max(begin, 0));
    entries = [...found, ...entries];
    from = positionIn(chunk, Math.max(begin, 0), at);
    size += roughLengthOf(found);
    if (begin !== -1) return { from, size, entries, isGeneration: true };
    await turnOf(store);
  }
  return { from, size, entries, isGeneration: false };
}

/** Of a log that is too large, where it says that the run has failed: the state without what is in between. */
async function foldEnds(store: Store, key: RunKey, until: number, error: unknown): Promise<RunState> {
  if (!isLogSizeError(error) || !Number.isFinite(until)) throw error;
  const [created] = (await store.read(key, 0, 1)) ?? [];
  const [ended] = (await store.read(key, until - 1, 1)) ?? [];
  if (created === undefined || ended?.type !== "ended" || ended.outcome !== "failed") throw error;
  const [continued] = ended.generation_at === undefined ? [] : ((await store.read(key, ended.generation_at, 1)) ?? []);
  const state = foldEntries(key.run_id, continued?.type === "continued" ? [created, continued] : [created]);
  evolve(state, ended);
  state.position = until;
  return state;
}

/** The entry with which the last generation of a long log begins. Nothing of the log is kept. Undefined: it is the first one. */
export async function lastGeneration(store: Store, key: RunKey, until: number): Promise<ContinuedEntry | undefined> {
  for (let to = until; to > 1; ) {
    const from = Math.max(1, to - LONG_CHUNK);
    let found: ContinuedEntry | undefined;
    // Where entries are large, a store gives fewer.
    for (let at = from; at < to; ) {
      const chunk = (await store.read(key, at, to - at)) ?? [];
      if (chunk.length === 0) break;
      for (const entry of chunk) {
        if (entry.type === "continued") found = entry;
        at = behind(at, entry);
      }
      await turnOf(store);
    }
    if (found !== undefined) return found;
    to = from;
  }
  return undefined;
}

/**
 * Folds the rest of a log, up to a position, on a state of it. It never answers at once for a long rest. Undefined: the store
 * does not have the run.
 */
export function foldOn(
  store: Store,
  key: RunKey,
  state: RunState,
  until: number,
  from = 0,
): MaybePromise<RunState | undefined> {
  let size = from;
  const begun = state.position;
  for (;;) {
    const entries = store.read(key, state.position, Math.min(READ_CHUNK, until - state.position));
    if (isPromise(entries))
      return entries.then((later) => {
        const measured = measure(store, key, size, later);
        return foldChunk(state, later, until)
          ? foldOn(store, key, state, until, measured)
          : stateOrNothing(state, later);
      });
    size = measure(store, key, size, entries);
    if (!foldChunk(state, entries, until)) return stateOrNothing(state, entries);
    if (state.position - begun >= TURN_ENTRIES || size - from > LARGE_CHUNK)
      return turnOf(store).then(() => foldOn(store, key, state, until, size));
  }
}

/** Calls back for each entry of a log that was read. Of a long log other work has turns meanwhile. */
export async function eachInTurns(
  store: Store,
  entries: readonly Entry[],
  callback: (entry: Entry) => void,
): Promise<void> {
  for (const [index, entry] of entries.entries()) {
    callback(entry);
    if ((index + 1) % TURN_ENTRIES === 0) await turnOf(store);
  }
}

/** What was said in a run before a generation that begins at this position. */
export async function saidBefore(store: Store, key: RunKey, until: number): Promise<readonly Message[]> {
  const state = initialState(key.run_id);
  const said: Message[] = [];
  while (state.position <= until) {
    const entries = await store.read(key, state.position, Math.min(READ_CHUNK, until + 1 - state.position));
    if (entries === undefined || entries.length === 0) break;
    for (const entry of entries) {
      // What was said before is deleted, or a part of it.
      if (entry.type === "continued" && entry.position > state.position) said.length = 0;
      else if (entry.type === "continued") for (const message of saidUntil(state, entry)) said.push(message);
      evolve(state, entry);
    }
    await turnOf(store);
  }
  return said;
}

/** A run in the store with its state after all that was said to it: see {@link foldStored}. Throws `run_not_found`. */
export async function foldAll(store: Store, key: RunKey): Promise<Folded> {
  const stored = await findStored(store, key);
  return { stored, state: await foldStored(store, stored) };
}

/** A run in the store, and its state. */
export interface Folded {
  readonly stored: StoredRun;
  readonly state: RunState;
}

/**
 * The state of a run up to its position. What lies in its inbox counts as if it were decided.
 * Throws `run_not_found` if the store has deleted the run.
 */
export async function foldStored(store: Store, { key, position, inbox = [] }: StoredRun): Promise<RunState> {
  return foldInbox(present(key, await foldLog(store, key, position)), inbox);
}

/** Folds what lies in an inbox on the state of its run. */
export function foldInbox(state: RunState, inbox: readonly Arrived[]): RunState {
  for (const { entries } of inbox)
    for (const entry of entries) for (const decided of decideArrived(state, entry)) evolve(state, decided);
  return state;
}

/** The run as the store has it, with what has arrived for it. Throws `run_not_found`. */
export async function findStored(store: Store, key: RunKey): Promise<StoredRun> {
  const stored = await store.find(key, "with inbox");
  if (stored === undefined) throw notFound(key.run_id);
  return stored;
}

/**
 * The entries of a log up to a length, without generations that are deleted. Undefined: the store has fewer.
 */
export function readLog(store: Store, key: RunKey, length: number): Promise<readonly Entry[] | undefined> {
  return readWhole(store, key, 0, length);
}

/** As {@link readRange}. Undefined: the log ends before. */
async function readWhole(store: Store, key: RunKey, from: number, to: number): Promise<readonly Entry[] | undefined> {
  const entries: Entry[] = [];
  const part = await eachOfPart(store, key, from, to, (entry) => entries.push(entry));
  return part?.end === to ? entries : undefined;
}

/** What {@link eachOfGeneration} reads. */
export async function readGeneration(store: Store, key: RunKey, length: number): Promise<readonly Entry[] | undefined> {
  const entries: Entry[] = [];
  const size = await eachOfGeneration(store, key, length, (entry) => entries.push(entry));
  return size === undefined ? undefined : entries;
}

/**
 * Calls back for what a run does again, up to this length of its log: its first entry, and its last generation if that is not
 * long. The entries say where they are. Resolves with about how many characters of JSON the generation has, 0 in a store
 * that is not persistent. Undefined: the store has fewer entries.
 */
export async function eachOfGeneration(
  store: Store,
  key: RunKey,
  length: number,
  callback: (entry: Entry) => void,
): Promise<number | undefined> {
  const isLong = length > LONG_CHUNK;
  const tail = isLong ? await tailOf(store, key, length) : { ...noTail, from: length };
  if (tail === undefined) return undefined;
  const first = tail.isGeneration ? 1 : tail.from;
  const part = await eachOfPart(store, key, 0, first, callback, store.persistent ? tail.size : 0);
  if (part?.end !== first) return undefined;
  await eachInTurns(store, tail.entries, callback);
  return tail.isGeneration ? tail.size : part.size;
}

/** The entries of a log between two positions, as far as the store has them. Undefined: it does not have the run. */
export async function readRange(
  store: Store,
  key: RunKey,
  from: number,
  to: number,
): Promise<readonly Entry[] | undefined> {
  const entries: Entry[] = [];
  const part = await eachOfPart(store, key, from, to, (entry) => entries.push(entry));
  return part && entries;
}

/**
 * Calls back for the entries of {@link readRange}. Resolves with the position behind the last one. `kept`: how many
 * characters of what follows are kept already.
 */
async function eachOfPart(
  store: Store,
  key: RunKey,
  from: number,
  to: number,
  callback: (entry: Entry) => void,
  kept = 0,
): Promise<{ readonly size: number; readonly end: number } | undefined> {
  let size = kept;
  let at = from;
  while (at < to) {
    const chunk = await store.read(key, at, Math.min(TURN_ENTRIES, to - at));
    if (chunk === undefined) return undefined;
    if (chunk.length === 0) break;
    const had = size;
    size = measure(store, key, size, chunk, kept);
    for (const entry of chunk) {
      callback(entry);
      at = behind(at, entry);
    }
    // After many entries, what the caller does with them has a turn of its own.
    if (at < to || chunk.length >= READ_CHUNK) await turnOf(store);
    // Several logs may be read at once, of which none is to take the memory that it could.
    if (had <= KEPT_UNMEASURED && size > KEPT_UNMEASURED) await measureRest(store, key, at, to, size);
  }
  return { size, end: at };
}

/** Reads the rest of a log and keeps nothing. Throws `limit_reached` if the log is too long. */
async function measureRest(store: Store, key: RunKey, from: number, to: number, size: number): Promise<void> {
  let at = from;
  let measured = size;
  while (at < to) {
    const chunk = await store.read(key, at, Math.min(LONG_CHUNK, to - at));
    if (chunk === undefined || chunk.length === 0) return;
    at = positionIn(chunk, chunk.length - 1, at) + 1;
    measured = measure(store, key, measured, chunk);
    await turnOf(store);
  }
}

/** The record of a run in the store, up to a position. Throws `run_not_found` if the store has deleted it. */
export function committedRecord(store: Store, key: RunKey, until: number): MaybePromise<Run> {
  const folded = foldLog(store, key, until);
  return isPromise(folded) ? folded.then((state) => runRecord(present(key, state))) : runRecord(present(key, folded));
}

/** The state, or `run_not_found` if the store has deleted the run. */
function present({ run_id }: RunKey, state: RunState | undefined): RunState {
  if (state !== undefined) return state;
  throw new CadenzaError("run_not_found", `Run ${run_id} is not in the store any more.`, { run_id });
}

/** Folds a chunk of entries. Returns whether there may be more. */
function foldChunk(state: RunState, entries: readonly Entry[] | undefined, until: number): boolean {
  for (const entry of entries ?? []) evolve(state, entry);
  return entries !== undefined && entries.length > 0 && state.position < until;
}

function stateOrNothing(state: RunState, entries: readonly Entry[] | undefined): RunState | undefined {
  return entries === undefined ? undefined : state;
}
