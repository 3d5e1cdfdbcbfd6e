import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Command, Copy, Emission, ReplyCommand } from "../../src/core/commands.ts";
import { commandOf } from "../../src/core/commands.ts";
import { copyState } from "../../src/core/copy-state.ts";
import { decide, isRefusal } from "../../src/core/decide.ts";
import { DetailFold } from "../../src/core/detail.ts";
import type { PartSource } from "../../src/core/emission-source.ts";
import { stepOf } from "../../src/core/emission-source.ts";
import { evolve, foldEntries } from "../../src/core/evolve.ts";
import { sameJson } from "../../src/core/json.ts";
import type {
  AwaitedEntry,
  Entry,
  IntentEntry,
  OfferedEntry,
  PatchedEntry,
  ReceivedEntry,
  RefusedEntry,
  SettledEntry,
  StepEntry,
  TornEntry,
} from "../../src/core/log.ts";
import { generationOf, subRunIn } from "../../src/core/operation-keys.ts";
import type { StreamedEvent } from "../../src/core/project.ts";
import { project } from "../../src/core/project.ts";
import { runRecord, transcript } from "../../src/core/record.ts";
import type { Snapshot } from "../../src/core/snapshot.ts";
import { fromSnapshot, toSnapshot } from "../../src/core/snapshot.ts";
import type { Question, Replied, RunState } from "../../src/core/state.ts";
import {
  activeMs,
  EARLIER,
  Inbox,
  initialState,
  isFinal,
  isOpen,
  isWaiting,
  nextDeadline,
  openQuestions,
  replyTo,
  waitingMessages,
} from "../../src/core/state.ts";
import { eventSchema } from "../../src/protocol/event.ts";
import { detailEventSchema } from "../../src/protocol/extensions.ts";
import type { Message, MessagePart } from "../../src/protocol/message.ts";
import { runSchema } from "../../src/protocol/run.ts";
import { created, message, part, RUN_ID, relayed, settled, T0 } from "../harness/logs.ts";
import { share } from "../harness/share.ts";

/* Laws that hold for every log that commands and posts can make, in any order. */

/** What happens to a run. */
type Move =
  | { readonly does: "command"; readonly command: Command }
  /** The agent asks its next question. */
  | { readonly does: "ask"; readonly asking: Omit<AwaitedEntry, "type" | "await_id"> }
  /** A receive takes the first message of its name. */
  | { readonly does: "take"; readonly at: number; readonly key: string; readonly name: string }
  /** Another process appends an entry without a decision. */
  | { readonly does: "post"; readonly entry: Post };

type Post = (AwaitedEntry & { readonly of: object }) | SettledEntry | ReceivedEntry | OfferedEntry | CancelPost;
type CancelPost = Entry & { readonly type: "cancel-requested" };

// Some belong to a later generation.
const key = fc.constantFrom("a#1", "b#1", "a#2.1", "a#3.1");
const waitKey = fc.constantFrom("sleep#1", "receive:pay#1", "receive:pay#2", "sleep#2.1", "receive:pay#2.1");
const subRunIds = ["run:x#1/ask#1", "run:x#1/ask#2", "run:y#1/ask#1", "run:x#2.1/ask#1"] as const;
const subRunId = fc.constantFrom(...subRunIds);
const awaitId = fc.oneof({ weight: 3, arbitrary: fc.constantFrom("ask#1", "ask#2", "ask#3", "ask#2.1") }, subRunId);
const text = fc.constantFrom("x", "y", "");
const stepSource = record({ key, attempt: fc.integer({ min: 1, max: 2 }) });
const ofSubRun = {
  run_id: fc.constantFrom("run-2", "run-3"),
  event: fc.integer({ min: 1, max: 30 }),
  role: fc.constant("agent/child" as const),
};
const copySource = fc.oneof(record(ofSubRun), record({ ...ofSubRun, step: stepSource }));
const tornSource = record({ ...ofSubRun, step: stepSource });
const reply = fc.constantFrom<Replied>({ answer: { yes: true } }, { answer: { yes: false } }, { decline: {} });
const failure = fc.option(fc.constant({ code: "server_error", message: "It broke." } as const), { nil: null });
const usage = fc.constant(null);
const replyKeys = fc.option(fc.constantFrom("k1", "k2"), { nil: null });

