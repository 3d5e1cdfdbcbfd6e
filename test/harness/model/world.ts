import type { ResumeRequest, Run, StreamedEvent } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import type { Plant } from "../planted-faults.ts";
import { ModelClock } from "./clock.ts";
import type { Manners } from "./puppet.ts";
import { Puppet, playAsFunction, playAsGenerator } from "./puppet.ts";
import { LateStore, WatchedStore } from "./store.ts";

/** The settings of a world. */
export interface Setting {
  /** Whether the store answers at once, late, or late with failures. */
  readonly store: "at once" | "late" | "failing";
  /** Whether only two ended runs are retained. */
  readonly forgetful: boolean;
  /** Whether listeners get the events of all runs. */
  readonly listens: boolean;
  /** The faults that a test plants. Default: none. */
  readonly plant?: Pick<Plant, "store" | "clock">;
}

export const GRACE_MS = 500;
export const RUN_TIMEOUT_MS = 1_000;
export const LONGEST_DEADLINE_MS = 250;

/** The agents of every world. */
export const agents = ["puppet", "function", "narrow", "picky", "private", "hurried", "child"] as const;

/** The outcome of a call, and what the store held of the run at that time. */
export interface Call {
  readonly does: "create" | "accept" | "resume" | "accept answer" | "cancel" | "get";
  readonly run_id: string | undefined;
  readonly answer?: { readonly n: number; readonly await_id: string | undefined; readonly key: string | undefined };
  readonly idempotencyKey?: string | undefined;
  /** The input of a new run, by which it is recognised in the store. */
  readonly input?: string;
  /** How many entries of the run were committed when the call was made. */
  readonly before: number;
  outcome: { readonly run: Run; readonly committed: number } | { readonly error: unknown } | undefined;
}

/** The request for a new run. */
export interface NewRun {
  readonly agent_name: string;
  readonly input: string;
  readonly session_id?: string;
}

/** A reader of the events of a run. */
export interface Reader {
  /** Undefined for a stream that creates its run. */
  readonly run_id: string | undefined;
  readonly input?: string;
  readonly idempotencyKey?: string | undefined;
  readonly answer?: Call["answer"];
  readonly before: number;
  readonly after: number;
  readonly until: "rest" | "end";
  readonly stream: AsyncIterator<StreamedEvent>;
  readonly events: StreamedEvent[];
  /** Whether it reads on by itself. */
  eager: boolean;
  reading: boolean;
  /** Whether the reader has left by itself. */
  left: boolean;
  end: "done" | { readonly error: unknown } | undefined;
}

/** A runtime with a store, a clock, agents and callers that the model controls, and all that they saw. */
export class World {
  /** Since when a schema that answers late has had an answer. */
  readonly slowSince = new Map<number, number>();
  readonly setting: Setting;
  readonly clock = new ModelClock();
  readonly store = new WatchedStore();
  readonly late: LateStore | undefined;
  readonly runtime: AgentRuntime;
  readonly puppets: Puppet[] = [];
  readonly calls: Call[] = [];
  readonly readers: Reader[] = [];
  readonly heard = new Map<string, StreamedEvent[]>();
  /** How many values puppets had to emit. */
  emitted = 0;
  readonly violations: string[] = [];
  /** What has happened, in words. */
  readonly story: string[] = [];
  #runs = 0;
  #uuids = 0;
  #manners = 0;

