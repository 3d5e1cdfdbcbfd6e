import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { AskCommand, Command, Emission } from "../../src/core/decide.ts";
import { commandOf, decide, isRefusal } from "../../src/core/decide.ts";
import { evolve, foldEntries } from "../../src/core/evolve.ts";
import type { Entry, IntentEntry, PartSource, StepEntry } from "../../src/core/log.ts";
import type { StreamedEvent } from "../../src/core/project.ts";
import { eventCount, project } from "../../src/core/project.ts";
import { runRecord, transcript } from "../../src/core/record.ts";
import { activeMs, initialState, isFinal, isOpen } from "../../src/core/state.ts";
import { eventSchema } from "../../src/protocol/event.ts";
import type { Message, MessagePart } from "../../src/protocol/message.ts";
import { runSchema } from "../../src/protocol/run.ts";
import { created, message, part, RUN_ID, T0 } from "../harness/logs.ts";

/* Laws that hold for every log that commands can make, in any order. */

const key = fc.constantFrom("a#1", "b#1");
const awaitId = fc.constantFrom("ask#1", "ask#2");
const text = fc.constantFrom("x", "y", "");
const stepSource = record({ key, attempt: fc.integer({ min: 1, max: 2 }) });
const answer = fc.constantFrom({ yes: true }, { yes: false });
const failure = fc.option(fc.constant({ code: "server_error", message: "It broke." } as const), { nil: null });
const usage = fc.constant(null);

const emission: fc.Arbitrary<Emission> = fc.oneof(
  { weight: 2, arbitrary: record({ kind: fc.constant("part"), part: text.map(part) }) },
  { weight: 2, arbitrary: record({ kind: fc.constant("part"), part: text.map(part), source: stepSource }) },
  record({ kind: fc.constant("message"), message: fc.array(text, { maxLength: 3 }).map(messageOf) }),
  record({ kind: fc.constant("message"), message: fc.constant(message("s")), source: stepSource }),
  record({ kind: fc.constantFrom("close"), source: stepSource }),
  record({ kind: fc.constant("generic"), generic: fc.constant({ a: 1 }) }),
  record({ kind: fc.constant("close") }),
);

