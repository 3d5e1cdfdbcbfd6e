import { describe, expect, it } from "vitest";
import type { Command, Emission } from "../../src/core/commands.ts";
import { commandOf } from "../../src/core/commands.ts";
import { decide } from "../../src/core/decide.ts";
import type { PartSource } from "../../src/core/emission-source.ts";
import { evolve } from "../../src/core/evolve.ts";
import type { Entry, IntentEntry, OfferedEntry, RefusedEntry } from "../../src/core/log.ts";
import { replyTo, waitingMessages } from "../../src/core/state.ts";
import { isoTime } from "../../src/core/time.ts";
import {
  asked,
  carryOut,
  created,
  fold,
  logs,
  message,
  offered,
  part,
  question,
  received,
  relayed,
  resumed,
  settled,
  started,
  T0,
} from "../harness/logs.ts";

const AT = T0 + 100;
const beginning = [created(), started] as const;
const sleep: IntentEntry = { type: "intent", at: T0 + 20, key: "sleep#1", attempt: 1, run_id: null, until: T0 + 500 };

function text(content: string, source?: PartSource): Emission {
  return { kind: "part", part: part(content), ...(source !== undefined && { source }) };
}

/** The emitted entries in short: `+` opens a message, `-` completes one first. */
function emitted(...items: readonly Emission[]): string[] {
  const state = fold(...beginning);
  return items.flatMap((item) =>
    carryOut(state, { type: "emit", at: AT, item }).map((entry) => {
      if (entry.type !== "emitted") return entry.type;
      if (entry.kind === "part") return `${entry.closes ? "-" : ""}${entry.opens ? "+" : ""}part`;
      return `${entry.kind === "message" && entry.closes ? "-" : ""}${entry.kind}`;
    }),
  );
}

describe("what an agent emits", () => {
  const a1 = { key: "a#1", attempt: 1 };
  const a2 = { key: "a#1", attempt: 2 };
  const b1 = { key: "b#1", attempt: 1 };

  it.each<[title: string, items: readonly Emission[], entries: readonly string[]]>([
    ["the first part opens a message, the next ones join it", [text("a"), text("b")], ["+part", "part"]],
    ["closing completes the open message", [text("a"), { kind: "close" }, text("b")], ["+part", "close", "+part"]],
    ["closing without an open message is nothing", [{ kind: "close" }], []],
    [
      "a whole message completes the open one",
      [text("a"), { kind: "message", message: message("m") }],
      ["+part", "-message"],
    ],
    ["a whole message after nothing completes none", [{ kind: "message", message: message("m") }], ["message"]],
    [
      "a generic object leaves the message open",
      [text("a"), { kind: "generic", generic: { g: 1 } }, text("b")],
      ["+part", "generic", "part"],
    ],
    ["parts of one attempt of a step share a message", [text("a", a1), text("b", { ...a1 })], ["+part", "part"]],
    [
      "a step's parts are in a message of their own",
      [text("a"), text("b", a1), text("c")],
      ["+part", "-+part", "-+part"],
    ],
    ["another step's parts are in another message", [text("a", a1), text("b", b1)], ["+part", "-+part"]],
    [
      "another attempt of the same step replaces the incomplete message of the last one",
      [text("a", a1), text("b", a2)],
      ["+part", "+part"],
    ],
  ])("%s", (_title, items, entries) => {
    expect(emitted(...items)).toEqual(entries);
  });

  it("a whole message has the agent's role, and keeps its own times", () => {
    const times = { created_at: "2020-01-01T00:00:00.123456Z", completed_at: "2020-01-01T00:00:01+02:00" };
    const item: Emission = { kind: "message", message: { ...message("m"), ...times } };

    const [entry] = carryOut(fold(...beginning), { type: "emit", at: AT, item });
    expect(entry).toMatchObject({ message: { ...times, role: "agent/echo", parts: [part("m")] } });
  });

  it("the part of an incomplete message that is replaced is left out of the output", () => {
    const state = fold(...beginning);
    for (const item of [text("half", a1), text("whole", a2)]) carryOut(state, { type: "emit", at: AT, item });
    expect(state.output.map(({ parts }) => parts)).toEqual([[part("whole")]]);
  });
});