  constructor(setting: Setting) {
    this.setting = setting;
    const disturbed = setting.plant?.store?.(this.store) ?? this.store;
    this.late = setting.store === "at once" ? undefined : new LateStore(disturbed);
    this.runtime = new AgentRuntime({
      store: this.late ?? disturbed,
      clock: setting.plant?.clock?.(this.clock) ?? this.clock,
      cancelGraceMs: GRACE_MS,
      ids: { uuid: () => this.#uuid(), token: () => "owner" },
      ...(setting.forgetful && { retention: { maxRuns: 2 } }),
    });
    this.#register();
    if (setting.listens) this.#listen();
  }

  /** The runs that are stored or have an agent, the oldest first. */
  get runs(): readonly string[] {
    return [...new Set([...this.store.logs.keys(), ...this.puppets.map(({ run_id }) => run_id)])];
  }

  /** Decides how the next puppets behave. */
  setManners(bits: number): void {
    this.#manners = bits;
  }

  create(request: NewRun, mode: "sync" | "async", idempotencyKey: string | undefined): void {
    const does = mode === "async" ? "accept" : "create";
    this.#call({ does, run_id: undefined, input: request.input, idempotencyKey, before: 0, outcome: undefined }, () =>
      this.runtime.createRun({ ...request, mode }, { idempotencyKey }),
    );
  }

  createStream(request: NewRun, idempotencyKey: string | undefined, eager: boolean): void {
    const stream = this.runtime.createRun({ ...request, mode: "stream" }, { idempotencyKey });
    const { input } = request;
    this.#read({ run_id: undefined, input, idempotencyKey, before: 0, after: 0, until: "rest", stream }, eager);
  }

