import { failureOfStep } from "../core/failure.ts";
import { copyJson } from "../core/json.ts";
import type { StepEntry } from "../core/log.ts";
import type { Store } from "../core/ports.ts";
import type { Cassette } from "../durable/replay/cassette.ts";
import { plain, recordRun } from "../durable/replay/cassette.ts";
import type { Run } from "../protocol/run.ts";
import { readInput } from "../runtime/agent/input.ts";
import { Drive, stageOf } from "./drive.ts";
import { DriveError } from "./drive-error.ts";
import type { Operation } from "./operation.ts";

export type { Cassette } from "../durable/replay/cassette.ts";

/** Records the run of a drive so far. */
export function record(t: Drive): Promise<Cassette>;
/** Records a run from the store of its runtime. */
export function record(
  store: Store,
  run: Run | string,
  options?: { readonly tenant?: string | undefined },
): Promise<Cassette>;
export async function record(
  source: Drive | Store,
  run?: Run | string,
  { tenant = "" }: { readonly tenant?: string | undefined } = {},
): Promise<Cassette> {
  if (source instanceof Drive) return recordDrive(source);
  if (run === undefined) throw new DriveError("record(store, run): expected a run or its id as the second argument.");
  const run_id = typeof run === "string" ? run : run.run_id;
  const cassette = await recordRun(source, { tenant, run_id });
  if (cassette === undefined) throw new DriveError(`There is no run ${run_id} in this store.`);
  return cassette;
}

async function recordDrive(t: Drive): Promise<Cassette> {
  const { run_id } = t.run;
  const { history, state = null } = stageOf(t).settings.session ?? {};
  const operations = t.operations.filter(
    (operation) => operation.run_id === run_id && (operation.kind === "step" || operation.kind === "run"),
  );
  return plain({
    cassette: 1,
    run_id,
    entries: t.log,
    results: operations.filter(({ state }) => state !== "pending").map(resultOf),
    unfinished: operations.filter(({ state }) => state === "pending").map(({ key }) => key),
    complete: true,
    history: history === undefined ? [] : readInput(history),
    state,
  });
}

function resultOf({ key, state, result, error }: Operation): StepEntry {
  const isDone = state === "done";
  return {
    type: "step",
    at: 0,
    key,
    result: isDone ? copyJson(result) : undefined,
    error: isDone ? null : failureOfStep(error),
    usage: null,
  };
}