describe("a question", () => {
  const ask: Command = { type: "ask", at: AT, ...question("ask#1"), emitted: 0 };

  it("completes the message that is open", () => {
    const state = fold(...beginning);
    carryOut(state, { type: "emit", at: T0 + 50, item: text("a") });
    const [entry] = carryOut(state, ask);
    expect(entry).toEqual({ ...ask, type: "awaited", closes: true });
    expect(state.output).toMatchObject([{ completed_at: isoTime(AT) }]);
    expect(state.question?.event).toBe(state.events);
    expect(state.events).toBe(6);
  });

  it("that is settled keeps the event that showed the first open one, and the next one is shown", () => {
    const state = fold(...beginning, asked("ask#1"), asked("ask#2"), asked("ask#3"));
    expect(state.question?.event).toBe(3);
    for (const [awaitId, event, next] of [
      ["ask#2", 3, 5],
      ["ask#1", 5, 7],
      ["ask#3", 7, undefined],
    ] as const) {
      evolve(state, resumed(awaitId, AT));
      expect(state.exchanges?.at(-1)).toMatchObject({ event });
      expect(state.question?.event).toBe(next);
    }
    expect(state.events).toBe(8);
  });

  it("completes no message where none is open", () => {
    expect(decide(fold(...beginning), ask)).toEqual([{ ...ask, type: "awaited" }]);
  });

  it("is decided again without its decision on the open message", () => {
    const again = commandOf({ ...ask, type: "awaited", closes: true } as Entry);
    expect(again).toEqual(ask);
  });
});

describe("a question of a sub-run", () => {
  const id = "run:a#1/ask#1";
  const shown = commandOf(relayed(id));
  const settle = commandOf(settled(id, { answer: { yes: true } }));

  it("leaves the open message open", () => {
    const state = fold(...beginning);
    carryOut(state, { type: "emit", at: AT, item: text("a") });
    expect(carryOut(state, shown)).toEqual([relayed(id, AT)]);
    carryOut(state, { type: "emit", at: AT, item: text("b") });
    expect(state.output).toMatchObject([{ parts: [part("a"), part("b")], completed_at: null }]);
  });

  it("is shown once and settled once", () => {
    const state = fold(...beginning);
    expect([shown, shown, settle, settle, shown].map((command) => carryOut(state, command).length)).toEqual([
      1, 0, 1, 0, 0,
    ]);
    expect(state).toMatchObject({ status: "in-progress", question: null });
  });

  it("is not shown if it is settled already", () => {
    const state = fold(...beginning);
    expect([settle, settle, shown].map((command) => carryOut(state, command).length)).toEqual([1, 0, 0]);
    expect(state).toMatchObject({ status: "in-progress", exchanges: null });
  });
});

describe("a sleep", () => {
  it("is waiting time, and leaves the run in progress", () => {
    expect(fold(...beginning, sleep)).toMatchObject({ status: "in-progress", waiting_from: sleep });
  });

  it("that is withdrawn ends", () => {
    const state = fold(...beginning, sleep);
    expect(carryOut(state, { type: "withdraw", at: AT, await_id: "sleep#1" })).toHaveLength(1);
    expect(carryOut(state, { type: "withdraw", at: AT, await_id: "sleep#1" })).toHaveLength(0);
    expect(state).toMatchObject({ waiting_from: null, waiting_ms: AT - sleep.at });
  });
});

describe("a message", () => {
  const first = received("payment", 1, "key-1");

  it("arrives once, also if it is sent twice", () => {
    const state = fold(...beginning);
    expect(carryOut(state, { type: "receive", entry: first })).toEqual([first]);
    expect(carryOut(state, { type: "receive", entry: { ...first, at: AT } })).toEqual([]);
    const { mail } = fold(...beginning, first, { ...first, at: AT });
    expect([...(mail?.inbox ?? [])]).toEqual([{ entry: first, position: 2 }]);
  });

  it.each([
    ["other data", received("payment", 2, "key-1")],
    ["another name", received("refund", 1, "key-1")],
  ])("with the same key and %s is a conflict", (_title, entry) => {
    const expected = { refused: "idempotency_conflict" };
    expect(decide(fold(...beginning, first), { type: "receive", entry })).toEqual(expected);
    // The key is known after the message is taken, too.
    const taken = { type: "taken", at: AT, key: "receive:payment#1", position: 2 } as const;
    expect(decide(fold(...beginning, first, taken), { type: "receive", entry })).toEqual(expected);
    expect(decide(fold(...beginning, first, taken), { type: "receive", entry: first })).toEqual([]);
  });

  it("that is taken leaves the others in order", () => {
    const old = received("b", 2, "2");
    const messages = [received("a", 1, "1"), old, received("a", 3, "3"), received("a", 4, "4")];
    const state = fold(...beginning, ...messages.map((entry) => (entry === old ? entry : { ...entry, bytes: 5 })));
    expect(waitingMessages(state)).toEqual({ messages: 4, bytes: 15 });
    for (const position of [4, 3, null])
      carryOut(state, { type: "take", entry: { type: "taken", at: AT, key: "receive:a#1", position } });
    expect([...(state.mail?.inbox ?? [])].map(({ position }) => position)).toEqual([2, 5]);
    expect(waitingMessages(state)).toEqual({ messages: 2, bytes: 10 });
  });
});