  resume(run_id: string, answer: NonNullable<Call["answer"]>, mode: "sync" | "async"): void {
    const request: ResumeRequest = { run_id, await_resume: { n: answer.n }, await_id: answer.await_id };
    const does = mode === "async" ? "accept answer" : "resume";
    const before = this.committed(run_id);
    this.#call({ does, run_id, answer, before, outcome: undefined }, () =>
      this.runtime.resume({ ...request, mode }, { idempotencyKey: answer.key }),
    );
  }

  resumeStream(run_id: string, answer: NonNullable<Call["answer"]>, eager: boolean): void {
    const { n, await_id, key } = answer;
    const before = this.committed(run_id);
    const request: ResumeRequest = { run_id, await_resume: { n }, await_id };
    const stream = this.runtime.resume({ ...request, mode: "stream" }, { idempotencyKey: key });
    this.#read({ run_id, answer, before, after: -1, until: "rest", stream }, eager);
  }

  cancel(run_id: string): void {
    const before = this.committed(run_id);
    this.#call({ does: "cancel", run_id, before, outcome: undefined }, () => this.runtime.cancel(run_id));
  }

  get(run_id: string): void {
    const before = this.committed(run_id);
    this.#call({ does: "get", run_id, before, outcome: undefined }, () => this.runtime.getRun(run_id));
  }

  read(run_id: string, options: { readonly after: number; readonly until: "rest" | "end" }, eager: boolean): void {
    const stream = this.runtime.events(run_id, options);
    this.#read({ run_id, before: this.committed(run_id), ...options, stream }, eager);
  }

  /** Reads one event, unless the reader is reading already. */
  readOn(reader: Reader): void {
    if (reader.reading || reader.end !== undefined || reader.left) return;
    reader.reading = true;
    reader.stream.next().then(
      (result) => {
        reader.reading = false;
        if (result.done === true) reader.end = "done";
        else this.#take(reader, result.value);
        if (reader.eager) this.readOn(reader);
      },
      (error: unknown) => {
        reader.reading = false;
        reader.end = { error };
      },
    );
  }

  leave(reader: Reader): void {
    reader.left = true;
    void reader.stream.return?.();
  }

  /** How many entries of a run have been committed. */
  committed(run_id: string): number {
    return this.store.logs.get(run_id)?.entries.length ?? 0;
  }

  /** The run of a call or a reader; undefined while there is none. */
  runOf({ run_id, input, idempotencyKey }: Pick<Call, "run_id" | "input" | "idempotencyKey">): string | undefined {
    if (run_id !== undefined) return run_id;
    for (const { run_id: made, entries, idempotencyKey: key } of this.store.logs.values()) {
      if (idempotencyKey !== undefined ? key === idempotencyKey : inputOf(entries[0]) === input) return made;
    }
    return undefined;
  }

  readonly violate = (what: string): void => {
    this.violations.push(what);
  };

  #call(call: Call, act: () => Promise<Run>): void {
    this.calls.push(call);
    let promise: Promise<Run>;
    try {
      promise = act();
    } catch (error) {
      this.violate(`${call.does} threw at once: ${String(error)}`);
      return;
    }
    promise.then(
      (run) => {
        call.outcome = { run, committed: this.committed(run.run_id) };
        if (!this.store.logs.has(run.run_id))
          this.violate(`${call.does} gave run ${run.run_id} before it was committed`);
      },
      (error: unknown) => {
        call.outcome = { error };
        if (!CadenzaError.is(error)) this.violate(`${call.does} was refused with ${String(error)}`);
      },
    );
  }

  #read(start: Omit<Reader, "events" | "eager" | "reading" | "left" | "end">, eager: boolean): void {
    const reader: Reader = { ...start, events: [], eager, reading: false, left: false, end: undefined };
    this.readers.push(reader);
    if (eager) this.readOn(reader);
  }

  #take(reader: Reader, event: StreamedEvent): void {
    reader.events.push(event);
    this.#seen("a reader", this.runOf(reader), event);
  }

  #seen(who: string, run_id: string | undefined, { id, type }: StreamedEvent): void {
    const log = run_id === undefined ? undefined : this.store.logs.get(run_id);
    if (id > (log?.events ?? 0)) this.violate(`${who} saw event ${id} (${type}) of ${run_id} before it was committed`);
  }

  #listen(): void {
    const types = [
      ...(["run.created", "run.in-progress", "run.awaiting", "run.completed", "run.failed", "run.cancelled"] as const),
      ...(["message.created", "message.part", "message.completed", "generic", "error"] as const),
    ];
    for (const type of types) {
      this.runtime.on(type, (event, { run_id }) => {
        const events = this.heard.get(run_id) ?? [];
        this.heard.set(run_id, events);
        events.push(event);
        this.#seen("a listener", run_id, event);
      });
    }
  }

  #register(): void {
    const { runtime } = this;
    const generator = (name: string) => (_input: unknown, context: Puppet["context"]) =>
      playAsGenerator(this.#begin(name, context));
    const plain = (name: string) => (_input: unknown, context: Puppet["context"]) =>
      playAsFunction(this.#begin(name, context));
    runtime.register("puppet", generator("puppet"));
    runtime.register("function", plain("function"));
    runtime.register("narrow", { concurrency: { max: 1 } }, generator("narrow"));
    runtime.register("picky", { concurrency: { max: 1, whenFull: "reject" } }, plain("picky"));
    runtime.register("private", { concurrency: { max: 1, per: "session" } }, generator("private"));
    runtime.register("hurried", { timeoutMs: RUN_TIMEOUT_MS }, generator("hurried"));
    runtime.register("child", generator("child"));
  }

  #begin(name: string, context: Puppet["context"]): Puppet {
    const bits = this.#manners >> (3 * (this.#runs++ % 4));
    const manners: Manners = {
      obeys: (bits & 7) !== 1,
      saysGoodbye: (bits & 3) === 2,
      lingers: (bits & 7) === 3,
    };
    const puppet = new Puppet(name, context, manners);
    this.puppets.push(puppet);
    return puppet;
  }

  #uuid(): string {
    return uuid(++this.#uuids);
  }
}

/** The text with which a caller created the run; undefined for a sub-run. */
function inputOf(entry: Entry | undefined): string | undefined {
  if (entry?.type !== "created" || entry.parent !== undefined) return undefined;
  return entry.input[0]?.parts[0]?.content;
}

/** The `n`-th UUID of a world. Those from 900 on are for sessions that callers name. */
export function uuid(n: number): string {
  return `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
}
