import type { AwaitRequest, AwaitResume, Scope } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import type { Mail, Reply } from "../answers.ts";
import type { AwaitedEntry, Decline, RunState } from "../internals.ts";
import { awaitRequest, isFinal, openQuestions } from "../internals.ts";
import type { Told } from "../judge.ts";
import { isReceived, repliesTo } from "../judge.ts";
import { MAIL } from "../program.ts";
import type { Random } from "../random.ts";
import type { Family, Member } from "./family.ts";
import type { Outcome, Process, World } from "./world.ts";
import { SECRET, scopeIn } from "./world.ts";

/** What a client does with a run. */
export interface ClientScript {
  /** Undefined: the question is not answered. Default: every question is answered with a number that belongs to it. */
  readonly answer?: (request: AwaitRequest, log: readonly Entry[]) => AwaitResume | undefined;
  /** Undefined: the question is not declined. Default: none is. */
  readonly decline?: (request: AwaitRequest, log: readonly Entry[]) => Decline | undefined;
  /** The message with this number and name to a run of the family, which needs one. Default: none is sent. */
  readonly mail?: (member: Member, name: string, number: number) => Mail;
  /** Messages to the run, each as soon as its condition holds and those before it are sent. Default: none. */
  readonly messages?: readonly ScriptedMessage[];
  /** The labels of the run, by which it may be sent messages. Default: it has none. */
  readonly labels?: Readonly<Record<string, string>>;
  /** The client cancels the run as soon as this holds. */
  readonly cancelWhen?: (state: RunState, log: readonly Entry[]) => boolean;
}

export interface ScriptedMessage extends Mail {
  readonly when: (state: RunState, log: readonly Entry[]) => boolean;
}

/** Something that the client asks of a process. */
interface Call {
  readonly what: "cancel" | "resume" | "send";
  /** What it is about: not more than one call at a time is about the same. */
  readonly about: string;
  /** The run that it names. Undefined: it names what a run has only while it is live. */
  readonly to: string | undefined;
  /** The call waits until the run rests, for which the client may have to do more. */
  readonly mayTakeLong?: boolean;
  readonly make: (scope: Scope) => Promise<unknown>;
  readonly onAccepted: () => void | Promise<void>;
}

/** A call that has begun. */
interface Running {
  readonly call: Call;
  readonly process: Process;
  outcome: Outcome<unknown> | undefined;
}

/** The refusals after which a client tries again. */
const passing: readonly string[] = [
  "lost_ownership",
  "not_awaiting",
  "run_cancelling",
  "run_finished",
  "answer_pending",
  // The client cannot know what has become of its call.
  "store_failed",
];
/** How many calls run at once, in a world with a random order. */
const MAX_RUNNING = 3;
/** After how long a call that a failing store has refused is repeated, in milliseconds. */
const AGAIN_MS = 100;
/** How many messages may wait for an agent that has not asked for them. */
const MAX_EARLY = 3;
/** In a world with a random order: how likely the client does something at each event, while there is a reason for it. */
const SOON = 0.3;
const SELDOM = 0.02;

/** Answers and declines the questions of a run and its sub-runs, sends them messages, and cancels the run. */
export class Client {
  readonly #script: ClientScript;
  readonly #world: World;
  readonly #random: Random | undefined;
  readonly #family: Family;
  readonly #tenant: string;
  readonly #replies = new Map<string, Reply>();
  readonly #sent = new Map<string, Mail[]>();
  /** Acknowledged messages that are sent once more. */
  readonly #again: { readonly run_id: string; readonly mail: Mail }[] = [];
  #running: Running[] = [];
  /** How many messages of the script the client has tried to send. */
  #messagesBegun = 0;
  #cancelled = false;

  constructor(script: ClientScript, world: World, family: Family, tenant: string) {
    this.#script = script;
    this.#tenant = tenant;
    this.#world = world;
    this.#random = world.options.random;
    this.#family = family;
  }