describe("an offered reply", () => {
  const offer = offered("offer-1", "ask#1");
  const other = offered("offer-2", "ask#1");
  const waiting = [...beginning, asked("ask#1"), asked("ask#2"), offer] as const;
  const refused: RefusedEntry = { type: "refused", at: AT, offer_id: "offer-1", code: "answer_rejected", issues: [] };

  it.each<[title: string, entries: readonly Entry[], open: readonly OfferedEntry[]]>([
    ["waits for its verdict", [], [offer]],
    ["keeps a second one for the same question out", [other], [offer]],
    ["leaves room for one for another question", [offered("offer-2", "ask#2")], [offer, offered("offer-2", "ask#2")]],
    ["that is refused makes room for another", [refused, other], [other]],
    ["that is refused does not come back when it is posted again", [refused, offer], []],
    ["that is accepted is done", [{ ...resumed("ask#1"), offer_id: "offer-1" } as Entry, offer], []],
    ["is done when its question is settled by another reply", [resumed("ask#1"), other], []],
    ["for a question that is not open is nothing", [offered("offer-3", "ask#3")], [offer]],
  ])("%s", (_title, entries, open) => {
    expect([...(fold(...waiting, ...entries).mail?.offers.values() ?? [])]).toEqual(open);
  });

  it("leaves its question open, and its refusal too", () => {
    expect(fold(...waiting, refused)).toMatchObject({ status: "awaiting", question: { asked: { await_id: "ask#1" } } });
    expect(fold(...waiting, refused).mail?.refusals.get("offer-1")).toEqual(refused);
  });

  it("is remembered as refused until a hundred later ones are", () => {
    const refusals = Array.from({ length: 101 }, (_, n): Entry => ({ ...refused, offer_id: `offer-${n}` }));
    const { mail } = fold(...waiting, ...refusals);
    expect(mail?.refusals.size).toBe(100);
    expect(mail?.refusals.has("offer-0")).toBe(false);
    expect(mail?.refusals.has("offer-1")).toBe(true);
  });
});