const emission: fc.Arbitrary<Emission | Copy> = fc.oneof(
  { weight: 2, arbitrary: record({ kind: fc.constant("part"), part: text.map(part) }) },
  { weight: 2, arbitrary: record({ kind: fc.constant("part"), part: text.map(part), source: stepSource }) },
  record({ kind: fc.constant("message"), message: fc.array(text, { maxLength: 3 }).map(messageOf) }),
  record({ kind: fc.constant("message"), message: fc.constant(message("s")), source: stepSource }),
  record({ kind: fc.constantFrom("close"), source: stepSource }),
  { weight: 2, arbitrary: record({ kind: fc.constant("part"), part: text.map(part), source: copySource }) },
  record({ kind: fc.constant("part"), part: text.map(part), opens: fc.constant(true), source: copySource }),
  record({ kind: fc.constant("message"), message: fc.constant(message("c")), source: copySource }),
  record({ kind: fc.constant("close"), source: copySource }),
  record({ kind: fc.constant("generic"), generic: fc.constant({ a: 1 }) }),
  record({ kind: fc.constant("close") }),
);

function command(at: number): fc.Arbitrary<Command> {
  const now = fc.constant(at);
  const step = record<StepEntry>({
    type: fc.constant("step"),
    at: now,
    key: fc.oneof(key, waitKey),
    result: fc.constant(1),
    error: fc.constant(null),
    usage,
  });
  const intent = record<IntentEntry>({
    type: fc.constant("intent"),
    at: now,
    key,
    attempt: fc.constant(1),
    run_id: fc.constant(null),
  });
  const torn = record<TornEntry>({ type: fc.constant("torn"), at: now, source: tornSource });
  const wait = record<IntentEntry>({
    type: fc.constant("intent"),
    at: now,
    key: waitKey,
    attempt: fc.constant(1),
    run_id: fc.constant(null),
    until: fc.constantFrom(null, at + 7),
  });
  const refused = record<RefusedEntry>({
    type: fc.constant("refused"),
    at: now,
    offer_id: fc.constantFrom("o1", "o2"),
    code: fc.constant("answer_rejected"),
  });
  const patched = record<PatchedEntry>({ type: fc.constant("patched"), at: now, id: fc.constantFrom("p1", "p2") });
  return fc.oneof(
    record({ type: fc.constant("patch"), entry: patched }),
    { weight: 6, arbitrary: record({ type: fc.constant("emit"), at: now, item: emission }) },
    { weight: 2, arbitrary: record({ type: fc.constant("start"), at: now }) },
    record({ type: fc.constant("create"), entry: fc.constant(created({ at })) }),
    record({ type: fc.constant("intend"), entry: intent }),
    { weight: 2, arbitrary: record({ type: fc.constant("tear"), entry: torn }) },
    { weight: 2, arbitrary: record({ type: fc.constant("intend"), entry: wait }) },
    { weight: 2, arbitrary: record({ type: fc.constant("record"), entry: step }) },
    {
      weight: 3,
      arbitrary: fc.record<ReplyCommand, keyof ReplyCommand>(
        {
          type: fc.constant("reply"),
          at: now,
          await_id: fc.option(awaitId, { nil: null }),
          reply,
          idempotency_key: replyKeys,
          by: fc.constant("a person"),
          offer_id: fc.constantFrom("o1", "o2"),
        },
        { noNullPrototype: true, requiredKeys: ["type", "at", "await_id", "reply", "idempotency_key"] },
      ),
    },
    { weight: 3, arbitrary: record({ type: fc.constant("refuse"), entry: refused }) },
    record({ type: fc.constant("withdraw"), at: now, await_id: fc.oneof(awaitId, waitKey) }),
    record({ type: fc.constant("expire"), at: now, await_id: awaitId, defaulted: fc.boolean() }),
    record({ type: fc.constant("overrun"), at: now }),
    post(at).map(commandOf),
    record({ type: fc.constant("continue"), at: now, carry: fc.constantFrom(undefined, 1), usage }),
    record({ type: fc.constant("end"), at: now, failure, usage }),
  );
}

