import type { Run, Scope, Session, StreamedEvent } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import type { RunState } from "../internals.ts";
import { foldEntries, isFinal } from "../internals.ts";
import type { LogOf, Shown } from "../judge.ts";
import { misjudged, mistold, shownBy } from "../judge.ts";
import { markOf } from "../tenants.ts";
import { disordered } from "../time-judge.ts";
import type { ClientScript } from "./client.ts";
import { Client } from "./client.ts";
import { Family } from "./family.ts";
import type { Crash, Process, WorldOptions } from "./world.ts";
import { LONGEST_PAUSE_MS, SECRET, scopeIn, World } from "./world.ts";

/** The agents, and what a client does with a run of them. */
export interface Script extends ClientScript {
  /** Registers the agents; `agent` is the one that is run. */
  readonly register: (process: Process) => void;
  readonly input?: string;
  /** Makes the run. It may be called again if the process dies. Default: creates a run of the agent. */
  readonly create?: (process: Process) => Promise<Pick<Run, "run_id">>;
  readonly session?: { readonly id: string; readonly history: readonly string[] };
  /** Whose run it is. Default: of the empty tenant. */
  readonly tenant?: string;
  readonly timeoutMs?: number;
  /** Whether the client makes its calls in a process that does not execute the run. */
  readonly elsewhere?: true;
}

export interface PlayOptions extends Omit<WorldOptions, "register"> {
  /** The world in which the run is made. Default: a new one. */
  readonly world?: World;
  /** When the first process dies, the second one, and so on. */
  readonly crashes?: readonly Crash[];
  /** Called between any two steps of the world. */
  readonly disturb?: (world: World) => void;
}

/** How the run ended, and what the client saw. */
export interface Played {
  readonly world: World;
  readonly run_id: string;
  readonly run: Run;
  readonly state: RunState;
  readonly log: readonly Entry[];
  readonly shown: Shown;
  readonly session: Session;
  /** The ending without times and ids, to compare it with that of another play. */
  readonly ending: Ending;
}

export interface Ending {
  readonly status: string;
  readonly error: unknown;
  readonly output: readonly string[];
  readonly usage: unknown;
  /** The session's messages, and its state. */
  readonly history: readonly string[];
  readonly session: unknown;
  readonly counted: unknown;
}

/** After how long a client repeats what a failing store has refused, in milliseconds. */
const AGAIN_MS = 100;

/** Plays a script to its end, whatever happens to the processes meanwhile. */
export async function play(script: Script, options: PlayOptions = {}): Promise<Played> {
  const playing = new Play(script, options);
  await playing.begin();
  return playing.toTheEnd();
}

/** A script that is played. Several may be played in one world at once. */
export class Play {
  readonly #script: Script;
  readonly #options: PlayOptions;
  readonly world: World;
  readonly #tenant: string;
  readonly #followed = new Set<Process>();
  readonly #seen: StreamedEvent[] = [];
  /** The id of the run, once it is created. */
  runId = "";
  /** Lets the run be deleted. */
  #unwatch: () => void = () => {};
  /** Whether no process is disturbed any more. */
  #isOver = false;
  /** Whether the test has seen all that it looks at. */
  #isDone = false;

  constructor(script: Script, options: PlayOptions) {
    this.#script = script;
    this.#options = options;
    this.#tenant = script.tenant ?? "";
    this.world = options.world ?? new World({ ...options, register: script.register });
  }

