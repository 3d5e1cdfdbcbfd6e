import { describe, expect, it } from "vitest";
import type { Command } from "../../src/core/commands.ts";
import { decide } from "../../src/core/decide.ts";
import type { Entry } from "../../src/core/log.ts";
import type { Replied } from "../../src/core/state.ts";
import { replyKey, replyTo } from "../../src/core/state.ts";
import type { AwaitResume } from "../../src/protocol/run.ts";
import {
  asked,
  cancelRequested,
  created,
  ended,
  fold,
  relayed,
  resumed,
  settled,
  started,
  T0,
} from "../harness/logs.ts";

const AT = T0 + 100;

/** An answer as the log helper's `resumed` holds it. */
function answer({ answer: given = { said: "ask#1" }, ...to }: To & { answer?: AwaitResume } = {}): Command {
  return replyWith({ answer: given }, to);
}

function decline(reason?: string, to: To = {}): Command {
  return replyWith({ decline: reason === undefined ? {} : { reason } }, to);
}

interface To {
  await_id?: string;
  idempotency_key?: string;
}

function replyWith(reply: Replied, { await_id, idempotency_key }: To): Command {
  return { type: "reply", at: AT, await_id: await_id ?? null, reply, idempotency_key: idempotency_key ?? null };
}

const other = { said: "something else" };
const withdrawn: Entry = { type: "withdrawn", at: T0 + 30, await_id: "ask#1" };
const beginning = [created(), started] as const;
const first = [...beginning, asked("ask#1")] as const;
const answered = [...first, resumed("ask#1", T0 + 30, "key-1")] as const;
const second = [...answered, asked("ask#2", T0 + 40)] as const;
const declined = [
  ...first,
  { type: "declined", at: T0 + 30, await_id: "ask#1", decline: { reason: "no" }, idempotency_key: "key-1" },
] as const;
const both = [...first, asked("ask#2")] as const;
const ofSubRun = [...first, relayed("run:a#1/ask#1")] as const;

/** The id of the question that the answer goes to; `repeat` where it is settled already; else the refusal. */
const rows: readonly [title: string, log: readonly Entry[], command: Command, outcome: string][] = [
  ["an answer without an id goes to the first open question", first, answer(), "ask#1"],
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

  ["with several open, an answer without an id goes to the first", both, answer(), "ask#1"],
  ["with several open, an answer goes to the one that it names", both, answer({ await_id: "ask#2" }), "ask#2"],
  [
    "when another one is settled, the first stays the first",
    [...both, resumed("ask#2")],
    answer({ answer: other }),
    "ask#1",
  ],
  ["when the first one is settled, the next becomes the first", [...both, resumed("ask#1")], answer(), "ask#2"],
  [
    "a repeat by its id is recognised while another one is open",
    [...both, resumed("ask#1")],
    answer({ await_id: "ask#1" }),
    "repeat",
  ],
  [
    "a different answer by its id is a conflict while another one is open",
    [...both, resumed("ask#1")],
    answer({ await_id: "ask#1", answer: other }),
    "!answer_conflict",
  ],

  ["a decline goes to the first open question", both, decline(), "ask#1"],
  ["a decline goes to the question that it names", both, decline("no", { await_id: "ask#2" }), "ask#2"],
  ["the same decline again by its id changes nothing", declined, decline("no", { await_id: "ask#1" }), "repeat"],
  [
    "the same decline again by its key changes nothing",
    declined,
    decline("no", { idempotency_key: "key-1" }),
    "repeat",
  ],
  ["the same decline again without an id changes nothing", declined, decline("no"), "repeat"],
  ["another reason is a conflict", declined, decline("never", { await_id: "ask#1" }), "!answer_conflict"],
  ["an answer after a decline is a conflict", declined, answer({ await_id: "ask#1" }), "!answer_conflict"],
  ["a decline after an answer is a conflict", answered, decline("no", { await_id: "ask#1" }), "!answer_conflict"],
  [
    "a decline by the key of an answer is a conflict",
    second,
    decline("no", { idempotency_key: "key-1" }),
    "!idempotency_conflict",
  ],
  [
    "a decline of a question that was never asked is refused",
    first,
    decline("no", { await_id: "ask#9" }),
    "!not_awaiting",
  ],

  [
    "a reply to a question of a sub-run is refused, since it belongs to the log of the sub-run",
    ofSubRun,
    answer({ await_id: "run:a#1/ask#1" }),
    "!not_awaiting",
  ],
  ["the agent's own question beside it takes an answer", ofSubRun, answer(), "ask#1"],
  [
    "a repeat of what a sub-run was replied changes nothing",
    [...ofSubRun, settled("run:a#1/ask#1", { answer: other })],
    answer({ await_id: "run:a#1/ask#1", answer: other }),
    "repeat",
  ],
  [
    "a different reply to a settled question of a sub-run is a conflict",
    [...ofSubRun, settled("run:a#1/ask#1", { decline: {} })],
    answer({ await_id: "run:a#1/ask#1" }),
    "!answer_conflict",
  ],
  [
    "a reply to a question of a sub-run that has no reply and is not open is refused",
    [...ofSubRun, settled("run:a#1/ask#1")],
    answer({ await_id: "run:a#1/ask#1" }),
    "!not_awaiting",
  ],

  ["with no question open, a repeat of the last answer is accepted", answered, answer(), "repeat"],
  ["with no question open, another answer is refused", answered, answer({ answer: other }), "!not_awaiting"],
  [
    "with no question open, only the last answer is compared",
    [...second, resumed("ask#2", T0 + 50)],
    answer(),
    "!not_awaiting",
  ],
  ["with no question open and none asked, an answer is refused", beginning, answer(), "!not_awaiting"],
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

describe("a reply", () => {
  it.each(rows)("%s", (_title, log, command, outcome) => {
    const decision = decide(fold(...log), command);

    if ("refused" in decision) expect(`!${decision.refused}`).toBe(outcome);
    else if (decision.length === 0) expect("repeat").toBe(outcome);
    else {
      expect(decision).toHaveLength(1);
      const isAnswer = command.type === "reply" && "answer" in command.reply;
      expect(decision[0]).toMatchObject({ type: isAnswer ? "resumed" : "declined", await_id: outcome, at: AT });
    }
  });

  it("is in the log as it came, with its idempotency key", () => {
    expect(decide(fold(...first), answer({ idempotency_key: "key-7", answer: other }))).toEqual([
      { type: "resumed", at: AT, await_id: "ask#1", answer: other, idempotency_key: "key-7" },
    ]);
  });

  it("that declines is in the log with its reason, and who declined", () => {
    const command: Command = { ...(decline("no") as Command & { type: "reply" }), by: "Ada", offer_id: "offer-1" };
    const entry = { type: "declined", at: AT, await_id: "ask#1", decline: { reason: "no" }, idempotency_key: null };
    expect(decide(fold(...first), command)).toEqual([{ ...entry, by: "Ada", offer_id: "offer-1" }]);
  });

  it("is the result of the question it names, and of no other", () => {
    const state = fold(...second, resumed("ask#2", T0 + 50));
    expect(state.exchanges?.map((one) => [one.asked.await_id, replyTo(one), replyKey(one)])).toEqual([
      ["ask#1", { answer: { said: "ask#1" } }, "key-1"],
      ["ask#2", { answer: { said: "ask#2" } }, null],
    ]);
  });
});
