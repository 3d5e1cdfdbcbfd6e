import { CadenzaError, notFound } from "../../core/errors.ts";
import { evolve } from "../../core/evolve.ts";
import type { Entry } from "../../core/log.ts";
import type { RunKey, Store, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { initialState } from "../../core/state.ts";
import type { Run } from "../../protocol/run.ts";

/** How many entries are read from the store at a time. */
export const READ_CHUNK = 256;
/** How many entries of a whole log are read at a time. */
const LONG_CHUNK = 1_000;

/** The state of a run in the store, up to a position of its log. Undefined: the store does not have the run. */
export function foldLog(store: Store, key: RunKey, until: number): MaybePromise<RunState | undefined> {
  return foldOn(store, key, initialState(key.run_id), until);
}

/** Folds the rest of a log, up to a position, on a state of it. Undefined: the store does not have the run. */
export function foldOn(store: Store, key: RunKey, state: RunState, until: number): MaybePromise<RunState | undefined> {
  for (;;) {
    const entries = store.read(key, state.position, Math.min(READ_CHUNK, until - state.position));
    if (isPromise(entries))
      return entries.then((later) =>
        foldChunk(state, later, until) ? foldOn(store, key, state, until) : stateOrNothing(state, later),
      );
    if (!foldChunk(state, entries, until)) return stateOrNothing(state, entries);
  }
}

/** The run as the store has it. Throws `run_not_found`. */
export async function findStored(store: Store, key: RunKey): Promise<StoredRun> {
  const stored = await store.find(key);
  if (stored === undefined) throw notFound(key.run_id);
  return stored;
}

/** The first `length` entries of a log. Undefined: the store has fewer. */
export async function readLog(store: Store, key: RunKey, length: number): Promise<readonly Entry[] | undefined> {
  const all: Entry[] = [];
  while (all.length < length) {
    const chunk = await store.read(key, all.length, Math.min(LONG_CHUNK, length - all.length));
    if (chunk === undefined || chunk.length === 0) return undefined;
    for (const entry of chunk) all.push(entry);
  }
  return all;
}

/** The record of a run in the store, up to a position. Throws `run_not_found` if the store has deleted it. */
export function committedRecord(store: Store, key: RunKey, until: number): MaybePromise<Run> {
  const folded = foldLog(store, key, until);
  return isPromise(folded) ? folded.then((state) => runRecord(present(key, state))) : runRecord(present(key, folded));
}

/** The state, or `run_not_found` if the store has deleted the run. */
export function present({ run_id }: RunKey, state: RunState | undefined): RunState {
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