function post(at: number): fc.Arbitrary<Post> {
  const now = fc.constant(at);
  return fc.oneof(
    { weight: 4, arbitrary: subRunId.map((id) => relayed(id, at)) },
    {
      weight: 4,
      arbitrary: fc.tuple(subRunId, fc.option(reply, { nil: null })).map(([id, one]) => settled(id, one, at)),
    },
    {
      weight: 4,
      arbitrary: record<ReceivedEntry>({
        type: fc.constant("received"),
        at: now,
        name: fc.constantFrom("pay", "news"),
        data: fc.constantFrom(1, 2),
        idempotency_key: fc.constantFrom("m1", "m2", "m3", "m4"),
        bytes: fc.constantFrom(1, 10),
      }),
    },
    {
      weight: 6,
      arbitrary: record<OfferedEntry>({
        type: fc.constant("offered"),
        at: now,
        offer_id: fc.constantFrom("o1", "o2"),
        await_id: awaitId,
        answer: fc.constant({ yes: true }),
        idempotency_key: fc.constant(null),
      }),
    },
    fc.constant<CancelPost>({ type: "cancel-requested", at }),
  );
}

function move(at: number): fc.Arbitrary<Move> {
  const asking = fc.record<Omit<AwaitedEntry, "type" | "await_id">>(
    {
      at: fc.constant(at),
      parts: fc.constantFrom([part("This?")], [part("This,"), part("or that?")]),
      deadline: fc.constant(at + 5),
      emitted: fc.nat(3),
    },
    { noNullPrototype: true, requiredKeys: ["at", "parts", "emitted"] },
  );
  const name = fc.constantFrom("pay", "news");
  return fc.oneof(
    { weight: 8, arbitrary: record({ does: fc.constant("command"), command: command(at) }) },
    { weight: 3, arbitrary: record({ does: fc.constant("ask"), asking }) },
    { weight: 3, arbitrary: record({ does: fc.constant("take"), at: fc.constant(at), key: waitKey, name }) },
    { weight: 3, arbitrary: record({ does: fc.constant("post"), entry: post(at) }) },
  );
}

const anyMoves: fc.Arbitrary<readonly Move[]> = fc
  .array(fc.nat(20), { minLength: 1, maxLength: 40 })
  .chain((gaps) => fc.tuple(...gaps.map((gap, index) => move(T0 + 10 * index + gap))));

const begin: Move = { does: "command", command: { type: "start", at: T0 } };

/** Most runs begin at once. */
const moves: fc.Arbitrary<readonly Move[]> = fc.oneof(
  {
    weight: 4,
    arbitrary: anyMoves.map((later) => [begin, ...later]),
  },
  anyMoves,
);

/** As `fc.record`, but its objects have the usual prototype. */
function record<T extends object>(model: { [Key in keyof T]: fc.Arbitrary<T[Key]> }): fc.Arbitrary<T> {
  return fc.record<T>(model, { noNullPrototype: true });
}

function messageOf(texts: readonly string[]): Message {
  return { ...message(""), parts: texts.map(part) };
}

/** A log, and which of its entries were not decided. */
interface Made {
  readonly log: readonly Entry[];
  readonly posted: ReadonlySet<Entry>;
}

/** The log that a run's moves make. */
function logOf(given: readonly Move[], check?: (state: RunState, command: Command) => void): Made {
  const state = initialState(RUN_ID);
  const log: Entry[] = [];
  const posted = new Set<Entry>();
  let asks = 0;
  /** How long the run was active, as its owner measures it. */
  let activeTime = 0;
  const first: Move = { does: "command", command: { type: "create", entry: created() } };
  for (const one of [first, ...given]) {
    if (one.does === "post") {
      // A sub-run exists after its parent has begun. The store refuses posts to a run that has ended.
      if (state.ended !== null || (state.started === null && one.entry.type !== "received")) continue;
      const entry = { ...one.entry };
      evolve(state, entry);
      posted.add(entry);
      log.push(entry);
      continue;
    }
    const asked = commandFor(one, state, `ask#${asks + 1}`);
    check?.(state, asked);
    activeTime += 1;
    const decision = decide(state, asked, activeTime);
    if (isRefusal(decision)) continue;
    if (one.does === "ask" && decision.length > 0) asks += 1;
    for (const entry of decision) {
      evolve(state, entry);
      log.push(entry);
    }
  }
  return { log, posted };
}

function commandFor(one: Exclude<Move, { readonly does: "post" }>, state: RunState, next: string): Command {
  switch (one.does) {
    case "command":
      return one.command;
    case "ask":
      return { ...one.asking, type: "ask", await_id: next };
    case "take": {
      const { at, key: taker, name } = one;
      const position = state.mail?.inbox.find(({ entry }) => entry.name === name)?.position ?? null;
      return { type: "take", entry: { type: "taken", at, key: taker, position } };
    }
  }
}

