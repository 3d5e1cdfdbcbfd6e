import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { commandOf } from "../../src/core/commands.ts";
import { evolve, foldEntries } from "../../src/core/evolve.ts";
import type { Entry } from "../../src/core/log.ts";
import { newsForParent } from "../../src/core/questions-above.ts";
import type { RunState } from "../../src/core/state.ts";
import { openQuestions, replyTo } from "../../src/core/state.ts";
import {
  asked,
  cancelRequested,
  carryOut,
  created,
  ended,
  fold,
  part,
  question,
  relayed,
  resumed,
  settled,
  started,
  T0,
} from "../harness/logs.ts";

const AT = T0 + 100;
const KEY = "run:a#1";
const CHILD_ID = "00000000-0000-4000-8000-000000000002";
const beginning = [created(), started] as const;
const parentId = (id: string): string => `${KEY}/${id}`;

function child(...entries: readonly Entry[]): RunState {
  return foldEntries(CHILD_ID, [...beginning, ...entries]);
}

/** The news up to a position of the child, by default all. */
function newsOf(of: RunState, parent: RunState, committed = of.position): readonly Entry[] {
  return newsForParent(of, committed, KEY, parent, AT);
}

describe("the news of a sub-run for its parent", () => {
  it("is a question that the parent does not show", () => {
    const schema = { ...part("{}"), content_type: "application/schema+json", await_id: "ask#1" };
    const parts = [part("This?"), schema];
    const details = { name: "approval", kind: "approval", deadline: T0 + 900 } as const;
    const asks: Entry = { type: "awaited", at: T0 + 20, await_id: "ask#1", parts, emitted: 3, ...details };
    expect(newsOf(child(asks), fold(...beginning))).toEqual([
      {
        type: "awaited",
        at: AT,
        await_id: parentId("ask#1"),
        of: { run_id: CHILD_ID, await_id: "ask#1" },
        parts: [part("This?"), { ...schema, await_id: parentId("ask#1") }],
        emitted: 0,
        ...details,
      },
    ]);
  });

  it("names the run that asks, also where that is further down", () => {
    const below = relayed("run:b#1/ask#1");
    expect(newsOf(child(below), fold(...beginning))).toMatchObject([
      { await_id: parentId("run:b#1/ask#1"), of: below.of },
    ]);
    const parent = fold(...beginning, relayed(parentId("run:b#1/ask#1")));
    const answered = child(below, settled("run:b#1/ask#1", { answer: { yes: true } }));
    expect(newsOf(answered, parent)).toMatchObject([
      { type: "settled", await_id: parentId("run:b#1/ask#1"), of: below.of, answer: { yes: true } },
    ]);
  });

  it.each<[title: string, entry: Entry, told: object]>([
    [
      "was answered",
      { ...(resumed("ask#1", T0 + 30, "key-1") as Entry & { type: "resumed" }), by: "Ada" },
      { answer: { said: "ask#1" }, idempotency_key: "key-1", by: "Ada" },
    ],
    [
      "was declined",
      { type: "declined", at: T0, await_id: "ask#1", decline: { reason: "no" }, idempotency_key: null },
      { decline: { reason: "no" } },
    ],
    ["was withdrawn", { type: "withdrawn", at: T0, await_id: "ask#1" }, {}],
    ["has expired", { type: "timed-out", at: T0, await_id: "ask#1", defaulted: true }, {}],
    ["was open when the sub-run was cancelled", cancelRequested, {}],
    ["was open when the sub-run ended", ended("completed"), {}],
  ])("is a question that the parent shows and that %s", (_title, entry, told) => {
    const parent = fold(...beginning, relayed(parentId("ask#1")));
    const of = { run_id: CHILD_ID, await_id: "ask#1" };
    expect(newsOf(child(asked("ask#1"), entry), parent)).toEqual([
      { type: "settled", at: AT, await_id: parentId("ask#1"), of, ...told },
    ]);
  });

  it("is only what is committed in the sub-run", () => {
    const parent = fold(...beginning);
    const log = [asked("ask#1"), asked("ask#2"), resumed("ask#1")];
    expect(newsOf(child(...log), parent, 3)).toEqual([]);
    expect(newsOf(child(...log.slice(0, 2)), parent, 3)).toMatchObject([{ await_id: parentId("ask#1") }]);
    const shown = fold(...beginning, relayed(parentId("ask#1")));
    expect(newsOf(child(...log), shown, 4)).toMatchObject([{ type: "awaited", await_id: parentId("ask#2") }]);
    expect(newsOf(child(...log), shown, 5)).toMatchObject([{ type: "settled" }, { type: "awaited" }]);
  });

  it("is nothing of the parent's own questions, and of those of other sub-runs", () => {
    const parent = fold(...beginning, asked("ask#1"), relayed("run:a#11/ask#1"), relayed("run:b#1/ask#1"));
    expect(newsOf(child(asked("ask#1"), resumed("ask#1")), parent)).toEqual([]);
  });

  it("is no question that was settled in the parent's log before it was shown", () => {
    const parent = fold(...beginning, settled(parentId("ask#1")));
    expect(newsOf(child(asked("ask#1")), parent)).toEqual([]);
  });

  it.each([
    ["is cancelling", cancelRequested],
    ["is overdue", { type: "timed-out", at: T0 + 30, await_id: null, defaulted: false } as const],
    ["has ended", ended("completed")],
  ])("is no new question while the parent %s", (_title, entry) => {
    expect(newsOf(child(asked("ask#1")), fold(...beginning, entry))).toEqual([]);
  });

  it("is at the end each question that a durable parent has not shown: the process that shows it may die before it settles it", () => {
    const answered = child(asked("ask#1"), resumed("ask#1"));
    const over = child(asked("ask#1"), resumed("ask#1"), ended("completed"));
    const parent = fold(created({ durable: true }), started);
    expect(newsOf(answered, parent)).toEqual([]);
    const news = newsOf(over, parent);
    expect(news).toMatchObject([{ type: "settled", await_id: parentId("ask#1"), answer: { said: "ask#1" } }]);
    expect(newsOf(over, fold(...beginning))).toEqual([]);
    const late = relayed(parentId("ask#1"));
    for (const log of [
      [...news, late],
      [late, ...news],
    ]) {
      const told = fold(created({ durable: true }), started, ...log);
      expect(openQuestions(told)).toEqual([]);
      expect(newsOf(over, told)).toEqual([]);
    }
  });

  it("leaves no news when it is applied, however often and how much of it", () => {
    const ids = ["ask#1", "ask#2", "run:b#1/ask#1"];
    const of = (id: string): Entry => (id.startsWith("run:") ? relayed(id) : asked(id));
    const closing = (id: string): Entry => (id.startsWith("run:") ? settled(id, { answer: {} }) : resumed(id));
    const lives = fc
      .tuple(fc.subarray(ids), fc.subarray(ids))
      .map(([shown, closed]) => [...shown.map(of), ...closed.filter((id) => shown.includes(id)).map(closing)]);
    const posts = fc.subarray(ids.flatMap((id) => [relayed(parentId(id)), settled(parentId(id))]));
    const shuffled = posts.chain((some) => fc.shuffledSubarray(some, { minLength: some.length }));
    fc.assert(
      fc.property(lives, shuffled, fc.array(fc.nat(6)), (life, before, stops) => {
        const parent = fold(...beginning, asked("ask#1"), ...before);
        const whole = child(...life);
        for (const stop of [...stops.sort(), life.length]) {
          const state = child(...life.slice(0, stop));
          for (const entry of newsOf(state, parent)) expect(carryOut(parent, commandOf(entry))).toEqual([entry]);
          expect(newsOf(state, parent)).toEqual([]);
        }
        const open = openQuestions(whole).map(({ asked: { await_id } }) => parentId(await_id));
        const shown = openQuestions(parent).filter(({ asked: one }) => one.of !== undefined);
        const known = new Set(before.flatMap((entry) => (entry.type === "settled" ? [entry.await_id] : [])));
        const awaited = life.flatMap((entry) => (entry.type === "awaited" ? [parentId(entry.await_id)] : []));
        // A question that the parent shows and the sub-run does not know stays as it is.
        const strange = before.flatMap((entry) => (entry.type === "awaited" ? [entry.await_id] : []));
        const expected = [...open, ...strange.filter((id) => !awaited.includes(id))].filter((id) => !known.has(id));
        expect(new Set(shown.map(({ asked: one }) => one.await_id))).toEqual(new Set(expected));
      }),
      { numRuns: 1_000 },
    );
  });

  it("gives the parent the same replies", () => {
    const of = child(asked("ask#1"), asked("ask#2"), resumed("ask#2"));
    const parent = fold(...beginning, relayed(parentId("ask#2")));
    for (const entry of newsOf(of, parent)) evolve(parent, entry);
    expect(parent.exchanges?.map((one) => [one.asked.await_id, replyTo(one)])).toEqual([
      [parentId("ask#2"), { answer: { said: "ask#2" } }],
    ]);
    expect(parent.question?.asked.parts).toEqual(question("ask#1").parts);
  });
});
