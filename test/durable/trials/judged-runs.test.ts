import type { Message } from "cadenza";
import type { Entry } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { BodyJudge } from "../../harness/body-judge.ts";
import type { Shown, Told } from "../../harness/judge.ts";
import { misjudged, misremembered, mistold } from "../../harness/judge.ts";
import type { Block } from "../../harness/program.ts";
import { CHILD, inputOf } from "../../harness/program.ts";
import { disordered } from "../../harness/time-judge.ts";
import { play } from "../../harness/world/play.ts";
import { scriptOf } from "../../harness/world/trials.ts";

/* Each rule of the judge is broken once, in what a run has left, and the judge has to say so. */

const child: Block = [
  { does: "step", name: "inner", ms: 3, failures: 0 },
  { does: "stream", name: "model", tokens: 2, ms: 1 },
  { does: "emit", what: "part", text: "child", by: "yield" },
];
const body: Block = [
  { does: "emit", what: "part", text: "begin", by: "yield" },
  { does: "receive", name: "mail", schema: false },
  { does: "step", name: "plan", ms: 3, failures: 1 },
  { does: "fail", name: "fail", attempts: 2 },
  { does: "stream", name: "model", tokens: 3, ms: 1 },
  { does: "ask", schema: false },
  { does: "state" },
  { does: "run", agent: CHILD, program: { body: child, fails: false }, show: true },
  {
    does: "all",
    branches: [
      [
        { does: "emit", what: "part", text: "one", by: "emit" },
        { does: "emit", what: "part", text: "two", by: "emit" },
      ],
      [{ does: "emit", what: "part", text: "other", by: "emit" }],
    ],
  },
];

