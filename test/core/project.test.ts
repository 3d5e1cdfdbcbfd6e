import { describe, expect, it } from "vitest";
import { evolve } from "../../src/core/evolve.ts";
import type { EmittedMessage, EmittedPart, Entry } from "../../src/core/log.ts";
import { resultKey } from "../../src/core/operation-keys.ts";
import { project } from "../../src/core/project.ts";
import { createdEntry, initialState, isAtRest, isFinal } from "../../src/core/state.ts";
import { isoTime } from "../../src/core/time.ts";
import type { RunEvent } from "../../src/protocol/event.ts";
import {
  asked,
  cancelRequested,
  created,
  ended,
  fold,
  logs,
  message,
  offered,
  part,
  received,
  relayed,
  resumed,
  settled,
  started,
  T0,
} from "../harness/logs.ts";

const AT = T0 + 25;

function emittedPart(text: string, changes: Partial<EmittedPart> = {}): Entry {
  return {
    type: "emitted",
    kind: "part",
    at: AT,
    part: part(text),
    ...changes,
  };
}

/** All events of a log, each projected when its entry was the last. */
function eventsOf(entries: readonly Entry[]): RunEvent[] {
  const state = initialState("run");
  const events: RunEvent[] = [];
  for (const entry of entries) {
    evolve(state, entry);
    for (let index = 0; ; index++) {
      const event = project(state, entry, index);
      if (event === undefined) break;
      const { id, ...told } = event;
      events.push(told);
      expect(id).toBe(events.length);
    }
  }
  return events;
}

function typesOf(...entries: readonly Entry[]): string[] {
  return eventsOf(entries).map(({ type }) => type);
}

const ofSubRun = relayed("run:a#1/ask#1");
const open = emittedPart("a", { opens: true });
const whole: EmittedMessage = { type: "emitted", kind: "message", at: AT, message: message("m", "agent/echo") };
const beginning = ["run.created", "run.in-progress"];