/** The events of a log with their numbers. */
function eventsOf(log: readonly Entry[]): StreamedEvent[] {
  const state = initialState(RUN_ID);
  return log.flatMap((entry) => eventsOfLast(evolve(state, entry), entry));
}

/** The events of the last entry of a state. */
function eventsOfLast(state: RunState, entry: Entry): StreamedEvent[] {
  const events: StreamedEvent[] = [];
  for (let index = 0; index < state.last_events; index++) {
    const event = project(state, entry, index);
    if (event !== undefined) events.push(event);
  }
  return events;
}

/** The output as a reader builds it from the events alone, without what repeated attempts at a step have replaced. */
function outputOf(log: readonly Entry[]): Message[] {
  let output: { message: Message; parts: MessagePart[]; by: PartSource | undefined }[] = [];
  const state = initialState(RUN_ID);
  for (const entry of log) {
    evolve(state, entry);
    if (entry.type === "intent") output = output.filter(({ by }) => by?.key !== entry.key);
    if (entry.type === "torn") output = output.filter(({ by }) => by?.key !== stepOf(entry.source)?.key);
    if (entry.type === "step") for (const shown of output) if (shown.by?.key === entry.key) shown.by = undefined;
    const source = entry.type === "emitted" ? stepOf(entry.source) : undefined;
    // A later attempt at a step emits again what an earlier one has emitted.
    if (source !== undefined)
      output = output.filter(({ by }) => by?.key !== source.key || by.attempt === source.attempt);
    for (let index = 0; index < state.last_events; index++) {
      const event = project(state, entry, index);
      if (event?.type === "message.created") {
        expect(output.at(-1)?.message.completed_at).not.toBeNull();
        output.push({ message: event.message, parts: [], by: source });
      } else if (event?.type === "message.part") output.at(-1)?.parts.push(event.part);
      else if (event?.type === "message.completed") {
        const open = output.pop();
        expect(open?.parts).toEqual(event.message.parts);
        output.push({ message: event.message, parts: open?.parts ?? [], by: open?.by });
      }
    }
    if (entry.type === "continued") output = [];
  }
  return output.map(({ message: told, parts }) => ({ ...told, parts }));
}

/** What the laws know of a run while they read its log. It does not depend on the library's own rules. */
class Reading {
  /** The open questions, in the order in which they were asked. */
  open: string[] = [];
  /** All questions that have been open. */
  readonly asked = new Set<string>();
  /** The questions of sub-runs that are shown no more. */
  readonly known = new Set<string>();
  readonly waits = new Map<string, number | null>();
  /** The offers without a verdict, by question. */
  readonly offers = new Map<string, OfferedEntry>();
  readonly #refused = new Set<string>();
  /** A cancelled or overdue run asks nothing more. */
  stopped = false;
  /** The union of the intervals in which the run waited. */
  waitingMs = 0;
  #since: number | undefined;
  #at = 0;
  #generation = 1;

  read(entry: Entry): this {
    this.#at = Math.max(this.#at, entry.at);
    this.#follow(entry);
    const waits = this.open.length > 0 || this.waits.size > 0;
    if (waits) this.#since ??= this.#at;
    else if (this.#since !== undefined) {
      this.waitingMs += this.#at - this.#since;
      this.#since = undefined;
    }
    return this;
  }

  #follow(entry: Entry): void {
    switch (entry.type) {
      case "continued":
        this.#stop();
        this.stopped = false;
        this.#generation = entry.generation;
        this.asked.clear();
        this.known.clear();
        this.#refused.clear();
        return;
      case "awaited":
        if (entry.of !== undefined && !this.#isOfNow(entry.await_id)) return;
        if (entry.of !== undefined && (this.stopped || this.known.has(entry.await_id))) return;
        if (entry.of !== undefined) this.known.add(entry.await_id);
        this.open.push(entry.await_id);
        this.asked.add(entry.await_id);
        return;
      case "settled":
        if (!this.#isOfNow(entry.await_id)) return;
        this.known.add(entry.await_id);
        this.#close(entry.await_id);
        return;
      case "resumed":
      case "declined":
        this.#close(entry.await_id);
        return;
      case "withdrawn":
        this.waits.delete(entry.await_id);
        this.#close(entry.await_id);
        return;
      case "timed-out":
        if (!entry.defaulted) this.#stop();
        else if (entry.await_id !== null) this.#close(entry.await_id);
        return;
      case "intent":
        if (entry.until !== undefined) this.waits.set(entry.key, entry.until);
        return;
      case "step":
      case "taken":
        this.waits.delete(entry.key);
        return;
      case "offered":
        if (this.#refused.has(entry.offer_id) || this.offers.has(entry.await_id)) return;
        if (this.open.includes(entry.await_id)) this.offers.set(entry.await_id, entry);
        return;
      case "refused":
        this.#refused.add(entry.offer_id);
        for (const [id, { offer_id }] of this.offers) if (offer_id === entry.offer_id) this.offers.delete(id);
        return;
      case "cancel-requested":
      case "ended":
        this.#stop();
        return;
      default:
        return;
    }
  }

  /** Whether a sub-run that asks was begun by the generation that is at work. */
  #isOfNow(awaitId: string): boolean {
    return this.#generation === (/^run:.#(\d)\./.test(awaitId) ? Number(awaitId.charAt(6)) : 1);
  }

  /** The run waits for nothing any more. */
  #stop(): void {
    this.offers.clear();
    this.stopped = true;
    this.open = [];
    this.waits.clear();
  }