  /** Does something for the run. False: there is nothing to do, or it goes on by itself. */
  async act(process: Process): Promise<boolean> {
    await this.#look();
    const calls = this.#due().filter(({ about }) => !this.#running.some(({ call }) => call.about === about));
    const [first] = calls;
    if (first === undefined) return false;
    const random = this.#random;
    const call = random === undefined || first.what === "cancel" ? first : random.pick(calls);
    const outcome = call.make(scopeIn(process, this.#tenant));
    if (call.mayTakeLong === true || (this.#mayRunMore && random?.chance(0.5) === true)) {
      this.#running.push(observed(call, process, outcome));
      return false;
    }
    await this.#ended(call, await this.#world.until(outcome, process));
    return true;
  }

  /** What was acknowledged. */
  get told(): Omit<Told, "seen"> {
    return { replies: this.#replies, sent: this.#sent, isCancelled: this.#cancelled, sentInOrder: true };
  }

  /** Takes the outcomes of the calls that run, and forgets those of processes that do not. */
  async #look(): Promise<void> {
    const over = this.#running.filter(({ outcome, process }) => outcome !== undefined || process.state !== "alive");
    this.#running = this.#running.filter((one) => !over.includes(one));
    for (const { call, outcome } of over) await this.#ended(call, outcome);
  }

  async #ended({ what, to, onAccepted }: Call, outcome: Outcome<unknown> | undefined): Promise<void> {
    if (outcome !== undefined && "value" in outcome) {
      await this.#family.look();
      await onAccepted();
      return;
    }
    const code = outcome !== undefined && CadenzaError.is(outcome.error) ? outcome.error.code : "";
    const isGone = to === undefined || (await this.#world.find(to, this.#tenant)) === undefined;
    const isPassing = passing.includes(code) || (code === "run_not_found" && isGone);
    if (outcome !== undefined && !isPassing)
      this.#world.violations.push(`${what} was refused: ${String(outcome.error)}`);
    if (outcome !== undefined && String(outcome.error).includes(SECRET))
      this.#world.violations.push(`${what} was told what the store said`);
    // A client that is refused repeats its call after the next event of the world, and after a pause while the store fails.
    if (code === "store_failed") await this.#world.pass(AGAIN_MS);
    else await this.#world.step();
  }

  #due(): Call[] {
    const { state, log } = this.#family.root;
    if (!this.#cancelled && this.#script.cancelWhen?.(state, log) === true) return [this.#cancel()];
    return [...this.#repliesDue(), ...this.#mailDue(), ...this.#messagesDue()];
  }

  #cancel(): Call {
    return {
      what: "cancel",
      about: "cancel",
      to: this.#family.root.state.run_id,
      make: (scope) => scope.cancel(this.#family.root.state.run_id),
      onAccepted: () => {
        this.#cancelled = true;
      },
    };
  }

  /** The answers to the open questions that have none and are to get one. */
  *#repliesDue(): Iterable<Call> {
    const { state, log } = this.#family.root;
    for (const { asked } of openQuestions(state)) {
      if (this.#replies.has(asked.await_id) || !this.#feelsLike(SOON)) continue;
      const request = awaitRequest(state, asked);
      const decline = this.#script.decline?.(request, log);
      const answer = this.#script.answer === undefined ? numberFor(request) : this.#script.answer(request, log);
      if (answer !== undefined)
        yield this.#reply(asked, decline === undefined ? { await_resume: answer } : { decline });
    }
  }

  #reply(asked: AwaitedEntry, reply: Reply): Call {
    const random = this.#random;
    // The question of a sub-run can be answered there, too.
    const isDirect = asked.of !== undefined && random?.chance(0.25) === true;
    const to = isDirect && asked.of !== undefined ? asked.of : { run_id: this.#family.root.state.run_id, ...asked };
    const mode = this.#mayRunMore && random?.chance(0.3) === true ? "sync" : "async";
    const options = random?.chance(0.3) === true ? { idempotencyKey: `answer ${asked.await_id}` } : {};
    return {
      what: "resume",
      about: asked.await_id,
      to: to.run_id,
      mayTakeLong: mode === "sync",
      make: (scope) => scope.resume({ run_id: to.run_id, await_id: to.await_id, ...reply, mode }, options),
      onAccepted: async () => {
        const { log } = this.#family.root;
        if ((await repliesTo(asked.await_id, log, (id) => this.#world.log(id, this.#tenant))).length > 0) {
          this.#replies.set(asked.await_id, reply);
          return;
        }
        this.#world.violations.push(`the answer to ${asked.await_id} was acknowledged before it was written`);
        await this.#world.step();
      },
    };
  }

  /** Messages to the runs that wait for one, and now and then to others. */
  *#mailDue(): Iterable<Call> {
    const { mail } = this.#script;
    if (mail === undefined) return;
    for (const member of this.#family.members) {
      const { state } = member;
      if (isFinal(state.status) || state.status === "cancelling") continue;
      for (const name of MAIL) {
        const unread = [...(state.mail?.inbox ?? [])].filter(({ entry }) => entry.name === name).length;
        const isDue = unread === 0 && isNeeded(state, name) ? this.#feelsLike(SOON) : this.#isEarly(unread);
        if (!isDue) continue;
        const number = this.#sentTo(state.run_id).filter((one) => one.name === name).length + 1;
        yield this.#send(state.run_id, mail(member, name, number));
      }
    }
    for (const { run_id, mail } of this.#again) yield this.#send(run_id, mail, true);
  }

  *#messagesDue(): Iterable<Call> {
    const { state, log } = this.#family.root;
    const number = this.#sentTo(state.run_id).length;
    const next = this.#script.messages?.[number];
    if (next === undefined || (number >= this.#messagesBegun && !next.when(state, log))) return;
    // One that a failing store has refused is repeated, also if it has arrived and its condition does not hold any more.
    this.#messagesBegun = number + 1;
    yield this.#send(state.run_id, next);
  }

  #send(run_id: string, mail: Mail, isAgain = false): Call {
    const { name, data, idempotencyKey } = mail;
    const { labels } = this.#script;
    const isByLabels = labels !== undefined && run_id === this.#family.root.state.run_id && this.#feelsLike(0.5);
    const to = isByLabels ? { labels } : run_id;
    return {
      what: "send",
      about: `${run_id} ${name}`,
      to: isByLabels ? undefined : run_id,
      make: (scope) => scope.send({ to, name, data }, { idempotencyKey }),
      onAccepted: async () => {
        const inbox = await this.#world.inbox(run_id, this.#tenant);
        const log = await this.#world.log(run_id, this.#tenant);
        if (!isReceived([...log, ...inbox], mail))
          this.#world.violations.push(`the message ${idempotencyKey} was acknowledged before it was written`);
        if (isAgain)
          this.#again.splice(
            this.#again.findIndex((one) => one.mail === mail),
            1,
          );
        else this.#sentTo(run_id).push(mail);
        if (this.#random?.chance(0.2) === true) this.#again.push({ run_id, mail });
      },
    };
  }

  #sentTo(run_id: string): Mail[] {
    const sent = this.#sent.get(run_id) ?? [];
    this.#sent.set(run_id, sent);
    return sent;
  }

  get #mayRunMore(): boolean {
    return this.#running.length < MAX_RUNNING;
  }

  /** Whether a client that may do something does it now. Without a random order it does everything at once. */
  #feelsLike(chance: number): boolean {
    return this.#random?.chance(chance) ?? true;
  }

  #isEarly(unread: number): boolean {
    return unread < MAX_EARLY && this.#random?.chance(SELDOM) === true;
  }
}

/** Whether a receive without a deadline waits for such a message. */
function isNeeded(state: RunState, name: string): boolean {
  for (const { key, until } of state.waits?.values() ?? [])
    if (until === null && key.startsWith(`receive:${name}#`)) return true;
  return false;
}

function observed(call: Call, process: Process, promise: Promise<unknown>): Running {
  const running: Running = { call, process, outcome: undefined };
  promise.then(
    (value) => {
      running.outcome = { value };
    },
    (error: unknown) => {
      running.outcome = { error };
    },
  );
  return running;
}

/** The answer that belongs to a question. */
function numberFor({ await_id }: AwaitRequest): AwaitResume {
  return { number: await_id.length % 7 };
}