describe("the events of a log", () => {
  it.each<[title: string, log: readonly Entry[], events: readonly string[]]>([
    ["a run that is created", [created()], ["run.created"]],
    ["a run that starts", [...logs["in-progress"]], beginning],
    ["a part that opens a message", [...logs["in-progress"], open], [...beginning, "message.created", "message.part"]],
    [
      "a part that joins a message",
      [...logs["in-progress"], open, emittedPart("b")],
      [...beginning, "message.created", "message.part", "message.part"],
    ],
    [
      "a part that opens a message after another",
      [...logs["in-progress"], open, emittedPart("b", { opens: true, closes: true })],
      [...beginning, "message.created", "message.part", "message.completed", "message.created", "message.part"],
    ],
    [
      "a whole message",
      [...logs["in-progress"], whole],
      [...beginning, "message.created", "message.part", "message.completed"],
    ],
    [
      "a whole message after an open one",
      [...logs["in-progress"], open, { ...whole, closes: true }],
      [
        ...beginning,
        "message.created",
        "message.part",
        "message.completed",
        "message.created",
        "message.part",
        "message.completed",
      ],
    ],
    [
      "a message that is closed",
      [...logs["in-progress"], open, { type: "emitted", kind: "close", at: AT }],
      [...beginning, "message.created", "message.part", "message.completed"],
    ],
    [
      "a generic object",
      [...logs["in-progress"], { type: "emitted", kind: "generic", at: AT, generic: { a: 1 } }],
      [...beginning, "generic"],
    ],
    [
      "a question and its answer",
      [...logs.awaiting, resumed("ask#1")],
      [...beginning, "run.awaiting", "run.in-progress"],
    ],
    [
      "a question while a message is open",
      [...logs["in-progress"], open, { ...asked("ask#1"), closes: true } as Entry],
      [...beginning, "message.created", "message.part", "message.completed", "run.awaiting"],
    ],
    [
      "a question that is withdrawn",
      [...logs.awaiting, { type: "withdrawn", at: AT, await_id: "ask#1" }],
      [...beginning, "run.awaiting", "run.in-progress"],
    ],
    [
      "a question that ends with its default",
      [...logs.awaiting, { type: "timed-out", at: AT, await_id: "ask#1", defaulted: true }],
      [...beginning, "run.awaiting", "run.in-progress"],
    ],
    [
      "a question that expires",
      [...logs.awaiting, { type: "timed-out", at: AT, await_id: "ask#1", defaulted: false }, ended("failed")],
      [...beginning, "run.awaiting", "run.failed"],
    ],
    ["a second question while the first is open", [...logs.awaiting, asked("ask#2")], [...beginning, "run.awaiting"]],
    [
      "a second question while the first and a message are open",
      [...logs.awaiting, open, { ...asked("ask#2"), closes: true } as Entry],
      [...beginning, "run.awaiting", "message.created", "message.part", "message.completed"],
    ],
    [
      "one of two questions that is answered",
      [...logs.awaiting, asked("ask#2"), resumed("ask#1")],
      [...beginning, "run.awaiting", "run.in-progress", "run.awaiting"],
    ],
    [
      "two questions that are answered",
      [...logs.awaiting, asked("ask#2"), resumed("ask#2"), resumed("ask#1")],
      [...beginning, "run.awaiting", "run.in-progress", "run.awaiting", "run.in-progress"],
    ],
    [
      "a question that is declined",
      [...logs.awaiting, { type: "declined", at: AT, await_id: "ask#1", decline: {}, idempotency_key: null }],
      [...beginning, "run.awaiting", "run.in-progress"],
    ],
    [
      "a question of a sub-run that is shown twice, and settled twice",
      [...logs["in-progress"], ofSubRun, ofSubRun, settled("run:a#1/ask#1"), settled("run:a#1/ask#1"), ofSubRun],
      [...beginning, "run.awaiting", "run.in-progress"],
    ],
    [
      "a question of a sub-run that is settled before it is shown",
      [...logs["in-progress"], settled("run:a#1/ask#1"), ofSubRun],
      beginning,
    ],
    [
      "a question of a sub-run that comes when the run is cancelled or overdue",
      [...logs["in-progress"], { type: "timed-out", at: AT, await_id: null, defaulted: false }, ofSubRun],
      beginning,
    ],
    [
      "one of two questions that expires, after which the run takes no answer to the other",
      [
        ...logs.awaiting,
        asked("ask#2"),
        { type: "timed-out", at: AT, await_id: "ask#1", defaulted: false },
        resumed("ask#2"),
        ended("failed"),
      ],
      [...beginning, "run.awaiting", "run.failed"],
    ],
    [
      "a sleep, a message and an offer, which clients are not shown",
      [
        ...logs.awaiting,
        { type: "intent", at: AT, key: "sleep#1", attempt: 1, run_id: null, until: AT + 5 },
        { type: "withdrawn", at: AT, await_id: "sleep#1" },
        received("payment", 1, "key-1"),
        { type: "taken", at: AT, key: "receive:payment#1", position: 5 },
        offered("offer-1", "ask#1"),
        { type: "refused", at: AT, offer_id: "offer-1", code: "answer_rejected" },
      ],
      [...beginning, "run.awaiting"],
    ],
    [
      "a run that ends with questions open",
      [...logs.awaiting, asked("ask#2"), ended("completed")],
      [...beginning, "run.awaiting", "run.completed"],
    ],
    [
      "what clients are not shown",
      [
        ...logs["in-progress"],
        { type: "intent", at: AT, key: "step#1", attempt: 1, run_id: null },
        { type: "step", at: AT, key: "step#1", result: null, error: null, usage: null },
        cancelRequested,
        ended("cancelled"),
      ],
      [...beginning, "run.cancelled"],
    ],
    [
      "a run that completes with a message open",
      [...logs["in-progress"], open, { ...ended("completed"), closes: true } as Entry],
      [...beginning, "message.created", "message.part", "message.completed", "run.completed"],
    ],
    [
      "a run that fails with a message open",
      [...logs["in-progress"], open, ended("failed")],
      [...beginning, "message.created", "message.part", "run.failed"],
    ],
  ])("of %s", (_title, log, events) => {
    expect(typesOf(...log)).toEqual(events);
    expect(fold(...log).events).toBe(events.length);
  });

  it("a message is created empty and open, and completed with all its parts", () => {
    const events = eventsOf([
      ...logs["in-progress"],
      open,
      emittedPart("b"),
      { type: "emitted", kind: "close", at: AT + 5 },
    ]);
    expect(events.slice(2)).toEqual([
      {
        type: "message.created",
        message: { role: "agent/echo", parts: [], created_at: isoTime(AT), completed_at: null },
      },
      { type: "message.part", part: part("a") },
      { type: "message.part", part: part("b") },
      {
        type: "message.completed",
        message: {
          role: "agent/echo",
          parts: [part("a"), part("b")],
          created_at: isoTime(AT),
          completed_at: isoTime(AT + 5),
        },
      },
    ]);
  });

  it("a whole message has all its parts from the first event on", () => {
    const times = { created_at: "2020-01-01T00:00:00.123456Z", completed_at: "2020-01-01T00:00:01.5Z" };
    const told = { ...message("m", "agent/echo"), ...times };
    const events = eventsOf([...logs["in-progress"], { ...whole, message: told } as Entry]);
    expect(events.slice(2)).toEqual([
      { type: "message.created", message: told },
      { type: "message.part", part: part("m") },
      { type: "message.completed", message: told },
    ]);
  });

  it("a whole message without times of its own has those of its entry", () => {
    const [, , event] = eventsOf([...logs["in-progress"], whole]);
    expect(event).toMatchObject({ message: { created_at: isoTime(AT), completed_at: isoTime(AT) } });
  });

  it("a record inside an event is not changed by later entries", () => {
    const log = [...logs["in-progress"], open, asked("ask#1", AT), resumed("ask#1"), emittedPart("b"), ended("failed")];
    const events = eventsOf(log);
    const awaiting = events.find(({ type }) => type === "run.awaiting");

    expect(awaiting).toMatchObject({
      run: { status: "awaiting", output: [{ parts: [part("a")], completed_at: null }], finished_at: null, error: null },
    });
    expect(events.at(-1)).toMatchObject({
      run: {
        status: "failed",
        await_request: null,
        output: [{ parts: [part("a"), part("b")], completed_at: null }],
        finished_at: isoTime(T0 + 50),
      },
    });
  });

  it("the event between two questions shows none, and the next one shows the other", () => {
    const events = eventsOf([...logs.awaiting, asked("ask#2"), resumed("ask#1")]);
    expect(events.slice(-2)).toMatchObject([
      { type: "run.in-progress", run: { status: "in-progress", await_request: null } },
      { type: "run.awaiting", run: { status: "awaiting", await_request: { await_id: "ask#2" } } },
    ]);
  });

  it("there is no event outside the entry", () => {
    const state = fold(created());
    expect(project(state, created(), -1)).toBeUndefined();
    expect(project(state, created(), 1)).toBeUndefined();
  });

  it("a log that completes a message which it never opened is refused", () => {
    const close: Entry = { type: "emitted", kind: "close", at: AT };
    expect(() => project(fold(...logs["in-progress"], close), close, 0)).toThrow(/never opened/);
  });
});