  #close(awaitId: string): void {
    this.open = this.open.filter((id) => id !== awaitId);
    this.offers.delete(awaitId);
  }
}

/** Reads a log entry by entry, with the state and what the laws know after each of them. */
function* readings(log: readonly Entry[]): Generator<readonly [entry: Entry, state: RunState, reading: Reading]> {
  const state = initialState(RUN_ID);
  const reading = new Reading();
  for (const entry of log) yield [entry, evolve(state, entry), reading.read(entry)];
}

function idsOf(questions: readonly { readonly asked: AwaitedEntry }[] | null): readonly string[] {
  return (questions ?? []).map(({ asked }) => asked.await_id);
}

/** The questions of the generation that is at work. */
function ofNow(questions: readonly Question[] | null): readonly Question[] {
  return (questions ?? []).filter(({ after }) => after !== EARLIER);
}

/** What a log says about its run, but for positions in it. */
function told(log: readonly Entry[]): object {
  const state = foldEntries(RUN_ID, log);
  return {
    events: eventsOf(log),
    open: idsOf(openQuestions(state)),
    exchanges: (state.exchanges ?? []).map((one) => [one.asked.await_id, one.settled?.at, replyTo(one)]),
    inbox: [...(state.mail?.inbox ?? [])].map(({ entry }) => entry),
    settled: [...(state.mail?.settled ?? [])],
    waits: state.waits,
    waiting_ms: state.waiting_ms ?? 0,
    waiting_since: state.waiting_from?.at ?? null,
  };
}

function itHolds(title: string, law: (log: readonly Entry[], posted: ReadonlySet<Entry>) => void): void {
  it(title, () => {
    fc.assert(
      fc.property(moves, (given) => {
        const { log, posted } = logOf(given);
        law(log, posted);
      }),
      { numRuns: share(600, 200) },
    );
  });
}

/** The snapshot of a state that is not too large for one. */
function snapshotIn(state: RunState): Snapshot {
  const snapshot = toSnapshot(state);
  if (snapshot === undefined) throw new Error("The state is too large for a snapshot.");
  return snapshot;
}