describe("a step that is begun again", () => {
  const first = { key: "a#1", attempt: 1 };
  const other = { key: "b#1", attempt: 1 };
  const again: Command = { type: "intend", entry: { type: "intent", at: AT, key: "a#1", attempt: 2, run_id: null } };

  function outputAfter(items: readonly Emission[], ...commands: readonly Command[]): string[] {
    const state = fold(...beginning);
    for (const item of items) carryOut(state, { type: "emit", at: AT, item });
    for (const command of commands) carryOut(state, command);
    return state.output.map(
      ({ parts, completed_at }) => `${parts.map(({ content }) => content)}${completed_at === null ? " …" : ""}`,
    );
  }

  it("takes back what it had emitted, complete or not, and nothing else", () => {
    const whole: Emission = { kind: "message", message: message("whole"), source: first };
    const items = [
      text("before"),
      text("torn", first),
      { kind: "close", source: first } as const,
      whole,
      text("b", other),
    ];
    expect(outputAfter(items)).toEqual(["before", "torn", "whole", "b …"]);
    expect(outputAfter(items, again)).toEqual(["before", "b …"]);
    expect(outputAfter([text("before"), text("torn", first)], again)).toEqual(["before"]);
    expect(outputAfter([text("torn", first)], again, { type: "emit", at: AT, item: text("after") })).toEqual([
      "after …",
    ]);
  });

  it("takes back nothing of an attempt that has a result", () => {
    const done: Command = {
      type: "record",
      entry: { type: "step", at: AT, key: "a#1", result: 1, error: null, usage: null },
    };
    expect(outputAfter([text("said", first)], done, again)).toEqual(["said …"]);
    expect(outputAfter([text("said", other)], again)).toEqual(["said …"]);
  });

  it("takes back a message that a question has completed meanwhile", () => {
    const ask: Command = { type: "ask", at: AT, ...question("ask#1"), emitted: 0 };
    expect(outputAfter([text("torn", first)], ask, again)).toEqual([]);
  });

  it("takes back what an earlier attempt had emitted with its first emission, also where its intent is not in the log", () => {
    const second = { ...first, attempt: 2 };
    const whole: Emission = { kind: "message", message: message("whole"), source: second };
    for (const next of [text("again", second), whole, { kind: "generic", generic: {}, source: second } as const])
      expect(outputAfter([text("before"), text("torn", first), text("b", other), next])).not.toContain("torn");
    expect(outputAfter([text("torn", first), whole])).toEqual(["whole"]);
    expect(outputAfter([text("torn", first), { kind: "close", source: second }, text("again", second)])).toEqual([
      "again …",
    ]);
  });

  it("is not affected by what an earlier attempt still emits", () => {
    const items = [
      text("again", { ...first, attempt: 2 }),
      text("late", first),
      { kind: "close", source: first } as const,
    ];
    expect(outputAfter(items)).toEqual(["again …"]);
  });

  it("takes back what the last attempt has emitted, also where that replaced an earlier one", () => {
    const items = [text("before"), text("torn", first), text("again", { ...first, attempt: 2 })];
    expect(outputAfter(items, again)).toEqual(["before"]);
  });

  it("keeps the positions of the questions", () => {
    const state = fold(...beginning);
    const ask = (id: string): Command => ({
      type: "ask",
      at: AT,
      ...question(id),
      emitted: 0,
    });
    carryOut(state, ask("ask#1"));
    carryOut(state, { type: "withdraw", at: AT, await_id: "ask#1" });
    carryOut(state, { type: "emit", at: AT, item: { kind: "message", message: message("torn"), source: first } });
    carryOut(state, ask("ask#2"));
    carryOut(state, { type: "withdraw", at: AT, await_id: "ask#2" });
    carryOut(state, ask("ask#3"));
    carryOut(state, again);
    carryOut(state, { type: "withdraw", at: AT, await_id: "ask#3" });
    expect(state.exchanges?.map(({ after }) => after)).toEqual([0, 0, 0]);
  });

  it("is named as the source of everything that it emits", () => {
    const items: readonly Emission[] = [
      text("a", first),
      { kind: "generic", generic: {}, source: first },
      { kind: "close", source: first },
      { kind: "message", message: message("m"), source: first },
    ];
    const state = fold(...beginning);
    const entries = items.flatMap((item) => carryOut(state, { type: "emit", at: AT, item }));
    expect(entries.map((entry) => entry.type === "emitted" && entry.source)).toEqual([first, first, first, first]);
  });
});

