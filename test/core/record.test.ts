import { describe, expect, it } from "vitest";
import { answerMessage, messageRecord, runRecord, transcript } from "../../src/core/record.ts";
import { activeMs, latestTime, nextDeadline } from "../../src/core/state.ts";
import { isoTime } from "../../src/core/time.ts";
import type { AwaitResume } from "../../src/protocol/run.ts";
import { runSchema } from "../../src/protocol/run.ts";
import {
  asked,
  carryOut,
  created,
  ended,
  fold,
  logs,
  message,
  part,
  question,
  RUN_ID,
  relayed,
  resumed,
  settled,
  started,
  T0,
} from "../harness/logs.ts";

describe("the record of a run", () => {
  it.each(Object.entries(logs))("when %s is what the protocol describes", (status, log) => {
    const record = runRecord(fold(...log));

    expect(runSchema.parse(record)).toStrictEqual(record);
    expect(record).toMatchObject({ run_id: RUN_ID, session_id: RUN_ID, agent_name: "echo", status, output: [] });
    expect(record.created_at).toBe(isoTime(T0));
    expect(record.finished_at === null).toBe(!["completed", "failed", "cancelled"].includes(status));
    expect(record.error === null).toBe(status !== "failed");
    expect(record.await_request === null).toBe(status !== "awaiting");
  });

  it("is a snapshot: an open message in it does not grow", () => {
    const state = fold(...logs["in-progress"]);
    carryOut(state, { type: "emit", at: T0, item: { kind: "part", part: part("a") } });
    const record = runRecord(state);
    carryOut(state, { type: "emit", at: T0, item: { kind: "part", part: part("b") } });
    carryOut(state, { type: "emit", at: T0, item: { kind: "message", message: message("m") } });

    expect(record.output).toEqual([
      { role: "agent/echo", parts: [part("a")], created_at: isoTime(latestTime(state)), completed_at: null },
    ]);
    expect(runRecord(state).output.map(({ parts }) => parts.length)).toEqual([2, 1]);
  });

  it("a message that is complete needs no copy", () => {
    const complete = { role: "agent", parts: [part("a")], created_at: isoTime(T0), completed_at: isoTime(T0) } as const;
    const mutable = { ...complete, parts: [...complete.parts] };
    expect(messageRecord(mutable)).toBe(mutable);
  });
});

describe("a question of a sub-run", () => {
  it("and its answer, sent before entries that were written meanwhile, have no earlier times than these", () => {
    const item = { kind: "part", part: part("open") } as const;
    const emitted = carryOut(fold(created(), started), { type: "emit", at: T0 + 100, item });
    const log = [created(), started, ...emitted, { ...relayed("run:b#1/ask#1", T0 + 20), closes: true as const }];
    const state = fold(...log);
    expect(runRecord(state)).toMatchObject({
      output: [{ created_at: isoTime(T0 + 100), completed_at: isoTime(T0 + 100) }],
      await_request: { message: { created_at: isoTime(T0 + 100) } },
    });
    const answered = fold(...log, settled("run:b#1/ask#1", { answer: {} }, T0 + 30));
    expect(
      transcript(answered)
        .map(({ created_at }) => created_at)
        .slice(-2),
    ).toEqual([isoTime(T0 + 100), isoTime(T0 + 100)]);
  });
});