describe("every log that commands and posts can make", () => {
  it("is decided without changing the state", () => {
    const law = (given: readonly Move[]): void => {
      logOf(given, (state, one) => {
        const before = copyState(state);
        decide(state, one);
        expect(state).toStrictEqual(before);
      });
    };
    fc.assert(fc.property(moves, law), { numRuns: 100 });
  });

  itHolds("has events numbered without a gap, as many as its entries give", (log) => {
    const events = eventsOf(log);
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    expect(foldEntries(RUN_ID, log).events).toBe(events.length);
  });

  itHolds("goes on from a snapshot after any of its entries as if it were read from its beginning", (log) => {
    const whole = snapshotIn(foldEntries(RUN_ID, log));
    const events = eventsOf(log);
    for (const [index] of log.entries()) {
      const state = fromSnapshot(snapshotIn(foldEntries(RUN_ID, log.slice(0, index + 1))));
      if (state === undefined) throw new Error("The snapshot is not read.");
      const later = log.slice(index + 1).flatMap((entry) => eventsOfLast(evolve(state, entry), entry));
      expect(later).toEqual(events.slice(events.length - later.length));
      expect(snapshotIn(state)).toEqual(whole);
    }
  });

  itHolds("has events and a record that the protocol describes", (log) => {
    for (const { id: _, source: _source, ...event } of eventsOf(log)) {
      const { usage, ...shown } = { usage: undefined, ...event };
      expect(usage === undefined).toBe(!/^run\.(completed|failed|cancelled)$/.test(event.type));
      expect(eventSchema.parse(shown)).toStrictEqual(shown);
    }
    const last = runRecord(foldEntries(RUN_ID, log));
    expect(runSchema.parse(last)).toStrictEqual(last);
  });

  itHolds("has the output that its message events add up to", (log) => {
    expect(runRecord(foldEntries(RUN_ID, log)).output).toEqual(outputOf(log));
  });

  itHolds("has one final entry at most, and nothing after it", (log) => {
    const end = log.findIndex(({ type }) => type === "ended");
    expect(end === -1 || end === log.length - 1).toBe(true);
    expect(isFinal(foldEntries(RUN_ID, log).status)).toBe(end !== -1);
  });

  itHolds("is the same when the commands are read from its entries and decided again", (log, posted) => {
    const state = initialState(RUN_ID);
    for (const entry of log) {
      if (!posted.has(entry)) expect(decide(state, commandOf(entry))).toEqual([entry]);
      evolve(state, entry);
    }
  });

  itHolds("is folded to the same state from its last generation on", (log) => {
    const begin = log.findLastIndex(({ type }) => type === "continued");
    if (begin === -1) return;
    const whole = foldEntries(RUN_ID, log);
    const short = foldEntries(RUN_ID, [...log.slice(0, 1), ...log.slice(begin)]);
    const keys = ["m1", "m2", "m3", "m4"].map((key) => [whole, short].map(({ mail }) => mail?.keys.get(key)));
    for (const [one, other] of keys) expect(other).toEqual(one);
    const withoutKeys = (state: RunState) => ({
      ...state,
      started: null,
      generation: { ...state.generation, closed: null, left: null },
      mail: state.mail && { ...state.mail, keys: [] },
    });
    expect(withoutKeys(short)).toEqual(withoutKeys(whole));
  });

  itHolds("has no message open where the agent asks a question", (log) => {
    for (const [entry, state] of readings(log))
      if (entry.type === "awaited" && entry.of === undefined) expect(isOpen(state)).toBe(false);
  });

  itHolds("has the questions open that were asked and not settled, and awaits exactly while there is one", (log) => {
    for (const [, state, { open, asked }] of readings(log)) {
      expect(idsOf(openQuestions(state))).toEqual(open);
      expect(new Set([...open, ...idsOf(ofNow(state.exchanges))])).toEqual(asked);
      expect(state.question?.asked.await_id).toBe(open[0]);
      expect(state.more_questions === null).toBe(open.length < 2);
      expect(state.status === "awaiting").toBe(open.length > 0);
      expect(runRecord(state).await_request?.await_id).toBe(open[0]);
    }
  });

  itHolds("goes on and awaits in turn, and each event shows the first open question", (log) => {
    let last = "run.awaiting";
    for (const [entry, state, { open }] of readings(log))
      for (const event of eventsOfLast(state, entry)) {
        if (event.type !== "run.awaiting" && event.type !== "run.in-progress") continue;
        if (entry.type === "continued") expect(event.type).toBe("run.in-progress");
        else expect(event.type).not.toBe(last);
        last = event.type;
        expect(event.run.status).toBe(event.type.slice("run.".length));
        expect(event.run.await_request?.await_id).toBe(event.type === "run.awaiting" ? open[0] : undefined);
      }
  });

  itHolds("tells its clients each change of its status, unless the run is about to end", (log) => {
    let told = "created";
    for (const [entry, state, { stopped }] of readings(log)) {
      for (const event of eventsOfLast(state, entry)) if ("run" in event) told = event.run.status;
      if (!stopped || isFinal(state.status)) expect(told).toBe(state.status);
    }
  });

  itHolds("gives each question one reply at most, while it is open", (log) => {
    let open: readonly string[] = [];
    const replied = new Set<string>();
    const keys = new Set<string>();
    for (const [entry, , reading] of readings(log)) {
      if (entry.type === "resumed" || entry.type === "declined") {
        expect(open).toContain(entry.await_id);
        expect(replied).not.toContain(entry.await_id);
        expect(subRunIds).not.toContain(entry.await_id);
        replied.add(entry.await_id);
        // A key belongs to one reply.
        expect(keys).not.toContain(entry.idempotency_key);
        if (entry.idempotency_key !== null) keys.add(entry.idempotency_key);
      }
      open = reading.open;
    }
    const { exchanges } = foldEntries(RUN_ID, log);
    expect(new Set(idsOf(exchanges)).size).toBe(exchanges?.length ?? 0);
    for (const one of exchanges ?? [])
      if (one.asked.of === undefined) expect(replyTo(one) !== undefined).toBe(replied.has(one.asked.await_id));
  });

  itHolds("has an active time and a waiting time that add up to its time from start to end", (log) => {
    const state = foldEntries(RUN_ID, log);
    const start = log.find(({ type }) => type === "started");
    if (start === undefined || state.ended === null) return;
    expect(activeMs(state, 0) + (state.waiting_ms ?? 0)).toBe(state.ended.at - start.at);
  });

  itHolds("records the active time where operations begin and end, and at its own end", (log, posted) => {
    const state = initialState(RUN_ID);
    for (const entry of log) {
      const isOperation = ["intent", "attempt-failed", "step", "taken", "continued", "ended"].includes(entry.type);
      const isQuestion = entry.type === "awaited" && entry.of === undefined;
      const recorded = "active_ms" in entry ? entry.active_ms : undefined;
      expect(recorded !== undefined).toBe((isOperation || isQuestion) && !posted.has(entry));
      const before = state.active_ms;
      if (recorded !== undefined) expect(recorded).toBeGreaterThan(before);
      expect(evolve(state, entry).active_ms).toBe(entry.type === "continued" ? 0 : (recorded ?? before));
    }
  });

  itHolds("waits while a question, a sleep or a receive is open, and counts the union of these times", (log) => {
    for (const [, state, { open, waits, waitingMs }] of readings(log)) {
      expect(isWaiting(state)).toBe(open.length + waits.size > 0);
      expect(state.waiting_from !== null).toBe(isWaiting(state));
      expect(state.waiting_ms ?? 0).toBe(waitingMs);
      const asked = openQuestions(state).flatMap((one) => (one.asked.of === undefined ? one.asked.deadline : []));
      const due = [...asked, ...waits.values()].filter((at) => typeof at === "number");
      expect(nextDeadline(state)).toBe(due.length === 0 ? null : Math.min(...due));
    }
  });

  itHolds("has each message once, and taken once at most, those of a name in order", (log, posted) => {
    const arrived = new Map<string, number>();
    for (const [position, entry] of log.entries()) {
      if (entry.type !== "received") continue;
      const isRepeated = arrived.has(entry.idempotency_key);
      expect(isRepeated && !posted.has(entry)).toBe(false);
      if (!isRepeated) arrived.set(entry.idempotency_key, position);
    }
    const left = new Set(arrived.values());
    const last = new Map<string, number>();
    for (const entry of log) {
      if (entry.type !== "taken" || entry.position === null) continue;
      const taken = log[entry.position];
      expect(left.delete(entry.position)).toBe(true);
      if (taken?.type !== "received") throw new Error("Something else was taken.");
      expect(entry.position).toBeGreaterThan(last.get(taken.name) ?? -1);
      last.set(taken.name, entry.position);
    }
    const state = foldEntries(RUN_ID, log);
    const inbox = [...(state.mail?.inbox ?? [])];
    expect(inbox.map(({ position }) => position)).toEqual([...left]);
    const bytes = inbox.reduce((sum, { entry }) => sum + (entry.bytes ?? 0), 0);
    expect(waitingMessages(state)).toEqual({ messages: left.size, bytes });
  });

  itHolds("keeps the first offer for each open question, unless it was refused", (log) => {
    for (const [, { mail }, { offers }] of readings(log)) expect(mail?.offers ?? new Map()).toEqual(offers);
  });

  itHolds("has every message, question and answer in its transcript once", (log) => {
    const state = foldEntries(RUN_ID, log);
    const questions = [...ofNow(state.exchanges), ...openQuestions(state)];
    const inputs = state.generation === null ? 1 : 0;
    const answers = questions.filter((one) => "answer" in (replyTo(one) ?? {})).length;
    expect(transcript(state)).toHaveLength(inputs + questions.length + answers + state.output.length);
  });

  itHolds("has details that end everything they begin, once, when the run has ended", (log) => {
    const state = initialState(RUN_ID);
    const fold = new DetailFold(false);
    const details = log.flatMap((entry) => fold.detailsOf(evolve(state, entry), entry));
    expect(details.map(({ position }) => position)).toEqual(details.map((_, index) => index + 1));
    const open = new Set<string>();
    for (const detail of details) {
      expect(detailEventSchema.parse(detail)).toEqual(detail);
      const id =
        detail.type === "question.asked" ? detail.question.await_id : "await_id" in detail ? detail.await_id : "";
      if (detail.type === "question.asked") {
        expect(open.has(id)).toBe(false);
        open.add(id);
      }
      if (detail.type === "question.settled") expect(open.delete(id)).toBe(true);
    }
    expect([...open].sort()).toEqual(
      openQuestions(state)
        .map(({ asked }) => asked.await_id)
        .sort(),
    );
  });
});