describe("a run of a program", async () => {
  const name = "program 7";
  const script = scriptOf({ body, fails: true }, 7);
  const { world, run_id, log, shown } = await play({
    ...script,
    input: inputOf({ name, program: { body, fails: true } }),
  });
  const begun = log.find((entry) => entry.type === "intent" && entry.run_id !== null);
  const subRun = begun?.type === "intent" ? (begun.run_id ?? "") : "";
  const below = await world.log(subRun);
  const [question] = log.flatMap((entry) => (entry.type === "resumed" || entry.type === "declined" ? [entry] : []));
  const [message] = log.flatMap((entry) => (entry.type === "received" ? [entry] : []));
  if (question === undefined || message === undefined) throw new Error("The run has not asked or received.");
  const reply = question.type === "resumed" ? { await_resume: question.answer } : { decline: question.decline };
  const mail = { name: message.name, data: message.data as string, idempotencyKey: message.idempotency_key };
  const right: Told = {
    seen: shown.events,
    replies: new Map([[question.await_id, reply]]),
    sent: new Map([[run_id, [mail]]]),
    isCancelled: false,
    sentInOrder: true,
  };
  const said = (own: readonly Entry[]): Promise<readonly string[]> =>
    misjudged(run_id, (id) => (id === run_id ? own : below));
  const told = (change: Partial<Told>, changed: Partial<Shown> = {}, own = log): Promise<readonly string[]> =>
    mistold(
      run_id,
      { ...right, ...change },
      { ...shown, ...changed },
      (id) => (id === run_id ? own : below),
      async () => [],
    );

  it("is right as it is", async () => {
    expect(world.violations).toEqual([]);
    expect([await said(log), await told({}), disordered(shown)]).toEqual([[], [], []]);
  });

  it.each<[fault: string, change: (log: readonly Entry[]) => readonly Entry[], says: RegExp]>([
    ["a step has another result", results({ key: "plan#1", value: -1 }), /plan#1.*gives/],
    ["an attempt has failed with another error", errors("broken"), /attempt 1 at plan#1 has failed with broken/],
    ["a step is given up early", without((entry) => isAttempt(entry, "fail#1")), /attempt 1 gives/],
    ["a text of a step is lost", without((entry) => isText(entry, "model#1/1 ")), /model#1 has emitted/],
    ["a step that it began is not begun", without((entry) => isIntent(entry, "model#1")), /which it never began/],
    ["a step is begun after its result", again((entry) => isIntent(entry, "model#1")), /after its result/],
    ["an attempt is left out", without((entry) => isIntent(entry, "plan#1", 1)), /attempt 2 at plan#1 out of order/],
    ["it has two results", again((entry) => entry.type === "step"), /has two results of/],
    ["a message is taken twice", takenTwice, /has taken mail 1 twice/],
    ["it has two ends", again((entry) => entry.type === "ended"), /has an inconsistent log/],
    ["it has no end", without((entry) => entry.type === "ended"), /has an inconsistent log/],
    ["it begins twice", again((entry) => entry.type === "started"), /has an inconsistent log/],
    ["another reply is written", otherReply, /has the reply .* to ask#1, and must have/],
    ["its question comes too early", askedFirst, /asks ask#1 after 1 emissions/],
    ["it has another state", results({ count: 8 }, "session.getState#1"), /as its state/],
    ["the texts of a branch change places", swapped("one ", "two "), /must emit/],
    ["what was shown is lost", without((entry) => isCopy(entry)), /must show/],
    ["what was shown is left out in the end", tornLater, /has shown .* in the end/],
    ["a sub-run has another result", otherOutput, /as the result of/],
    ["it has failed with another error", otherEnd, /must have failed with The program ends here/],
  ])("is wrong if %s", async (_fault, change, says) => {
    expect((await said(change(log))).join(" ").replaceAll("\n", " ")).toMatch(says);
  });

  it("may have its branches in another order", async () => {
    expect(await said(swapped("two ", "other ")(log))).toEqual([]);
  });

  it.each<[fault: string, told: () => Promise<readonly string[]>, says: RegExp]>([
    ["an event is lost", () => told({}, { events: shown.events.slice(1) }), /has the number/],
    ["an event has changed", () => told({ seen: shown.events.map((one) => ({ ...one, id: 1 })) }), /event 1 was/],
    [
      "an answer is lost",
      () =>
        told(
          {},
          {},
          log.filter((entry) => entry !== question),
        ),
      /answer to ask#1 is lost/,
    ],
    ["an answer is taken twice", () => told({}, {}, [...log, question]), /answer to ask#1 is lost/],
    [
      "a message is lost",
      () =>
        told(
          {},
          {},
          log.filter((entry) => entry !== message),
        ),
      /message mail 1 .* is lost/,
    ],
    [
      "messages are out of order",
      () => told({}, {}, [{ ...message, idempotency_key: "mail 2" }, ...log]),
      /out of order/,
    ],
    ["a cancel is lost", () => told({ isCancelled: true }), /was cancelled, and is failed/],
    ["its output is another", () => told({}, { run: { ...shown.run, output: [] } }), /shows the output/],
  ])("is wrong if %s", async (_fault, wrong, says) => {
    expect((await wrong()).join("\n")).toMatch(says);
  });

  it("is wrong if its times go back", () => {
    const backward = shown.transcript.map((one, index) => ({
      ...one,
      created_at: new Date(9e12 - index).toISOString(),
    }));
    expect(disordered({ details: [], transcript: backward }).join()).toMatch(/the transcript has/);
    expect(disordered({ details: shown.details.toReversed(), transcript: [] }).join()).toMatch(/the details have/);
  });

  it("is wrong if its session lacks it, or has it twice", () => {
    const run = { ...shown.run, status: "completed" } as Shown["run"];
    const { transcript } = shown;
    const misses = (history: readonly Message[]) => misremembered(history, [], [{ ...shown, run }]);
    expect(misses(transcript)).toEqual([]);
    expect(misses([]).join()).toMatch(/session has/);
    expect(misses([...transcript, ...transcript]).join()).toMatch(/session has/);
  });
});

describe("the bodies of steps", () => {
  const one = { process: "one", run_id: "run", key: "plan#1", attempt: 1 } as const;
  const log = [{ type: "intent", at: 0, key: "plan#1", attempt: 1, run_id: null }] as const;
  const result = { type: "step", at: 0, key: "plan#1", result: 1, error: null, usage: null } as const;
  const wrong = (act: (judge: BodyJudge) => void): string => {
    const judge = new BodyJudge([]);
    act(judge);
    return [...judge.wrong, ...judge.misran("run", [...log, result])].join("\n");
  };
  const began = { ...one, owner: "one/0", log } as const;

  it("are right if each begins once, in the process that owns the run", () => {
    expect(
      wrong((judge) => {
        judge.began(began);
        judge.ended(one);
        judge.got(one);
        judge.began({ ...began, process: "two", owner: "two", key: "other#1", log: undefined });
      }),
    ).toBe("two: attempt 1 at other#1 of run runs without an intent in the log");
  });

  it.each<[fault: string, act: (judge: BodyJudge) => void, says: RegExp]>([
    ["another process owns the run", (judge) => judge.began({ ...began, owner: "two" }), /the run belongs to two/],
    ["no process owns the run", (judge) => judge.began({ ...began, owner: null }), /the run belongs to null/],
    [
      "an attempt begins twice",
      (judge) => {
        judge.began(began);
        judge.began(began);
      },
      /begins twice/,
    ],
    ["it has no intent", (judge) => judge.began({ ...began, log: [] }), /without an intent/],
    [
      "the run has ended",
      (judge) => judge.began({ ...began, log: [...log, { type: "ended", at: 0, outcome: "completed" }] }),
      /runs, and the run has ended/,
    ],
    ["it had no intent at that time", (judge) => judge.began({ ...began, log: 0 }), /without an intent/],
    ["the step had its result", (judge) => judge.began({ ...began, log: 2 }), /the step has a result/],
    [
      "the agent had the result",
      (judge) => {
        judge.got(one);
        judge.began(began);
      },
      /begins although the step has its result/,
    ],
    [
      "the process may execute nothing",
      (judge) => {
        judge.webs.add("one");
        judge.began(began);
      },
      /may execute nothing/,
    ],
    [
      "another process is at work on the run",
      (judge) => {
        judge.began(began);
        judge.began({ ...began, process: "two", owner: "two", attempt: 2 });
      },
      /runs while one: attempt 1/,
    ],
    [
      "another process is at work on the same generation",
      (judge) => {
        judge.began({ ...began, key: "plan#2.1" });
        judge.began({ ...began, key: "other#2.1", process: "two", owner: "two" });
      },
      /runs while one: attempt 1/,
    ],
  ])("are wrong if %s", (_fault, act, says) => {
    expect(wrong(act)).toMatch(says);
  });

  it("may begin again when their process is gone", () => {
    const gone = wrong((judge) => {
      judge.began(began);
      judge.left("one");
      judge.began({ ...began, process: "two", owner: "two", attempt: 2 });
    });
    expect(gone).not.toMatch(/runs while/);
  });

  it("may be those of a generation after the one whose work another process still does", () => {
    const judge = new BodyJudge([]);
    judge.began(began);
    judge.began({ ...began, key: "plan#2.1", process: "two", owner: "two", log: undefined });
    expect(judge.wrong).toEqual([]);
  });

  it("have not lost a result that the agent had", () => {
    const judge = new BodyJudge([]);
    judge.began(began);
    judge.got(one);
    expect(judge.misran("run", log).join()).toMatch(/the result of plan#1 of run is lost/);
    expect(judge.misran("run", [...log, { type: "ended", at: 0, outcome: "failed" }]).join()).toMatch(/is lost/);
  });
});

type Change = (log: readonly Entry[]) => readonly Entry[];

function results(
  result: { readonly key?: string; readonly [name: string]: string | number | undefined },
  key = result.key,
): Change {
  return (log) =>
    log.map((entry) => (entry.type === "step" && entry.key === key ? ({ ...entry, result } as Entry) : entry));
}

function errors(message: string): Change {
  return (log) =>
    log.map((entry) =>
      entry.type === "attempt-failed" && entry.key === "plan#1"
        ? { ...entry, failure: { ...entry.failure, message } }
        : entry,
    );
}

function without(isIt: (entry: Entry) => boolean): Change {
  return (log) => log.filter((entry) => !isIt(entry));
}

/** The first such entry once more, at the end. */
function again(isIt: (entry: Entry) => boolean): Change {
  return (log) => [...log.slice(0, -1), ...log.filter(isIt).slice(0, 1), ...log.slice(-1)];
}

function isIntent(entry: Entry, key: string, attempt = 1): boolean {
  return entry.type === "intent" && entry.key === key && entry.attempt === attempt;
}

/** The second attempt at a step, and the failure of the first one. */
function isAttempt(entry: Entry, key: string): boolean {
  return isIntent(entry, key, 2) || (entry.type === "attempt-failed" && entry.key === key);
}

function isText(entry: Entry, text: string): boolean {
  return entry.type === "emitted" && entry.kind === "part" && entry.part.content?.startsWith(text) === true;
}

function isCopy(entry: Entry): boolean {
  return entry.type === "emitted" && entry.source !== undefined && "run_id" in entry.source;
}

const takenTwice: Change = (log) => {
  const taken = log.find((entry) => entry.type === "taken");
  return taken?.type === "taken" ? [...log.slice(0, -1), { ...taken, key: "receive:mail#2" }, ...log.slice(-1)] : log;
};

const otherReply: Change = (log) =>
  log.map((entry) =>
    entry.type === "resumed" || entry.type === "declined"
      ? { type: "resumed", at: entry.at, await_id: entry.await_id, answer: { value: -1 }, idempotency_key: null }
      : entry,
  );

const askedFirst: Change = (log) => {
  const asked = log.filter(({ type }) => type === "awaited");
  const rest = log.filter((entry) => !asked.includes(entry));
  const at = 1 + rest.findIndex(({ type }) => type === "taken");
  return [...rest.slice(0, at), ...asked, ...rest.slice(at)];
};

function swapped(one: string, other: string): Change {
  return (log) => {
    const [first, second] = [one, other].map((text) => log.find((entry) => isText(entry, text)));
    const texts = [first, second].flatMap((entry) =>
      entry?.type === "emitted" && entry.kind === "part" ? [entry] : [],
    );
    const [a, b] = texts;
    if (a === undefined || b === undefined) throw new Error("There are no such texts.");
    return log.map((entry) => (entry === a ? { ...a, part: b.part } : entry === b ? { ...b, part: a.part } : entry));
  };
}

/** The sub-run seems to have begun another attempt at its step. */
const tornLater: Change = (log) =>
  log.flatMap((entry): readonly Entry[] => {
    if (entry.type !== "emitted" || entry.source === undefined || !("run_id" in entry.source)) return [entry];
    const { step } = entry.source;
    if (step === undefined) return [entry];
    return [entry, { type: "torn", at: entry.at, source: { ...entry.source, step: { ...step, attempt: 2 } } }];
  });

const otherOutput: Change = (log) =>
  log.map((entry) =>
    entry.type === "step" && entry.key.startsWith("run:")
      ? ({ ...entry, result: { ...(entry.result as object), output: [] } } as Entry)
      : entry,
  );

const otherEnd: Change = (log) =>
  log.map((entry) =>
    entry.type === "ended" && entry.cause !== undefined
      ? { ...entry, cause: { ...entry.cause, message: "It broke." } }
      : entry,
  );
