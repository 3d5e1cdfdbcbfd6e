import { CadenzaError, notFound } from "../core/errors.ts";
import { foldEntries } from "../core/evolve.ts";
import { operationsOf, stopOf } from "../core/fork.ts";
import { LOCAL } from "../core/head.ts";
import type { Entry } from "../core/log.ts";
import type { RunHead, RunKey } from "../core/ports.ts";
import type { Cassette } from "../durable/replay/cassette.ts";
import { recordRun } from "../durable/replay/cassette.ts";
import { DryReplay } from "../durable/replay/dry-replay.ts";
import type { CodeOfRun, CodeTrials, OperationCode, StubbedSteps } from "../inspector/code-of-run.ts";
import type { JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Interceptor, StepInfo } from "../runtime/agent/interceptors.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import { insideKey } from "../runtime/api/inside.ts";
import { digestOf, machineClock, silentLogger, urlSafe } from "../runtime/log/system.ts";
import { callersOf, userPlaceOf } from "./stack.ts";

/** How long code may take to the next operation of a history, in milliseconds. */
const PATIENCE_MS = 1_000;

/**
 * What an inspector needs to try edited code on the runs of before: the option `playground` of `cadenza/inspector` takes it.
 * For the machine of who writes the agents. Give its `interceptor` to the runtime.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createInspectorHandler } from "cadenza/inspector";
 * import { createPlayground } from "cadenza/testing";
 *
 * const playground = createPlayground();
 * const runtime = new AgentRuntime({ interceptors: [playground.interceptor] });
 * const handler = createInspectorHandler(runtime, { playground, authorize: () => ({ allTenants: true }) });
 * const start = await handler(new Request("http://localhost/api/start"));
 * console.log(((await start.json()) as { has_playground: boolean }).has_playground); // → true
 * ```
 */
export function createPlayground(): Playground {
  return new Playground();
}

class Playground implements CodeTrials {
  /** For the runtime: gives the steps of stubbed forks their recorded results. */
  readonly interceptor: Interceptor = { step: (info, next) => this.#step(info, next) };
  #runtime: AgentRuntime | undefined;
  /** What the forks of a run get, by the id of the run. */
  readonly #stubs = new Map<string, ReadonlyMap<string, JsonValue>>();

  /**
   * Replays a run on the code that the runtime has registered, without a body of a step, and compares. Rejects with
   * `run_not_found`, and with `not_forkable` for a run without recorded results or without code.
   */
  async codeOf(runtime: AgentRuntime, key: RunKey): Promise<CodeOfRun> {
    const { store, registry, interceptors } = runtime[insideKey];
    const { entries: all } = await cassetteOf(runtime, key);
    const [created] = all;
    const agent =
      created?.type === "created" && created.durable ? registry.known(created.agent_name, created.version) : undefined;
    if (agent === undefined || agent.options.durable !== true)
      throw new CadenzaError("not_forkable", `The code of run ${key.run_id} is not here, or it is not durable.`, key);
    const isOver = all.at(-1)?.type === "ended";
    const entries = all.slice(0, stopOf(all)).filter(({ type }) => type !== "ended");
    const known = operationsOf(entries);
    const begun: string[] = [];
    const bodies = new Map<string, string>();
    let otherText: number | undefined;
    const head: RunHead = { ...noHead, status: foldEntries(key.run_id, entries).status };
    const replay = new DryReplay(store, {
      clock: machineClock(silentLogger),
      stallMs: PATIENCE_MS,
      placeOf: (callee) => userPlaceOf(callersOf(callee)),
      wrap: interceptors.run,
    });
    const onOperation = (operation: string, body: unknown): void => {
      begun.push(operation);
      if (typeof body === "function") bodies.set(operation, sourceOf(body));
    };
    const onDifference = (): void => {
      otherText ??= begun.length;
    };
    const mismatch = await replay.mismatch({ key, agent, head, entries, onOperation, onDifference });
    const operations: OperationCode[] = [];
    for (const operation of known) {
      const source = bodies.get(operation);
      operations.push({ key: operation, body: source === undefined ? null : urlSafe(await digestOf(source)) });
    }
    const placeOf = (operation: string | undefined): number => {
      const at = operation === undefined ? -1 : known.indexOf(operation);
      return at === -1 ? known.length : at;
    };
    const places: NonNullable<CodeOfRun["differs"]>[] = [];
    if (mismatch !== undefined) {
      const { expected, asked, at: line } = mismatch;
      places.push({ at: placeOf(firstFrom(entries, mismatch.position)), expected, asked, line });
    }
    if (otherText !== undefined)
      places.push({ at: placeOf(begun[otherText]), expected: "another text", asked: "a text", line: null });
    const further = begun.find((operation) => !known.includes(operation));
    if (mismatch === undefined && isOver && further !== undefined)
      places.push({ at: known.length, expected: "the end of the run", asked: further, line: null });
    return { operations, differs: places.toSorted((a, b) => a.at - b.at)[0] ?? null };
  }

  /** From now on, until the process ends, forks of the run get what it has recorded. Null: they do all for real. Rejects with `run_not_found`. */
  async stub(runtime: AgentRuntime, key: RunKey, stubbed: StubbedSteps | null): Promise<void> {
    this.#runtime = runtime;
    if (stubbed === null) {
      this.#stubs.delete(key.run_id);
      return;
    }
    const { results } = await cassetteOf(runtime, key);
    const isStubbed = (step: string, result: JsonValue | undefined): boolean =>
      stubbed.stub === "models" ? isModelCall(result) : !stubbed.except.includes(step);
    const taken = results.filter(({ error, key: step, result }) => error === null && isStubbed(step, result));
    this.#stubs.set(key.run_id, new Map(taken.map(({ key: step, result = null }) => [step, result])));
  }

  async #step({ tenant, run_id, key }: StepInfo, next: () => Promise<unknown>): Promise<unknown> {
    if (this.#runtime === undefined || this.#stubs.size === 0) return next();
    const run = await this.#runtime[insideKey].store.find({ tenant, run_id });
    const stub = this.#stubs.get(run?.created.origin?.run_id ?? "");
    return stub?.has(key) ? stub.get(key) : next();
  }
}

async function cassetteOf(runtime: AgentRuntime, key: RunKey): Promise<Cassette> {
  const cassette = await recordRun(runtime[insideKey].store, key);
  if (cassette === undefined) throw notFound(key.run_id);
  return cassette;
}

/** A function that knows what its work depends on says it by a digest of its own. */
function sourceOf(body: object): string {
  return "digest" in body && typeof body.digest === "string" ? body.digest : String(body);
}

function isModelCall(result: JsonValue | undefined): boolean {
  return isJsonObject(result) && "model" in result && "prompt" in result && "answer" in result;
}

/** The first operation that begins at a position of the log or behind it. */
function firstFrom(entries: readonly Entry[], position: number): string | undefined {
  const before = new Set(operationsOf(entries.slice(0, position)));
  return operationsOf(entries).find((key) => !before.has(key));
}

const noHead: RunHead = {
  ...{ status: "in-progress", epoch: 1, owner: LOCAL, due_at: null, blocked: null },
  ...{ holds_slot: false, finished_at: null, takeovers: 0 },
};