describe("deadlines", () => {
  const waiting = [...beginning, asked("ask#1")] as const;

  it.each([true, false])("a question that expires is settled, with a default: %s", (defaulted) => {
    expect(decide(fold(...waiting), { type: "expire", at: AT, await_id: "ask#1", defaulted })).toEqual([
      { type: "timed-out", at: AT, await_id: "ask#1", defaulted },
    ]);
  });

  it("a deadline of a question that is not shown any more does nothing", () => {
    expect(decide(fold(...waiting), { type: "expire", at: AT, await_id: "ask#0", defaulted: false })).toEqual([]);
    expect(decide(fold(...waiting), { type: "withdraw", at: AT, await_id: "ask#0" })).toEqual([]);
  });

  it("a run's timeout is written once", () => {
    const state = fold(...beginning);
    expect(carryOut(state, { type: "overrun", at: AT })).toHaveLength(1);
    expect(carryOut(state, { type: "overrun", at: AT })).toHaveLength(0);
  });

  it.each<[title: string, entry: Entry, data: object]>([
    ["out of time", { type: "timed-out", at: AT, await_id: null, defaulted: false }, { reason: "run_timeout" }],
    [
      "without its answer",
      { type: "timed-out", at: AT, await_id: "ask#1", defaulted: false },
      { reason: "await_timeout", await_id: "ask#1" },
    ],
  ])("a run %s fails, whatever its agent ends with", (_title, entry, data) => {
    const log = entry.type === "timed-out" && entry.await_id === null ? beginning : waiting;
    for (const failure of [null, { code: "not_found", message: "Something else." } as const]) {
      const [end] = decide(fold(...log, entry), { type: "end", at: AT, failure, usage: null }) as Entry[];
      expect(end).toMatchObject({ outcome: "failed", error: { code: "server_error", data } });
    }
  });

  it("a run with two expired questions fails because of the first", () => {
    const state = fold(...waiting, asked("ask#2"));
    for (const await_id of ["ask#2", "ask#1"]) carryOut(state, { type: "expire", at: AT, await_id, defaulted: false });
    const [end] = carryOut(state, { type: "end", at: AT, failure: null, usage: null });
    expect(end).toMatchObject({ outcome: "failed", error: { data: { await_id: "ask#2" } } });
  });

  it("a run may run out of time beside what it waits for, which it then does not wait for any more", () => {
    for (const entry of [asked("ask#1"), relayed("run:a#1/ask#1"), sleep]) {
      const state = fold(...beginning, entry);
      expect(carryOut(state, { type: "overrun", at: AT })).toHaveLength(1);
      expect(state).toMatchObject({ status: "in-progress", question: null, waits: null });
    }
  });

  it("a run that is cancelled after its timeout is cancelled", () => {
    const state = fold(...beginning, { type: "timed-out", at: AT, await_id: null, defaulted: false });
    carryOut(state, { type: "cancel", at: AT });
    carryOut(state, { type: "end", at: AT, failure: null, usage: null });
    expect(state.status).toBe("cancelled");
    expect(state.ended?.error).toBeUndefined();
  });

  it.each<[await_id: string | null, command: Command]>([
    ["ask#1", { type: "expire", at: AT, await_id: "ask#1", defaulted: true }],
    [null, { type: "overrun", at: AT }],
  ])("are decided again as what they were: %s", (await_id, command) => {
    expect(commandOf({ type: "timed-out", at: AT, await_id, defaulted: true })).toEqual(command);
  });

  it("a run asks nothing more after its timeout", () => {
    const state = fold(...beginning, { type: "timed-out", at: AT, await_id: null, defaulted: false });
    expect(decide(state, { type: "ask", at: AT, ...question("ask#1"), emitted: 0 })).toEqual([]);
  });

  it("a question with a default lets the run go on", () => {
    const state = fold(...waiting, { type: "timed-out", at: AT, await_id: "ask#1", defaulted: true });
    expect(state).toMatchObject({ status: "in-progress", overdue: null, question: null });
  });
});

describe("the end of a run", () => {
  it("ends the open questions, the waits and the offers with it", () => {
    const log = [...logs.awaiting, asked("ask#2"), sleep, offered("offer-1", "ask#1")];
    const state = fold(...log);
    const [end] = carryOut(state, { type: "end", at: AT, failure: null, usage: null });
    expect(end).toEqual({ type: "ended", at: AT, outcome: "completed" });
    expect(state).toMatchObject({ status: "completed", question: null, more_questions: null, waits: null });
    expect(state.waiting_from).toBeNull();
    expect(state.mail?.offers.size).toBe(0);
    expect(state.exchanges?.map((one) => [one.asked.await_id, one.settled, replyTo(one)])).toEqual([
      ["ask#1", end, undefined],
      ["ask#2", end, undefined],
    ]);
  });

  it.each([
    ["completes", "in-progress", null, true],
    ["fails", "in-progress", { code: "server_error", message: "" } as const, false],
    ["is cancelled", "cancelling", null, false],
  ] as const)("closes the open message or leaves it open when the run %s", (_title, status, failure, closes) => {
    const state = fold(...logs["in-progress"]);
    carryOut(state, { type: "emit", at: AT, item: text("a") });
    if (status === "cancelling") carryOut(state, { type: "cancel", at: AT });
    const [end] = carryOut(state, { type: "end", at: AT, failure, usage: null });

    expect(end?.type === "ended" && end.closes === true).toBe(closes);
    expect(state.output[0]?.completed_at === null).toBe(!closes);
  });

  it("carries the usage that no other entry holds", () => {
    const usage = {
      input_tokens: 1,
      output_tokens: 2,
      total_tokens: 3,
      cached_input_tokens: 0,
      cache_write_tokens: 0,
      reasoning_tokens: 0,
    };
    const state = fold(...beginning);
    carryOut(state, { type: "ask", at: AT, ...question("ask#1"), emitted: 0, usage });
    carryOut(state, { type: "end", at: AT, failure: null, usage });
    expect(state.usage).toMatchObject({ input_tokens: 2, output_tokens: 4, total_tokens: 6 });
  });
});