function command(at: number): fc.Arbitrary<Command> {
  const now = fc.constant(at);
  const step = record<StepEntry>({
    type: fc.constant("step"),
    at: now,
    key,
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
  return fc.oneof(
    { weight: 6, arbitrary: record({ type: fc.constant("emit"), at: now, item: emission }) },
    { weight: 2, arbitrary: record({ type: fc.constant("start"), at: now }) },
    record({ type: fc.constant("create"), entry: fc.constant(created({ at })) }),
    record({ type: fc.constant("intend"), entry: intent }),
    record({ type: fc.constant("record"), entry: step }),
    {
      weight: 2,
      arbitrary: fc.record<AskCommand, keyof AskCommand>(
        {
          type: fc.constant("ask"),
          at: now,
          await_id: awaitId,
          parts: fc.constantFrom([part("This?")], [part("This,"), part("or that?")]),
          deadline: fc.constant(at + 5),
          expires_at: fc.constant("2026-01-01T00:00:00.000Z"),
          emitted: fc.nat(3),
        },
        { noNullPrototype: true, requiredKeys: ["type", "at", "await_id", "parts", "emitted"] },
      ),
    },
    {
      weight: 2,
      arbitrary: record({
        type: fc.constant("resume"),
        at: now,
        await_id: fc.option(awaitId, { nil: null }),
        answer,
        idempotency_key: fc.option(fc.constantFrom("k1", "k2"), { nil: null }),
      }),
    },
    record({ type: fc.constant("withdraw"), at: now, await_id: awaitId }),
    record({ type: fc.constant("expire"), at: now, await_id: awaitId, defaulted: fc.boolean() }),
    record({ type: fc.constant("overrun"), at: now }),
    record({ type: fc.constant("cancel"), at: now }),
    record({ type: fc.constant("end"), at: now, failure, usage }),
  );
}

const commands = fc
  .array(fc.nat(20), { minLength: 1, maxLength: 40 })
  .chain((gaps) => fc.tuple(...gaps.map((gap, index) => command(T0 + 10 * index + gap))));

/** As `fc.record`, but its objects have the usual prototype. */
function record<T extends object>(model: { [Key in keyof T]: fc.Arbitrary<T[Key]> }): fc.Arbitrary<T> {
  return fc.record<T>(model, { noNullPrototype: true });
}

function messageOf(texts: readonly string[]): Message {
  return { ...message(""), parts: texts.map(part) };
}

/** The entries that a run's commands make. */
function logOf(given: readonly Command[]): Entry[] {
  const state = initialState(RUN_ID);
  const entries: Entry[] = [];
  for (const each of [{ type: "create", entry: created() } as const, ...given]) {
    const before = JSON.stringify(state);
    const decision = decide(state, each);
    expect(JSON.stringify(state)).toBe(before);
    if (isRefusal(decision)) continue;
    for (const entry of decision) {
      evolve(state, entry);
      entries.push(entry);
    }
  }
  return entries;
}

/** The events of a log with their numbers. */
function eventsOf(log: readonly Entry[]): StreamedEvent[] {
  const state = initialState(RUN_ID);
  const events: StreamedEvent[] = [];
  for (const entry of log) {
    evolve(state, entry);
    for (let index = 0; index < eventCount(entry); index++) {
      const event = project(state, entry, index);
      if (event !== undefined) events.push(event);
    }
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
    if (entry.type === "step") for (const shown of output) if (shown.by?.key === entry.key) shown.by = undefined;
    const source = entry.type === "emitted" ? entry.source : undefined;
    // A later attempt at a step emits again what an earlier one has emitted.
    if (source !== undefined)
      output = output.filter(({ by }) => by?.key !== source.key || by.attempt === source.attempt);
    for (let index = 0; index < eventCount(entry); index++) {
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
  }
  return output.map(({ message: told, parts }) => ({ ...told, parts }));
}

function itHolds(title: string, law: (log: readonly Entry[]) => void): void {
  it(title, () => {
    fc.assert(
      fc.property(commands, (given) => law(logOf(given))),
      { numRuns: 300 },
    );
  });
}

describe("every log that commands can make", () => {
  itHolds("has events numbered without a gap, as many as its entries give", (log) => {
    const events = eventsOf(log);
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    expect(foldEntries(RUN_ID, log).events).toBe(events.length);
  });

  itHolds("has events and a record that the protocol describes", (log) => {
    for (const { id: _, ...event } of eventsOf(log)) expect(eventSchema.parse(event)).toStrictEqual(event);
    const record = runRecord(foldEntries(RUN_ID, log));
    expect(runSchema.parse(record)).toStrictEqual(record);
  });

  itHolds("has the output that its message events add up to", (log) => {
    expect(runRecord(foldEntries(RUN_ID, log)).output).toEqual(outputOf(log));
  });

  itHolds("has one final entry at most, and nothing after it", (log) => {
    const end = log.findIndex(({ type }) => type === "ended");
    expect(end === -1 || end === log.length - 1).toBe(true);
    expect(isFinal(foldEntries(RUN_ID, log).status)).toBe(end !== -1);
  });

  itHolds("is the same when its commands are read from its entries and decided again", (log) => {
    const [, ...rest] = log.map(commandOf);
    expect(logOf(rest)).toEqual(log);
  });

  itHolds("has no message open where a question is asked", (log) => {
    const state = initialState(RUN_ID);
    for (const entry of log) {
      evolve(state, entry);
      if (entry.type === "awaited") expect(isOpen(state)).toBe(false);
    }
  });

  itHolds("shows a question while it waits, and only then", (log) => {
    const state = initialState(RUN_ID);
    for (const entry of log) {
      evolve(state, entry);
      expect(state.shown !== null).toBe(state.status === "awaiting");
    }
  });

  itHolds("gives each question one answer at most, and each answer to the question it names", (log) => {
    let shown: string | undefined;
    for (const entry of log) {
      if (entry.type === "awaited") shown = entry.await_id;
      else if (entry.type === "resumed" || entry.type === "withdrawn") {
        expect(entry.await_id).toBe(shown);
        shown = undefined;
      } else if (entry.type === "timed-out" && entry.await_id !== null) {
        expect(entry.await_id).toBe(shown);
        shown = undefined;
      } else if (entry.type === "cancel-requested") shown = undefined;
    }
  });

  itHolds("has an active time and a waiting time that add up to its time from start to end", (log) => {
    const state = foldEntries(RUN_ID, log);
    const start = log.find(({ type }) => type === "started");
    if (start === undefined || state.ended === null) return;
    expect(activeMs(state, 0) + (state.waiting_ms ?? 0)).toBe(state.ended.at - start.at);
  });

  itHolds("adds every message, question and answer to its session once", (log) => {
    const state = foldEntries(RUN_ID, log);
    const answers = state.exchanges?.filter((one) => one.answer !== null).length ?? 0;
    expect(transcript(state)).toHaveLength(1 + (state.exchanges?.length ?? 0) + answers + state.output.length);
  });
});