  /** Creates the run. */
  async begin(): Promise<void> {
    if (this.world.workers.length === 0) this.#start();
    this.runId = await this.#create();
    this.#unwatch = this.world.watch({ tenant: this.#tenant, run_id: this.runId });
    if (this.#script.elsewhere === true) this.#start();
  }

  async toTheEnd(): Promise<Played> {
    const world = this.world;
    const family = new Family(world, this.runId, this.#tenant);
    const client = new Client(this.#script, world, family, this.#tenant);
    for (;;) {
      const process = this.#process();
      this.#follow(process);
      await family.look();
      if (isFinal(family.root.state.status)) break;
      if (await client.act(process)) continue;
      this.#options.disturb?.(world);
      await world.step();
    }
    await this.#othersEnd(family);
    const played = await this.#ended();
    await this.#judge(client, family, played);
    this.#isDone = true;
    this.#unwatch();
    return played;
  }

  async #judge(client: Client, family: Family, { shown }: Played): Promise<void> {
    const { world, runId } = this;
    const logOf: LogOf = (id) => world.log(id, this.#tenant);
    const told = { ...client.told, seen: this.#seen };
    world.violations.push(
      ...(await mistold(runId, told, shown, logOf, (id) => world.inbox(id, this.#tenant))),
      ...(await misjudged(runId, logOf)),
    );
    for (const { log, state } of family.members) {
      const { run_id } = state;
      const key = { tenant: this.#tenant, run_id };
      world.violations.push(
        ...world.bodies.misran(`${markOf(this.#tenant || undefined)}${run_id}`, log),
        ...world.mistimed(key, log),
      );
      const its = run_id === runId ? shown : await this.#shownUnlessDeleted(run_id);
      if (its !== undefined) world.violations.push(...disordered(its).map((what) => `${what}: ${run_id}`));
    }
  }

  /** What is shown of a sub-run, which may be deleted, also while it is asked for. */
  async #shownUnlessDeleted(run_id: string): Promise<Shown | undefined> {
    const isThere = async (): Promise<boolean> => (await this.world.find(run_id, this.#tenant)) !== undefined;
    if (!(await isThere())) return undefined;
    try {
      return await this.#ask((scope) => shownBy(scope, run_id));
    } catch (error) {
      if (await isThere()) throw error;
      return undefined;
    }
  }

  async #create(): Promise<string> {
    const { create = (process) => this.#createRun(process) } = this.#script;
    for (;;) {
      const process = this.#process();
      const outcome = await this.world.until(create(process), process);
      if (outcome !== undefined && "value" in outcome) return outcome.value.run_id;
      // The client cannot know what has become of its call, and repeats it with its key.
      if (outcome !== undefined && !isStoreFailure(outcome.error)) throw outcome.error;
      if (outcome !== undefined) await this.world.pass(AGAIN_MS);
    }
  }

  #createRun(process: Process): Promise<Run> {
    const { input = "Go.", session, timeoutMs, labels } = this.#script;
    return this.#scope(process).createRun(
      { agent_name: "agent", input, mode: "async", ...(session && { session_id: session.id }) },
      {
        idempotencyKey: "the run",
        ...(timeoutMs !== undefined && { timeoutMs }),
        ...(labels !== undefined && { labels }),
        ...(session && { session: { history: session.history.map((content) => ({ parts: [{ content }] })) } }),
      },
    );
  }

  /** A living process. If there is none, one more is started. */
  #process(): Process {
    const { random } = this.#options;
    if (this.world.workers.length === 0) {
      for (const frozen of this.world.living) frozen.thaw();
      if (this.world.workers.length === 0) return this.#start();
    }
    const first = this.#script.elsewhere === true ? this.world.working.at(-1) : this.world.working[0];
    if (first === undefined) throw new Error("There is no process.");
    return random === undefined ? first : random.pick(this.world.working);
  }

  #start(): Process {
    return this.world.start(this.#isOver ? undefined : this.#options.crashes?.[this.world.processes.length]);
  }

  /** A client that reads the events of the run from a process. */
  #follow(process: Process): void {
    if (this.#followed.has(process)) return;
    this.#followed.add(process);
    const reading = async (): Promise<void> => {
      for await (const event of this.#scope(process).events(this.runId, { until: "end" })) this.#seen.push(event);
    };
    reading().catch((error: unknown) => {
      // The run may be deleted as soon as the test does not look at it any more.
      if (this.#isDone) return;
      // A reader that is told of a failure of the store reads again, after a pause in which time passes.
      if (isStoreFailure(error))
        process.wait(AGAIN_MS).then(
          () => this.#followed.delete(process),
          () => {},
        );
      else this.world.violations.push(`a reader failed: ${String(error)}`);
    });
  }

  /** Waits until the sub-runs have ended too. */
  async #othersEnd(family: Family): Promise<void> {
    const world = this.world;
    const until = world.now + 60_000;
    for (; ; await world.step()) {
      await family.look();
      if (family.members.every(({ state }) => isFinal(state.status))) return;
      this.#process();
      if (world.now <= until) continue;
      world.violations.push("A sub-run does not end.");
      return;
    }
  }

  async #ended(): Promise<Played> {
    const world = this.world;
    const { runId } = this;
    this.#isOver = true;
    for (const each of world.living) {
      each.crash = undefined;
      each.thaw();
      each.startClock();
    }
    // The other processes see the end after a while.
    await world.pass(1_000);
    const log = await world.log(runId, this.#tenant);
    const state = foldEntries(runId, log);
    let run = await this.#ask((scope) => scope.getRun(runId));
    // A process that was not told of its last write tries it again after a pause.
    for (let until = world.now + LONGEST_PAUSE_MS; !isFinal(run.status) && world.now < until; ) {
      await world.pass(1_000);
      run = await this.#ask((scope) => scope.getRun(runId));
    }
    const shown = await this.#ask((scope) => shownBy(scope, runId));
    const session = await this.#ask((scope) => scope.getSession(run.session_id));
    const { agents } = await this.#ask((_scope, { runtime }) => runtime.stats());
    const { completed, failed, cancelled } = agents["agent"] ?? {};
    const ending: Ending = {
      status: run.status,
      error: neutral(run.error),
      output: run.output.map(textOf),
      usage: state.usage,
      history: session.history.map(textOf),
      session: session.state,
      counted: { completed, failed, cancelled },
    };
    return { world, run_id: runId, run, state, log, shown, session, ending };
  }

  #scope(process: Process): Scope {
    return scopeIn(process, this.#tenant);
  }

  /** Asks a process. A client that is told of a failure of the store asks again, and another process if this one dies. */
  async #ask<T>(ask: (scope: Scope, process: Process) => Promise<T>): Promise<T> {
    for (;;) {
      const process = this.#process();
      const outcome = await this.world.until(ask(this.#scope(process), process), process);
      if (outcome === undefined) continue;
      if ("value" in outcome) return outcome.value;
      if (!isStoreFailure(outcome.error)) throw outcome.error;
      if (String(outcome.error).includes(SECRET)) throw new Error("A client is told what the store said.");
      await this.world.step();
    }
  }
}

function isStoreFailure(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "store_failed";
}

function textOf({ role, parts }: Run["output"][number]): string {
  return `${role}: ${parts.map(({ content, content_url, name }) => `${name ?? ""}${content ?? content_url}`).join("|")}`;
}

/** The value without times and ids. */
function neutral(value: unknown): unknown {
  const text = JSON.stringify(value)
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "an id")
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "a time");
  return JSON.parse(text) as unknown;
}