describe("a post", () => {
  it("that comes again later changes nothing", () => {
    const law = (given: readonly Move[], from: number, to: number): void => {
      const repeated = given[from % given.length];
      if (repeated?.does !== "post" || repeated.entry.type === "offered") return;
      // The sub-runs of a generation post nothing before it begins.
      const { entry } = repeated;
      if ("of" in entry && entry.of !== undefined && generationOf(subRunIn(entry.await_id)) > 1) return;
      const first = logOf(given);
      if (![...first.posted].some((entry) => sameJson(entry, repeated.entry))) return;
      const index = (from % given.length) + 1 + (to % (given.length - (from % given.length)));
      const second = logOf(given.toSpliced(index, 0, repeated));
      expect(told(second.log)).toEqual(told(first.log));
    };
    fc.assert(fc.property(moves, fc.nat(), fc.nat(), law), { numRuns: share(2_000, 500) });
  });

  it("shows and settles the same questions of sub-runs in every order", () => {
    const ofFirst = subRunIds.filter((id) => generationOf(subRunIn(id)) === 1);
    const posts = ofFirst.flatMap((id, index) => [
      relayed(id),
      settled(id, index === 0 ? null : { answer: { yes: true } }),
    ]);
    const some = fc.subarray(posts).chain((chosen) => fc.tuple(fc.constant(chosen), shuffled([...chosen, ...chosen])));
    const law = ([chosen, order]: readonly [readonly Entry[], readonly Entry[]]): void => {
      const ids = (type: Entry["type"]): string[] =>
        chosen.flatMap((entry) => (entry.type === type && "await_id" in entry ? `${entry.await_id}` : []));
      const state = foldEntries(RUN_ID, [created(), { type: "started", at: T0 + 10 }, ...order]);
      const open = ids("awaited").filter((id) => !ids("settled").includes(id));
      expect(new Set(idsOf(openQuestions(state)))).toEqual(new Set(open));
      const closed = [...idsOf(state.exchanges), ...(state.mail?.settled ?? [])];
      expect(new Set(closed)).toEqual(new Set(ids("settled")));
    };
    fc.assert(fc.property(some, law), { numRuns: share(1_000, 300) });
  });
});

