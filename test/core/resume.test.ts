import { describe, expect, it } from "vitest";
import type { Command } from "../../src/core/decide.ts";
import { decide } from "../../src/core/decide.ts";
import type { Entry } from "../../src/core/log.ts";
import type { AwaitResume } from "../../src/protocol/run.ts";
import { asked, cancelRequested, created, ended, fold, resumed, started, T0 } from "../harness/logs.ts";

const AT = T0 + 100;

/** An answer as the log helper's `resumed` holds it. */
function answer(changes: { await_id?: string; idempotency_key?: string; answer?: AwaitResume } = {}): Command {
  return {
    type: "resume",
    at: AT,
    await_id: changes.await_id ?? null,
    answer: changes.answer ?? { said: "ask#1" },
    idempotency_key: changes.idempotency_key ?? null,
  };
}

const other = { said: "something else" };
const withdrawn: Entry = { type: "withdrawn", at: T0 + 30, await_id: "ask#1" };
const beginning = [created(), started] as const;
const first = [...beginning, asked("ask#1")] as const;
const answered = [...first, resumed("ask#1", T0 + 30, "key-1")] as const;
const second = [...answered, asked("ask#2", T0 + 40)] as const;

/** The id of the question that the answer goes to; `repeat` where it is settled already; else the refusal. */
const rows: readonly [title: string, log: readonly Entry[], command: Command, outcome: string][] = [
  ["an answer without an id goes to the question that is shown", first, answer(), "ask#1"],
  ["an answer goes to the question that it names", first, answer({ await_id: "ask#1" }), "ask#1"],
  ["an answer to a question that was never asked is refused", first, answer({ await_id: "ask#9" }), "!not_awaiting"],
  ["a second question takes an answer of its own", second, answer({ answer: other }), "ask#2"],
  ["an answer without an id is taken for the next question, even if it equals the last", second, answer(), "ask#2"],

  ["the same answer again by its id changes nothing", second, answer({ await_id: "ask#1" }), "repeat"],
  [
    "another answer by the same id is a conflict",
    second,
    answer({ await_id: "ask#1", answer: other }),
    "!answer_conflict",
  ],
  ["the same answer again by its key changes nothing", second, answer({ idempotency_key: "key-1" }), "repeat"],
  [
    "another answer by the same key is a conflict",
    second,
    answer({ idempotency_key: "key-1", answer: other }),
    "!idempotency_conflict",
  ],
  [
    "a key that was used for one question is a conflict for another",
    second,
    answer({ idempotency_key: "key-1", await_id: "ask#2" }),
    "!idempotency_conflict",
  ],
  ["a new key does not excuse a used id", second, answer({ await_id: "ask#1", idempotency_key: "key-2" }), "repeat"],
  ["an answer with a new key is taken", second, answer({ idempotency_key: "key-2" }), "ask#2"],
  [
    "the order of the keys in an answer does not matter",
    [...first, { type: "resumed", at: T0 + 30, await_id: "ask#1", answer: { a: 1, b: 2 }, idempotency_key: null }],
    answer({ await_id: "ask#1", answer: { b: 2, a: 1 } }),
    "repeat",
  ],

  ["with no question shown, a repeat of the last answer is accepted", answered, answer(), "repeat"],
  ["with no question shown, another answer is refused", answered, answer({ answer: other }), "!not_awaiting"],
  [
    "with no question shown, only the last answer is compared",
    [...second, resumed("ask#2", T0 + 50)],
    answer(),
    "!not_awaiting",
  ],
  ["with no question shown and none asked, an answer is refused", beginning, answer(), "!not_awaiting"],
  [
    "an answer to a question that was withdrawn is refused",
    [...first, withdrawn],
    answer({ await_id: "ask#1" }),
    "!not_awaiting",
  ],
  [
    "an answer without an id is not taken for a question that was withdrawn",
    [...first, withdrawn],
    answer(),
    "!not_awaiting",
  ],

  [
    "a repeat is recognised while the run is being cancelled",
    [...answered, cancelRequested],
    answer({ await_id: "ask#1" }),
    "repeat",
  ],
  [
    "an answer is refused while the run is being cancelled",
    [...first, cancelRequested],
    answer({ await_id: "ask#1" }),
    "!run_cancelling",
  ],
  [
    "a repeat is recognised when the run has ended",
    [...answered, ended("completed")],
    answer({ await_id: "ask#1" }),
    "repeat",
  ],
  [
    "an answer is refused when the run has ended",
    [...answered, ended("completed")],
    answer({ answer: other }),
    "!not_awaiting",
  ],
];

describe("an answer", () => {
  it.each(rows)("%s", (_title, log, command, outcome) => {
    const decision = decide(fold(...log), command);

    if ("refused" in decision) expect(`!${decision.refused}`).toBe(outcome);
    else if (decision.length === 0) expect("repeat").toBe(outcome);
    else {
      expect(decision).toHaveLength(1);
      expect(decision[0]).toMatchObject({ type: "resumed", await_id: outcome, at: AT });
    }
  });

  it("is in the log as it came, with its idempotency key", () => {
    expect(decide(fold(...first), answer({ idempotency_key: "key-7", answer: other }))).toEqual([
      { type: "resumed", at: AT, await_id: "ask#1", answer: other, idempotency_key: "key-7" },
    ]);
  });

  it("is the result of the question it names, and of no other", () => {
    const state = fold(...second, resumed("ask#2", T0 + 50));
    expect(state.exchanges?.map(({ asked: { await_id }, answer: given }) => [await_id, given])).toEqual([
      ["ask#1", { said: "ask#1" }],
      ["ask#2", { said: "ask#2" }],
    ]);
  });
});