describe("what a run adds to its session", () => {
  it("is the input, then questions, answers and output in the order in which they came", () => {
    const state = fold(created({ input: [message("one"), message("two")] }), started);
    const show = (content: string): unknown =>
      carryOut(state, { type: "emit", at: T0, item: { kind: "message", message: message(content) } });
    const ask = (id: string, answer: AwaitResume): void => {
      carryOut(state, { type: "ask", at: T0, ...question(id), emitted: 0 });
      carryOut(state, { type: "reply", at: T0, await_id: id, reply: { answer }, idempotency_key: null });
    };
    ask("ask#1", { first: true });
    show("three");
    ask("ask#2", { type: "message", message: { role: "user", parts: [part("four")] } });
    ask("ask#3", { second: true });
    show("five");
    carryOut(state, { type: "end", at: T0, failure: null, usage: null });

    expect(transcript(state).map(({ role, parts }) => `${role}: ${parts.map(({ content }) => content)}`)).toEqual([
      "user: one",
      "user: two",
      "agent/echo: What about ask#1?",
      'user: {"first":true}',
      "agent/echo: three",
      "agent/echo: What about ask#2?",
      "user: four",
      "agent/echo: What about ask#3?",
      'user: {"second":true}',
      "agent/echo: five",
    ]);
  });

  it("holds a question without an answer where none was given", () => {
    const log = [...logs.awaiting, { type: "timed-out", at: T0, await_id: "ask#1", defaulted: true } as const];
    expect(transcript(fold(...log)).map(({ role }) => role)).toEqual(["user", "agent/echo"]);
  });

  it("holds questions that were open side by side in the order in which they were asked, with their answers", () => {
    const log = [...logs["in-progress"], asked("ask#1"), asked("ask#2"), resumed("ask#2"), resumed("ask#1", T0 + 40)];
    expect(transcript(fold(...log)).map(({ parts }) => parts[0]?.content)).toEqual([
      "Hello",
      "What about ask#1?",
      '{"said":"ask#1"}',
      "What about ask#2?",
      '{"said":"ask#2"}',
    ]);
  });

  it("holds a question without an answer where it was declined, or open at the end", () => {
    const declined = { type: "declined", at: T0, await_id: "ask#1", decline: {}, idempotency_key: null } as const;
    const log = [...logs.awaiting, declined, asked("ask#2"), ended("completed")];
    expect(transcript(fold(...log)).map(({ role }) => role)).toEqual(["user", "agent/echo", "agent/echo"]);
  });

  it("holds the answer to a question of a sub-run", () => {
    const log = [...logs["in-progress"], relayed("run:a#1/ask#1"), settled("run:a#1/ask#1", { answer: { yes: true } })];
    expect(transcript(fold(...log)).map(({ parts }) => parts[0]?.content)).toEqual([
      "Hello",
      "What about run:a#1/ask#1?",
      '{"yes":true}',
    ]);
  });

  it("holds a question that was asked in the middle of a message after that message", () => {
    const state = fold(...logs["in-progress"]);
    carryOut(state, { type: "emit", at: T0, item: { kind: "part", part: part("Looking …") } });
    carryOut(state, { type: "ask", at: T0, ...question("ask#1"), emitted: 1 });
    carryOut(state, { type: "withdraw", at: T0, await_id: "ask#1" });
    expect(transcript(state).map(({ parts }) => parts[0]?.content)).toEqual([
      "Hello",
      "Looking …",
      "What about ask#1?",
    ]);
  });

  it("an answer that is an object of its own becomes a message of JSON", () => {
    expect(answerMessage({ ok: true })).toEqual({
      role: "user",
      parts: [{ content_type: "application/json", content: '{"ok":true}', content_encoding: "plain" }],
    });
    expect(answerMessage({ type: "message", message: message("yes") })).toEqual(message("yes"));
  });

  it("the active time grows while the agent works, and not while the run waits", () => {
    expect(activeMs(fold(created()), T0 + 1_000)).toBe(0);
    expect(activeMs(fold(created(), started), started.at + 1_000)).toBe(1_000);
    expect(activeMs(fold(created(), started, asked("ask#1", T0 + 110)), T0 + 1_000)).toBe(T0 + 110 - started.at);
  });

  it("a run whose question is shown counts waiting time apart from active time", () => {
    const state = fold(created(), started, asked("ask#1", T0 + 110), resumed("ask#1", T0 + 1_110));
    carryOut(state, { type: "cancel", at: T0 + 1_115 });
    carryOut(state, { type: "end", at: T0 + 1_120, failure: null, usage: null });
    expect(activeMs(state, 0)).toBe(110);
    expect(state).toMatchObject({ waiting_ms: 1_000, ended: { at: T0 + 1_120 } });
  });

  it("a run that waits for several things at once counts the time in which it waited for any of them", () => {
    const sleep = { type: "intent", at: T0 + 150, key: "sleep#1", attempt: 1, run_id: null, until: T0 + 350 } as const;
    const woken = { type: "step", at: T0 + 350, key: "sleep#1", result: undefined, error: null, usage: null } as const;
    const first = fold(created(), started, asked("ask#1", T0 + 110), sleep);
    expect(nextDeadline(first)).toBe(T0 + 350);
    const log = [asked("ask#1", T0 + 110), sleep, resumed("ask#1", T0 + 210), woken] as const;
    const state = fold(created(), started, ...log);
    expect(state).toMatchObject({ waiting_ms: 240, waiting_from: null });
    expect(activeMs(state, T0 + 360)).toBe(T0 + 360 - started.at - 240);
  });
});
