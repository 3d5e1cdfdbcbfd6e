import { nextTick } from "node:process";
import type { AgentContext, CadenzaErrorCode, Message } from "cadenza";
import { AgentError, CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import type { EmittedEntry, MaybePromise, ResultEntry } from "./internals.ts";
import { foldEntries, resultKey, SeededRandom, seedOf } from "./internals.ts";
import type { NamedProgram } from "./program.ts";
import type { Player, WaitSchema } from "./program-player.ts";
import { namedIn, perform } from "./program-player.ts";

/*
 * Computes what an agent must have emitted, given the results that its log holds. It is a plain replay of its own that
 * shares no code with the one of the runtime.
 */

/** What the agent emits and how it ends if it gets these results, one at a time and in this order. */
export interface Verdict {
  readonly emitted: readonly string[];
  /** How much had been emitted each time before the next result was handed over. */
  readonly pauses: readonly number[];
  /** The keys of the operations without a result. */
  readonly open: readonly string[];
  readonly ending: "completed" | "failed" | "open";
  readonly tokens: number;
  /** What branches report that go on when the agent has ended, which may come too late. */
  readonly lateTokens: number;
}

/** `yields`: how many promises lie between what the agent yields and its next statement. */
export async function judge(program: NamedProgram, runId: string, log: readonly Entry[], yields = 0): Promise<Verdict> {
  return new Judge(program, runId, log, yields).verdict();
}

/**
 * Whether the emitted values are the expected ones. Branches that emit side by side, between two results, do so in an
 * order that depends on the number of promises in the runtime. That order is the same in each replay.
 */
export function isAsEmitted({ emitted, pauses }: Verdict, was: readonly string[], isBeginning = false): boolean {
  if (isBeginning ? was.length > emitted.length : was.length !== emitted.length) return false;
  return [...pauses, emitted.length].every((end, index) => {
    const start = pauses[index - 1] ?? 0;
    const [is, must] = [was.slice(start, end), emitted.slice(start, end)];
    if (is.length < must.length) return is.every((text) => must.includes(text));
    return is.sort().join("|") === must.sort().join("|");
  });
}

/** What the agent itself has emitted, by its log. */
export function emittedIn(log: readonly Entry[]): string[] {
  return log.flatMap((entry) => (entry.type === "emitted" && entry.source === undefined ? [wordOfEntry(entry)] : []));
}

/** The log of a run. Undefined: there is no such run. */
export type LogOf = (run_id: string) => MaybePromise<readonly Entry[] | undefined>;

/** What is wrong with a run of a program and with its sub-runs, which have all ended. */
export async function misjudged(run_id: string, logOf: LogOf): Promise<string[]> {
  const log = await logOf(run_id);
  const named = namedIn(log ?? []);
  // A run that was stopped may have ended before its sub-run began.
  if (log === undefined || named === undefined) return [];
  const finished = new Set(log.flatMap((entry) => (entry.type === "step" ? [entry.key] : [])));
  const subRuns = new Map<string, boolean>();
  for (const entry of log)
    if (entry.type === "intent" && entry.run_id !== null) subRuns.set(entry.run_id, finished.has(entry.key));
  const wrong: string[] = [];
  let used = 0;
  for (const [subRun, hasResult] of subRuns) {
    wrong.push(...(await misjudged(subRun, logOf)));
    const below = (await logOf(subRun)) ?? [];
    wrong.push(...misshown(subRun, below, log, hasResult).map((what) => `${named.name} (${run_id}) ${what}`));
    // The tokens of a sub-run come with its result. One that was cancelled with its parent has none.
    if (hasResult) used += usageOf(subRun, below);
  }
  let own: string[] = [];
  // The order in which branches begin operations side by side depends on the number of promises before each.
  for (const yields of PROMISES) {
    own = await judge(named, run_id, log, yields).then(
      (verdict) => misjudgedBy(verdict, run_id, log, used),
      (error: unknown) => [String(error)],
    );
    if (own.length === 0) return wrong;
  }
  return [...wrong, ...own.map((what) => `${named.name} (${run_id}) ${what}\n${describe(log)}`)];
}

const PROMISES = [0, 1, 3, 8];

/** After so many emissions an agent waits a turn of the event loop, while its other branches go on. */
const EMITTED_AT_ONCE = 64;

/** What is wrong with the copies of a sub-run. With its result they have to be complete. */
function misshown(subRun: string, below: readonly Entry[], above: readonly Entry[], hasResult: boolean): string[] {
  const isCopied = ({ source }: { readonly source?: object }): boolean =>
    source !== undefined && "run_id" in source && source.run_id === subRun;
  const copies = above.filter((entry) => entry.type === "created" || ("source" in entry && isCopied(entry)));
  const must = namedIn(below)?.isShown === true ? wordsIn(below) : [];
  const is = wordsIn(copies);
  const wrong: string[] = [];
  if (must.slice(0, hasResult ? undefined : is.length).join("|") !== is.join("|"))
    wrong.push(`shows ${is.join("|")} of ${subRun}, and must show ${must.join("|")}`);
  if (must.length > 0 && hasResult) {
    // What interrupted attempts at a step have emitted is left out of both outputs.
    const [shown, own] = [copies, below].map((log) =>
      foldEntries(subRun, log).output.flatMap(({ parts }) => parts.map(({ content }) => content)),
    );
    if (shown?.join("|") !== own?.join("|"))
      wrong.push(`has shown ${shown?.join("|")} in the end, and ${subRun} ${own?.join("|")}`);
  }
  return wrong;
}

/** What the agent and its steps have emitted, by its log, without the ends of messages. */
function wordsIn(log: readonly Entry[]): string[] {
  return log.flatMap((entry) => (entry.type === "emitted" && entry.kind !== "close" ? [wordOfEntry(entry)] : []));
}

function misjudgedBy(verdict: Verdict, run_id: string, log: readonly Entry[], used: number): string[] {
  const { emitted, ending, tokens, lateTokens, open } = verdict;
  const was = emittedIn(log);
  const end = log.at(-1);
  const status = end?.type === "ended" ? end.outcome : "open";
  if (status === "cancelled") {
    const stopped = log.findIndex(({ type }) => type === "cancel-requested");
    const before = emittedIn(log.slice(0, stopped));
    if (isAsEmitted(verdict, before, true)) return [];
    return [`had emitted ${before.join("|")}, and must have emitted ${emitted.join("|")}`];
  }
  const wrong: string[] = [];
  if (!isAsEmitted(verdict, was)) wrong.push(`emits ${was.join("|")}, and must emit ${emitted.join("|")}`);
  if (status !== ending) wrong.push(`is ${status}, and must be ${ending}; waits for ${open.join()}`);
  const own = usageOf(run_id, log) - used;
  // A fork has not used what its origin has used.
  const isFork = log[0]?.type === "created" && log[0].origin !== undefined;
  if (!isFork && own !== tokens && own !== tokens + lateTokens)
    wrong.push(`has used ${own + used}, and must have used ${tokens} and ${used}`);
  return wrong;
}

function usageOf(run_id: string, log: readonly Entry[]): number {
  return log.length === 0 ? 0 : (foldEntries(run_id, log).usage?.total_tokens ?? 0);
}

function describe(log: readonly Entry[]): string {
  return log.map((entry, index) => `  ${index} ${JSON.stringify(entry)}`).join("\n");
}

class Judge {
  readonly #program: NamedProgram;
  readonly #seed: string;
  readonly #log: readonly Entry[];
  readonly #yields: number;
  readonly #counts = new Map<string, number>();
  readonly #waiting = new Map<string, Waiting>();
  readonly #withdrawn: Waiting[] = [];
  /** The keys of the messages that were taken. */
  readonly #taken = new Set<string>();
  readonly #emitted: string[] = [];
  /** How often the agent has emitted something. */
  #emissions = 0;
  /** Resolves when the agent may go on that has emitted a great deal, or reads. */
  #turns: Promise<void> = Promise.resolve();
  /** How often the agent has closed a message that may not have been open, since the last result. */
  #closings = 0;
  /** What was emitted by the log, and how much of it has been judged. */
  readonly #logged: readonly string[];
  #passed = 0;
  #now = 0;
  #tokens = 0;
  #lateTokens = 0;
  #ending: Verdict["ending"] = "open";

  constructor(program: NamedProgram, runId: string, log: readonly Entry[], yields: number) {
    this.#yields = yields;
    this.#program = program;
    const [created] = log;
    this.#seed = created?.type === "created" ? seedOf(created, runId) : runId;
    this.#log = log;
    this.#logged = emittedIn(log);
  }

  async verdict(): Promise<Verdict> {
    const started = this.#log.find((entry) => entry.type === "started");
    this.#now = started?.now ?? started?.at ?? 0;
    const stopped = this.#log.findIndex(
      (entry) => entry.type === "cancel-requested" || (entry.type === "timed-out" && !entry.defaulted),
    );
    const results = this.#log.slice(0, stopped < 0 ? undefined : stopped).filter(isResult);
    void this.#drive();
    await this.#settled();
    this.#close();
    const pauses: number[] = [];
    for (const entry of results) {
      pauses.push(this.#emitted.length);
      const key = resultKey(entry) ?? "";
      const waiting = this.#waiting.get(key);
      if (waiting === undefined) {
        if (this.#ending === "open" && !key.includes("/"))
          throw new Error(`The log holds ${key}, which the agent did not begin.`);
        continue;
      }
      this.#waiting.delete(key);
      if (entry.type === "withdrawn") this.#withdrawn.push(waiting);
      this.#now = entry.at;
      this.#settle(entry, waiting);
      await this.#settled();
      this.#close();
    }
    return {
      emitted: this.#emitted,
      pauses,
      open: [...this.#waiting.keys()],
      ending: this.#ending,
      tokens: this.#tokens,
      lateTokens: this.#lateTokens,
    };
  }

  async #drive(): Promise<void> {
    const context = this.#context();
    // The bodies of steps are never called here.
    const player: Player = { work: () => new Promise(() => {}), pause: () => new Promise(() => {}) };
    const agent = perform(this.#program, context, player);
    try {
      let goOn: () => Promise<IteratorResult<unknown, void>> = () => agent.next();
      for (;;) {
        const { done, value } = await goOn();
        goOn = () => agent.next();
        if (done === true) break;
        if (typeof value === "object" && value !== null && "type" in value)
          goOn = await this.#operation("await").then(
            (sent) => () => agent.next(sent),
            (error: unknown) => () => agent.throw(error),
          );
        else {
          const accepted = this.#emit(value);
          if (accepted !== undefined) await accepted;
          for (let each = 0; each < this.#yields; each++) await undefined;
        }
      }
      this.#ending = "completed";
    } catch {
      this.#ending = "failed";
    }
  }

  #emit(value: unknown): undefined | Promise<void> {
    if (this.#ending !== "open") return undefined;
    if (value === null) this.#closings += 1;
    else this.#emitted.push(wordOf(value));
    this.#emissions += 1;
    if (this.#emissions % EMITTED_AT_ONCE !== 0) return undefined;
    return this.#turn();
  }

  /** Resolves in a turn of the event loop of its own, after the turns that were asked for before. */
  #turn(): Promise<void> {
    this.#turns = this.#turns.then(turn);
    return this.#turns;
  }

  /** The agent does what it can do without another result. */
  async #settled(): Promise<void> {
    for (let turns: unknown; turns !== this.#turns; ) {
      turns = this.#turns;
      await turns;
      await flush();
    }
  }

  /**
   * A close without an open message emits nothing. Whether one is open may depend on step bodies and on other branches.
   * Hence as many closes count as the log holds between these two results.
   */
  #close(): void {
    let others = this.#emitted.length - this.#passed;
    for (; this.#closings > 0 || others > 0; this.#passed += 1) {
      const isClosing = this.#logged[this.#passed] === "close";
      if (isClosing ? this.#closings === 0 : others === 0) break;
      if (isClosing) {
        this.#closings -= 1;
        this.#emitted.push("close");
      } else others -= 1;
    }
    this.#closings = 0;
    this.#passed = this.#emitted.length;
  }

  #operation(name: string, options: WaitOptions = {}): Promise<unknown> {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    const promise = new Promise((resolve, reject) =>
      this.#waiting.set(`${name}#${count}`, { name, options, resolve, reject }),
    );
    promise.catch(() => {});
    return promise;
  }

  #settle(entry: ResultEntry, { name, options, resolve, reject }: Waiting): void {
    const fail = (code: CadenzaErrorCode): void => reject(new CadenzaError(code, ""));
    const answer = (value: unknown, how: string): void => resolve(options.details === true ? { value, how } : value);
    switch (entry.type) {
      case "resumed":
        answer(entry.answer, "answer");
        return;
      case "timed-out":
        answer(options.default, "default");
        return;
      case "declined":
        fail("answer_declined");
        return;
      case "withdrawn":
        if (options.signal?.aborted !== true) throw new Error(`${entry.await_id} is withdrawn, and was not aborted.`);
        reject(options.signal.reason);
        return;
      case "taken": {
        if (entry.position === null && options.default === undefined) fail("receive_timeout");
        else if (entry.position === null) resolve(options.default);
        else {
          const data = this.#take(name.slice("receive:".length), entry.position);
          if (options.schema === undefined || typeof data !== "string") resolve(data);
          else fail("message_rejected");
        }
        return;
      }
      case "step":
        if (entry.error === null) resolve(entry.result);
        else if (entry.error.name === "AgentError") reject(new AgentError(entry.error.code ?? "", entry.error.message));
        else fail("step_interrupted");
    }
  }

  /**
   * The message at a position: the first with its name that no receive before has taken, but for those that receives hold
   * or have held whose schemas answer later. One that came twice is one.
   */
  #take(name: string, position: number): unknown {
    const left = new Map<string, number>();
    for (const [index, entry] of this.#log.entries())
      if (entry.type === "received" && entry.name === name && !this.#taken.has(entry.idempotency_key))
        if (!left.has(entry.idempotency_key)) left.set(entry.idempotency_key, index);
    const held = [...this.#waiting.values(), ...this.#withdrawn].filter((one) => mayHold(one, name));
    const first = [...left.values()].slice(0, 1 + held.length);
    const message = this.#log[position];
    if (!first.includes(position) || message?.type !== "received")
      throw new Error(`Position ${position} is taken instead of ${first.join(" or ")}.`);
    this.#taken.add(message.idempotency_key);
    return message.data;
  }

  #context(): AgentContext {
    const random = new SeededRandom(this.#seed);
    const context = {
      signal: { aborted: false },
      step: (name: string) => this.#operation(name),
      ask: (_question: string, options: WaitOptions) => this.#operation("ask", options),
      sleep: (_ms: number, options: WaitOptions & { readonly name?: string }) =>
        this.#operation(options.name === undefined ? "sleep" : `sleep:${options.name}`, options),
      receive: (name: string, options: WaitOptions) => this.#operation(`receive:${name}`, options),
      run: (name: string) => this.#operation(`run:${name}`),
      emit: async (value: unknown) => this.#emit(value),
      usage: {
        add: (usage: { input_tokens: number; output_tokens: number }) => {
          const tokens = usage.input_tokens + usage.output_tokens;
          if (this.#ending === "open") this.#tokens += tokens;
          else this.#lateTokens += tokens;
        },
      },
      session: {
        getState: () => this.#operation("session.getState"),
        setState: () => this.#operation("session.setState"),
        // A durable agent gets what it reads in a turn of its own, when its other branches wait.
        history: () => this.#turn().then(() => []),
      },
      now: () => this.#now,
      uuid: () => random.uuid(),
      random: () => random.number(),
    };
    return context as unknown as AgentContext;
  }
}

/** An operation without a result. */
interface Waiting {
  readonly name: string;
  readonly options: WaitOptions;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Whether the receive of a message may have asked its schema about it, and goes on later. */
function mayHold({ name, options: { schema } }: Waiting, of: string): boolean {
  return name === `receive:${of}` && schema?.answersLater === true;
}

/** The options of a question, a sleep or a receive that its result depends on. */
interface WaitOptions {
  readonly schema?: WaitSchema;
  readonly default?: unknown;
  readonly details?: boolean;
  readonly signal?: AbortSignal;
}

/** An emitted value as a word. The same value has the same word in a log. */
function wordOf(value: unknown): string {
  if (typeof value === "string") return value;
  const { parts } = value as { readonly parts?: Message["parts"] };
  return parts === undefined ? JSON.stringify(value) : `message ${parts[0]?.content}`;
}

function wordOfEntry(entry: EmittedEntry): string {
  switch (entry.kind) {
    case "part":
      return `${entry.part.content}`;
    case "message":
      return `message ${entry.message.parts[0]?.content}`;
    case "generic":
      return JSON.stringify(entry.generic);
    case "close":
      return "close";
  }
}

function isResult(entry: Entry): entry is ResultEntry {
  return resultKey(entry) !== undefined;
}

function flush(): Promise<void> {
  return new Promise((resolve) => nextTick(resolve));
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
