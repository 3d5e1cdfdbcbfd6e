import { copyJson } from "../../core/json.ts";
import type { Entry, StepEntry } from "../../core/log.ts";
import { isWait } from "../../core/operation-keys.ts";
import type { RunKey, Store } from "../../core/ports.ts";
import { runRecord } from "../../core/record.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import { isSameSession } from "../../runtime/execution/run-session.ts";
import { eachInTurns, foldLog, readRange } from "../../runtime/log/fold-log.ts";
import { guarded } from "../../runtime/log/store-failures.ts";
import { allRuns } from "../../runtime/runs/deleting.ts";

/** A run as plain JSON: keep it in a file, and `replay` it against later versions of the agent. */
export interface Cassette {
  /** The version of this format. */
  readonly cassette: 1;
  readonly run_id: string;
  /** The run's log. */
  readonly entries: readonly Entry[];
  /** The results of its steps and sub-runs. */
  readonly results: readonly StepEntry[];
  /** The keys of its steps and sub-runs that have begun and have no result. */
  readonly unfinished?: readonly string[];
  /** Whether `results` holds all of them. A run that is not durable leaves no steps in a store. */
  readonly complete: boolean;
  /** The history of its session when it began. */
  readonly history: readonly Message[];
  /** The session's state when it began, if it is known. */
  readonly state: JsonValue;
}

/** Records a run from its store; undefined if the store does not have it. */
export async function recordRun(from: Store, key: RunKey): Promise<Cassette | undefined> {
  const store = guarded(from);
  const stored = await store.find(key);
  if (stored === undefined) return undefined;
  const log = (await readRange(store, key, 0, stored.position)) ?? [];
  const entries: Entry[] = [];
  const recorded = new Map<string, StepEntry>();
  const unfinished = new Set<string>();
  const waits = new Set<string>();
  await eachInTurns(store, log, (read) => {
    const entry = plain(read);
    entries.push(entry);
    if (entry.type === "intent") (isWait(entry) ? waits : unfinished).add(entry.key);
    if (entry.type !== "step" || waits.has(entry.key)) return;
    recorded.set(entry.key, plain(entry));
    unfinished.delete(entry.key);
  });
  const { session_id, history_length = 0, durable = false } = stored.created;
  const range = { from: 0, to: history_length };
  const session = history_length > 0 ? await store.session({ tenant: key.tenant, session_id }, range) : undefined;
  const results = durable ? [...recorded.values()] : (await subRunsOf(store, key)).map(plain);
  return {
    cassette: 1,
    run_id: key.run_id,
    entries,
    results,
    unfinished: [...unfinished],
    complete: durable,
    history: plain(isSameSession(stored.created, session) ? session.history : []),
    state: copyJson(recorded.get("session.getState#1")?.result ?? null) ?? null,
  };
}

/** The sub-runs of a run that is not durable are found by their parent. */
async function subRunsOf(store: Store, { tenant, run_id }: RunKey): Promise<StepEntry[]> {
  const found: StepEntry[] = [];
  for (const { key, created, head, position } of await allRuns(store, { tenant, parents: [run_id] }, (run) => run)) {
    if (created?.parent === undefined || head.finished_at === null) continue;
    const state = await foldLog(store, key, position);
    if (state === undefined) continue;
    // The library makes run records, and they are JSON.
    const result = runRecord(state) as unknown as JsonValue;
    found.push({ type: "step", at: head.finished_at, key: created.parent.key, result, error: null, usage: null });
  }
  return found;
}

/** A copy that shares nothing with the original, as `JSON.parse` would return it. */
export function plain<Value extends Cassette | Entry | readonly Message[]>(value: Value): Value {
  return copyJson(value) as unknown as Value;
}