describe("the state", () => {
  it("has no first entry while its log is empty", () => {
    expect(() => createdEntry(initialState("run-1"))).toThrow("run-1 has no entries");
  });

  it("knows which statuses are final, and which rest", () => {
    const statuses = ["created", "in-progress", "awaiting", "cancelling", "completed", "failed", "cancelled"] as const;
    expect(statuses.filter(isFinal)).toEqual(["completed", "failed", "cancelled"]);
    expect(statuses.filter(isAtRest)).toEqual(["awaiting", "completed", "failed", "cancelled"]);
  });
});

describe("the operation whose result an entry is", () => {
  it.each<[entry: Entry, key: string | undefined]>([
    [{ type: "step", at: AT, key: "step#1", result: 1, error: null, usage: null }, "step#1"],
    [resumed("ask#1"), "ask#1"],
    [{ type: "timed-out", at: AT, await_id: "ask#1", defaulted: true }, "ask#1"],
    [{ type: "timed-out", at: AT, await_id: null, defaulted: false }, undefined],
    [{ type: "declined", at: AT, await_id: "ask#1", decline: {}, idempotency_key: null }, "ask#1"],
    [{ type: "withdrawn", at: AT, await_id: "sleep#1" }, "sleep#1"],
    [{ type: "taken", at: AT, key: "receive:payment#1", position: null }, "receive:payment#1"],
    [settled("run:a#1/ask#1"), undefined],
    [received("payment", 1, "key-1"), undefined],
    [started, undefined],
  ])("of %o is %s", (entry, key) => {
    expect(resultKey(entry)).toBe(key);
  });
});
