import { AsyncLocalStorage } from "node:async_hooks";
import { nextTick } from "node:process";
import { isDeepStrictEqual } from "node:util";
import type { AgentContext, CadenzaErrorCode, Message, StepOptions, StepScope } from "cadenza";
import { AgentError, CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import { replyTo } from "./answers.ts";
import type { ContinuedEntry, EmittedEntry, ResultEntry, StepEntry } from "./internals.ts";
import { resultKey, SeededRandom, seedOf } from "./internals.ts";
import type { NamedProgram, Statement } from "./program.ts";
import { bodiesOf, contains } from "./program.ts";
import type { Player, WaitSchema } from "./program-player.ts";
import { keyIn, perform } from "./program-player.ts";

/*
 * Computes what the agent of a program must have done, given the results that its log holds, and what those results must
 * be. It is a plain replay of its own that shares no code with the one of the runtime.
 */

/** What the agent does and how it ends if it gets these results, one at a time and in this order. */
export interface Expected {
  /** What it emits between one result and the next. */
  readonly words: readonly (readonly Word[])[];
  /**
   * How much it has emitted when it asks each of its questions, without closes. If it has branches: at least. A question
   * that it asks while other results are handed over is asked after that.
   */
  readonly asks: ReadonlyMap<string, number>;
  /** The keys of the operations without a result. */
  readonly open: readonly string[];
  readonly ending: "completed" | "failed" | "open" | "continued";
  /** What it gives to its next generation. */
  readonly carry?: unknown;
  /** The message of the error with which it fails. */
  readonly error: string | undefined;
  readonly tokens: number;
  /** What branches report that go on when the agent has ended, which may come too late. */
  readonly lateTokens: number;
  /** What is wrong with the results, and with what the bodies of steps have emitted. */
  readonly wrong: readonly string[];
}

/** Something that an agent emits. */
interface Word {
  readonly text: string;
  /** What has to come before it. Branches side by side may come in any order. */
  readonly after: readonly Word[];
}

/** The end of a message. Without an open message it is not in the log, which depends on other branches too. */
const CLOSE = "close";

/** `yields`: how many promises lie between what the agent yields and its next statement. */
export async function expect(named: NamedProgram, runId: string, log: readonly Entry[], yields = 0): Promise<Expected> {
  const begins = log.flatMap(({ type }, index) => (type === "continued" ? [index] : []));
  // A fork may begin with a later generation.
  const parts = begins[0] === 1 ? begins : [0, ...begins];
  const taken = new Set<string>();
  const all: Expected[] = [];
  for (const [n, from] of parts.entries()) {
    const to = parts[n + 1];
    const part = await new Replay(named, runId, log, yields, { from, to, taken }).expected();
    const next = to === undefined ? undefined : log[to];
    if (next?.type === "continued" && (part.ending !== "continued" || part.carry !== next.carry))
      throw new Error(
        `Generation ${next.generation} begins with ${next.carry}, where the one before ends ${part.ending}.`,
      );
    all.push(part);
  }
  const last = all.at(-1);
  if (last === undefined) throw new Error("The log has no generation.");
  return {
    ...last,
    words: all.flatMap(({ words }) => words),
    asks: new Map(all.flatMap(({ asks }) => [...asks])),
    tokens: all.reduce((sum, { tokens }) => sum + tokens, 0),
    lateTokens: all.reduce((sum, { lateTokens }) => sum + lateTokens, 0),
    wrong: all.flatMap(({ wrong }) => wrong),
  };
}

/** A generation in a log: its entries, and the keys of the messages that were taken before. */
interface Part {
  readonly from: number;
  readonly to: number | undefined;
  readonly taken: Set<string>;
}

/**
 * Whether these are the expected words. Branches that emit side by side, between two results, do so in an order that
 * depends on the number of promises in the runtime. That order is the same in each replay.
 */
export function isAsExpected({ words }: Expected, were: readonly string[], isBeginning = false): boolean {
  const groups = words.filter(({ length }) => length > 0);
  const failed = new Set<string>();
  /** Whether the texts from a position on are what is left of a group, and then the next groups. */
  const fits = (from: number, group: number, left: readonly Word[]): boolean => {
    const state = `${from} ${group} ${left.map((word) => groups[group]?.indexOf(word)).join()}`;
    if (failed.has(state)) return false;
    const text = were[from];
    const isComplete = left.every((word) => word.text === CLOSE);
    if (text === undefined && isBeginning) return true;
    if (isComplete && group + 1 >= groups.length && text === undefined) return true;
    for (const word of left) {
      if (word.text !== text) continue;
      const before = beforeOf(word, left);
      if (before.some((one) => one.text !== CLOSE)) continue;
      const others = left.filter((one) => one !== word && !before.includes(one));
      if (fits(from + 1, group, others)) return true;
    }
    const next = groups[group + 1];
    if (isComplete && next !== undefined && fits(from, group + 1, next)) return true;
    failed.add(state);
    return false;
  };
  return fits(0, 0, groups[0] ?? []);
}

/** Those of some words that come before a word. */
function beforeOf({ after }: Word, of: readonly Word[], found: Word[] = []): readonly Word[] {
  for (const one of after) {
    if (!of.includes(one) || found.includes(one)) continue;
    found.push(one);
    beforeOf(one, of, found);
  }
  return found;
}

/** What is wrong with where an agent has asked its questions. */
export function misasked({ asks }: Expected, { program }: NamedProgram, log: readonly Entry[]): string[] {
  const isBranched = ({ does }: Statement): boolean => does === "all" || does === "race";
  const isStraight = !bodiesOf(program).some((body) => contains(body, isBranched));
  const wrong: string[] = [];
  for (const [index, entry] of log.entries()) {
    if (entry.type !== "awaited" || entry.of !== undefined) continue;
    const { await_id } = entry;
    const [is, must] = [wordsIn(log.slice(0, index)).filter((word) => word !== CLOSE).length, asks.get(await_id)];
    if (must === undefined || is < must || (isStraight && is > must))
      wrong.push(`asks ${await_id} after ${is} emissions, and must ask it after ${must}`);
  }
  return wrong;
}

/** What an agent itself has emitted, by its log. */
export function wordsIn(log: readonly Entry[]): string[] {
  return log.flatMap((entry) => (entry.type === "emitted" && entry.source === undefined ? [wordOfEntry(entry)] : []));
}

export function wordOfEntry(entry: EmittedEntry): string {
  switch (entry.kind) {
    case "part":
      return `${entry.part.content}`;
    case "message":
      return `message ${entry.message.parts[0]?.content}`;
    case "generic":
      return JSON.stringify(entry.generic);
    case "close":
      return CLOSE;
  }
}

/** After so many emissions an agent waits a turn of the event loop, while its other branches go on. */
const EMITTED_AT_ONCE = 64;

/** The last words of a branch so far. */
interface Branch {
  last: readonly Word[];
}

/**
 * The branch that is at work, of whichever replay. One for all of them: on Node 20 each promise looks at every storage
 * that was ever used.
 */
const branches = new AsyncLocalStorage<Branch>();

class Replay {
  readonly #named: NamedProgram;
  readonly #seed: string;
  readonly #log: readonly Entry[];
  readonly #yields: number;
  readonly #counts = new Map<string, number>();
  readonly #waiting = new Map<string, Waiting>();
  readonly #withdrawn: Waiting[] = [];
  /** The keys of the messages that were taken. */
  readonly #taken: Set<string>;
  /** What was emitted before each result, and since the last one. */
  readonly #words: Word[][] = [[]];
  readonly #asks = new Map<string, number>();
  /** How often the agent has emitted something. */
  #emissions = 0;
  /** Resolves when the agent may go on that has emitted a great deal, or reads. */
  #turns: Promise<void> = Promise.resolve();
  #now = 0;
  #tokens = 0;
  #lateTokens = 0;
  #ending: Expected["ending"] = "open";
  #error: string | undefined;
  readonly #wrong: string[] = [];
  readonly #part: Part;
  /** The entry with which the generation began. Undefined: it is the first one. */
  readonly #continued: ContinuedEntry | undefined;
  #carry: unknown;
  #history: Promise<unknown> | undefined;

  constructor(named: NamedProgram, runId: string, log: readonly Entry[], yields: number, part: Part) {
    this.#yields = yields;
    this.#named = named;
    const [created] = log;
    const seed = created?.type === "created" ? seedOf(created, runId) : runId;
    const first = log[part.from];
    this.#continued = first?.type === "continued" ? first : undefined;
    this.#seed = this.#continued === undefined ? seed : `${seed} ${this.#continued.generation}`;
    this.#log = log;
    this.#part = part;
    this.#taken = part.taken;
  }

  get #generation(): number {
    return this.#continued?.generation ?? 1;
  }

  async expected(): Promise<Expected> {
    const started = this.#log.find((entry) => entry.type === "started");
    this.#now = this.#continued?.at ?? started?.now ?? started?.at ?? 0;
    const { from, to } = this.#part;
    const stopped = this.#log.findIndex(
      (entry, index) =>
        index >= from && (entry.type === "cancel-requested" || (entry.type === "timed-out" && !entry.defaulted)),
    );
    const end = Math.min(stopped < 0 ? this.#log.length : stopped, to ?? this.#log.length);
    void branches.run({ last: [] }, () => this.#drive());
    await this.#settled();
    for (const [index, entry] of this.#log.slice(0, end).entries()) {
      if (index < from || !isResult(entry)) continue;
      const key = resultKey(entry) ?? "";
      const waiting = this.#waiting.get(key);
      if (waiting === undefined) {
        if (this.#ending === "open" && !key.includes("/"))
          throw new Error(`The log holds ${key}, which the agent did not begin.`);
        continue;
      }
      this.#waiting.delete(key);
      if (entry.type === "withdrawn") this.#withdrawn.push(waiting);
      if (entry.type === "step") await this.#lookAtStep(key, waiting, entry, index);
      this.#now = entry.at;
      this.#settle(entry, waiting);
      this.#words.push([]);
      await this.#settled();
    }
    for (const [key, waiting] of this.#waiting) await this.#lookAtStep(key, waiting);
    return {
      words: this.#words,
      asks: this.#asks,
      open: [...this.#waiting.keys()],
      ending: this.#ending,
      carry: this.#carry,
      error: this.#error,
      tokens: this.#tokens,
      lateTokens: this.#lateTokens,
      wrong: this.#wrong,
    };
  }

  async #drive(): Promise<void> {
    // The bodies of steps take no time here, and are called when their results are looked at.
    const player: Player = {
      work: async () => {},
      pause: async () => {},
      branch: (branch, all) => this.#branch(branch, all),
    };
    const agent = perform(this.#named, this.#context(), player);
    try {
      let goOn: () => Promise<IteratorResult<unknown, unknown>> = () => agent.next();
      for (;;) {
        const { done, value } = await goOn();
        goOn = () => agent.next();
        if (done === true) {
          if (value !== undefined) this.#carry = (value as { readonly carry: unknown }).carry;
          this.#ending = value === undefined ? "completed" : "continued";
          return;
        }
        if (typeof value === "object" && value !== null && "type" in value)
          goOn = await this.#ask("await").then(
            (sent) => () => agent.next(sent),
            (error: unknown) => () => agent.throw(error),
          );
        else {
          const accepted = this.#emit(value);
          if (accepted !== undefined) await accepted;
          for (let each = 0; each < this.#yields; each++) await undefined;
        }
      }
    } catch (error) {
      this.#ending = "failed";
      this.#error = error instanceof Error ? error.message : String(error);
    }
  }

  /**
   * Runs a branch, whose words come in no particular order with those of other branches. It adds no promise, on whose
   * number the order depends in which branches go on.
   */
  #branch(branch: () => Promise<void>, all: boolean): Promise<void> {
    const above = branches.getStore();
    const own: Branch = { last: above?.last ?? [] };
    const running = branches.run(own, branch);
    const join = (): void => {
      if (all && above !== undefined) above.last = [...above.last, ...own.last];
    };
    running.then(join, join);
    return running;
  }

  #emit(value: unknown): undefined | Promise<void> {
    if (this.#ending !== "open") return undefined;
    this.#say(value === null ? CLOSE : wordOf(value));
    this.#emissions += 1;
    if (this.#emissions % EMITTED_AT_ONCE !== 0) return undefined;
    return this.#turn();
  }

  #say(text: string): void {
    const branch = branches.getStore();
    const word = { text, after: branch?.last ?? [] };
    if (branch !== undefined) branch.last = [word];
    this.#words.at(-1)?.push(word);
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

  #ask(name: string, options: WaitOptions = {}): Promise<unknown> {
    const answer = this.#operation(name, { options });
    const { last } = branches.getStore() ?? { last: [] };
    const before = this.#words.slice(0, -1).flat();
    const all = [...before, ...beforeOf({ text: "", after: last }, this.#words.at(-1) ?? [])];
    const earlier = wordsIn(this.#log.slice(0, this.#part.from)).filter((word) => word !== CLOSE).length;
    const key = keyIn(this.#generation, name, this.#counts.get(name) ?? 0);
    this.#asks.set(key, earlier + new Set(all.filter(({ text }) => text !== CLOSE)).size);
    return answer;
  }

  #operation(name: string, { options = {}, ...step }: Partial<Waiting> = {}): Promise<unknown> {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    const promise = new Promise((resolve, reject) =>
      this.#waiting.set(keyIn(this.#generation, name, count), { name, options, ...step, resolve, reject }),
    );
    promise.catch(() => {});
    return promise;
  }

  /** Looks at the attempts at a step, and at its result if it has one: each did what its body does. */
  async #lookAtStep(key: string, waiting: Waiting, result?: StepEntry, end = this.#log.length): Promise<void> {
    const { name, body, attempts = 1 } = waiting;
    if (
      name === "session.getState" &&
      result !== undefined &&
      (result.result as { readonly count?: unknown })?.count !== 7
    )
      this.#wrong.push(`has read ${JSON.stringify(result.result)} as its state`);
    if (body === undefined) return;
    const own = this.#log.slice(0, end).filter((entry) => "key" in entry && entry.key === key);
    const last = own.findLast((entry) => entry.type === "intent")?.attempt ?? 0;
    for (let attempt = 1; attempt <= last; attempt++) {
      const must = await tried(body, key, attempt);
      const failure = own.find((entry) => entry.type === "attempt-failed" && entry.attempt === attempt);
      if (failure?.type === "attempt-failed" && failure.failure.message !== must.error)
        this.#wrong.push(`attempt ${attempt} at ${key} has failed with ${failure.failure.message}`);
      const isWhole = attempt === last && result !== undefined && result.error?.code !== "step_interrupted";
      if (isWhole && !isResultOf(result, must, attempt < attempts))
        this.#wrong.push(`has ${JSON.stringify(result)}, where attempt ${attempt} gives ${JSON.stringify(must)}`);
      const were = this.#emittedBy(key, attempt);
      if (were.join() !== must.emitted.slice(0, isWhole ? undefined : were.length).join())
        this.#wrong.push(
          `${key} has emitted ${were.join("|")}, and attempt ${attempt} emits ${must.emitted.join("|")}`,
        );
    }
  }

  #emittedBy(key: string, attempt: number): string[] {
    return this.#log.flatMap((entry) => {
      if (entry.type !== "emitted" || entry.source === undefined || "run_id" in entry.source) return [];
      return entry.source.key === key && entry.source.attempt === attempt ? [wordOfEntry(entry)] : [];
    });
  }

  #settle(entry: ResultEntry, { name, options, resolve, reject }: Waiting): void {
    const fail = (code: CadenzaErrorCode): void => reject(new CadenzaError(code, ""));
    const answer = (value: unknown, how: string): void => resolve(options.details === true ? { value, how } : value);
    switch (entry.type) {
      case "resumed":
        this.#lookAtReply(entry.await_id, { await_resume: entry.answer }, options);
        answer(entry.answer, "answer");
        return;
      case "timed-out":
        answer(options.default, "default");
        return;
      case "declined":
        this.#lookAtReply(entry.await_id, { decline: entry.decline }, options);
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

  /** The client answers each question in one way, and leaves some to their deadlines. */
  #lookAtReply(key: string, reply: object, { default: byDefault }: WaitOptions): void {
    const { name, tenant } = this.#named;
    const must = byDefault === undefined ? replyTo(name, key, tenant) : undefined;
    if (textOfReply(reply) !== textOfReply(must))
      this.#wrong.push(`has the reply ${JSON.stringify(reply)} to ${key}, and must have ${JSON.stringify(must)}`);
  }

  /**
   * The message at a position: the first with its name that no receive before has taken, but for those that receives hold
   * or have held whose schemas answer later. One that came twice is one.
   */
  #take(name: string, position: number): unknown {
    const left = new Map<string, number>();
    for (const one of this.#continued?.messages ?? [])
      if (one.entry.name === name && !this.#taken.has(one.entry.idempotency_key))
        left.set(one.entry.idempotency_key, one.position);
    for (const [index, entry] of this.#log.entries())
      if (entry.type === "received" && entry.name === name && !this.#taken.has(entry.idempotency_key))
        if (!left.has(entry.idempotency_key)) left.set(entry.idempotency_key, index);
    const held = [...this.#waiting.values(), ...this.#withdrawn].filter((one) => mayHold(one, name));
    const first = [...left.values()].slice(0, 1 + held.length);
    const carried = this.#continued?.messages?.find((one) => one.position === position)?.entry;
    const message = carried ?? this.#log[position];
    if (!first.includes(position) || message?.type !== "received")
      throw new Error(`Position ${position} is taken instead of ${first.join(" or ")}.`);
    this.#taken.add(message.idempotency_key);
    return message.data;
  }

  /** A run has a patch that its log holds. A plain run has all, and so has one that has ended. */
  #hasPatch(id: string): boolean {
    const [created] = this.#log;
    const isPlain = created?.type === "created" && created.durable !== true;
    return isPlain || this.#ending !== "open" || this.#log.some((entry) => entry.type === "patched" && entry.id === id);
  }

  /** A later generation records how long the session is when it first asks. */
  #historyLength(): Promise<unknown> {
    if (this.#generation === 1) return Promise.resolve();
    this.#history ??= this.#operation("session.history");
    return this.#history;
  }

  #context(): AgentContext {
    const random = new SeededRandom(this.#seed);
    const context = {
      signal: { aborted: false },
      generation: this.#generation,
      carry: this.#continued?.carry,
      continueAsNew: (carry: unknown) => ({ carry }),
      step: (name: string, body: Waiting["body"], { retry }: StepOptions = {}) =>
        this.#operation(name, { body, attempts: retry?.attempts }),
      ask: (_question: string, options: WaitOptions) => this.#ask("ask", options),
      sleep: (_ms: number, options: WaitOptions & { readonly name?: string }) =>
        this.#operation(options.name === undefined ? "sleep" : `sleep:${options.name}`, { options }),
      receive: (name: string, options: WaitOptions) => this.#operation(`receive:${name}`, { options }),
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
        history: () => this.#historyLength().then(() => this.#turn().then(() => [])),
      },
      patched: (id: string) => this.#hasPatch(id),
      now: () => this.#now,
      uuid: () => random.uuid(),
      random: () => random.number(),
    };
    return context as unknown as AgentContext;
  }
}

/** An operation without a result. `body`: that of a step, with how often it is tried. */
interface Waiting {
  readonly name: string;
  readonly options: WaitOptions;
  readonly body?: ((step: StepScope) => Promise<unknown>) | undefined;
  readonly attempts?: number | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

const neverAborted = new AbortController().signal;

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

/** A reply as text, in the same way whether an answer is given as an object or as a message with this object. */
export function textOfReply(reply: object | undefined): string {
  const { await_resume, decline } = (reply ?? {}) as { readonly await_resume?: object; readonly decline?: object };
  if (await_resume === undefined) return `declined ${JSON.stringify(decline)}`;
  const { message } = await_resume as { readonly message?: Pick<Message, "parts"> };
  return message === undefined
    ? JSON.stringify(await_resume)
    : message.parts.map(({ content }) => content ?? "").join("");
}

/** What an attempt at a step does. */
interface Attempt {
  readonly value?: unknown;
  /** The message of its error, if it fails. */
  readonly error?: string;
  readonly emitted: readonly string[];
}

async function tried(body: NonNullable<Waiting["body"]>, key: string, attempt: number): Promise<Attempt> {
  const emitted: string[] = [];
  const step = { key, attempt, emit: async (value: string) => void emitted.push(value), signal: neverAborted };
  try {
    return { value: await body(step as unknown as StepScope), emitted };
  } catch (error) {
    return { error: (error as Error).message, emitted };
  }
}

/** Whether a result is that of an attempt. An attempt that fails is the last one unless it is tried again. */
function isResultOf({ result, error }: StepEntry, must: Attempt, isTriedAgain: boolean): boolean {
  if (must.error === undefined) return error === null && isDeepStrictEqual(result, must.value);
  return error?.message === must.error && !isTriedAgain;
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