it("an inbox is a list, from wherever messages are taken", () => {
  const received: ReceivedEntry = { type: "received", at: T0, name: "mail", data: 1, idempotency_key: "1" };
  // Mostly the first one is taken, and sometimes one that is not there.
  const act = fc.oneof({ weight: 6, arbitrary: fc.constant(0) }, fc.nat(20));
  const law = (count: number, takes: readonly number[]): void => {
    let list = Array.from({ length: count }, (_, position) => ({ entry: received, position }));
    const inbox = new Inbox(list);
    for (const [turn, from] of takes.entries()) {
      const taken = list[from];
      expect(inbox.take(taken?.position ?? -1)).toEqual(taken);
      list = list.filter((message) => message !== taken);
      if (turn % 3 !== 0) continue;
      const message = { entry: received, position: count + turn };
      inbox.add(message);
      list.push(message);
      expect([inbox.size, inbox.find(() => true)]).toEqual([list.length, list[0]]);
    }
    expect([...inbox]).toEqual(list);
    expect([...new Inbox(inbox)]).toEqual(list);
  };
  fc.assert(fc.property(fc.nat(3_000), fc.array(act, { maxLength: 100 }), law), { numRuns: 200 });
  law(
    3_000,
    Array.from({ length: 2_500 }, () => 0),
  );
});

function shuffled<T>(items: T[]): fc.Arbitrary<T[]> {
  return fc.shuffledSubarray(items, { minLength: items.length });
}
