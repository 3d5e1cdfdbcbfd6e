import type { Entry } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { asked, created, ended, relayed, resumed, started, T0 } from "../logs.ts";
import type { AnswerRecord, MailRecord, RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED, Acknowledged } from "./acknowledged.ts";
import { DEFAULT, REJECTED, SLEPT } from "./agents.ts";
import type { Known, ProcessEvent, RunEvidence, Seen } from "./evidence.ts";
import { ProcessHistory } from "./evidence.ts";
import { judgeAnswers, judgeShown } from "./judge-answers.ts";
import { judgeBodies } from "./judge-bodies.ts";
import { judgeMessages } from "./judge-messages.ts";
import { judgeEvents, judgeOutput, judgeRun } from "./judge-runs.ts";
import { judgeFinally, judgeGoingOn, judgeTaking, judgeTimes } from "./judge-waits.ts";
import type { Line } from "./witness.ts";

/* The judge finds what breaks a promise of the documentation, and nothing else. Each case is written by hand. */

const LEASE_MS = 2_000;
const RUN = "run";

type Doing = { readonly is: Line["is"] } & Record<string, unknown>;

/** Lines of processes, each in an incarnation that is named after its process, and 100 ms after the line before. */
function lines(...doings: readonly (readonly [incarnation: string, doing: Doing])[]): Seen[] {
  return doings.map(([incarnation, doing], place) => {
    const by = incarnation.split("/", 1)[0];
    return { at: T0 + 100 * place, place, by, run: RUN, incarnation, ...doing } as Seen;
  });
}

function began(key: string, body: string, attempt = 1, look = { lookedMs: 0, begunSince: 0 }): Doing {
  return { is: "began", key, body, attempt, ...look };
}

const bodyEnded = (key: string, body: string): Doing => ({ is: "ended", key, body });
const got = (key: string, body: string): Doing => ({ is: "got", key, body });

interface Case {
  readonly log?: readonly Entry[];
  readonly inbox?: readonly Entry[];
  readonly lines?: readonly Seen[];
  readonly durable?: boolean;
  readonly parent?: string;
  readonly processes?: Readonly<Record<string, readonly ProcessEvent[]>>;
}

function evidenceOf({ log = [], inbox = [], lines: seen = [], durable = true, parent }: Case): RunEvidence {
  return { run_id: RUN, log, inbox, lines: seen, durable, parent };
}

function knownOf(of: Case, ...others: readonly RunEvidence[]): Known {
  const runs = [evidenceOf(of), ...others].map((run) => [run.run_id, run] as const);
  return { runs: new Map(runs), process: (name) => new ProcessHistory(of.processes?.[name]) };
}

/** The kinds of the judge's complaints. */
function complaints(judge: (complain: (kind: string, what: string) => void) => void): string[] {
  const kinds: string[] = [];
  judge((kind) => kinds.push(kind));
  return kinds;
}

/** What the client knows of a run to which it has said nothing. */
function newRecord(): RunRecord {
  return new Acknowledged().add({
    plan: { id: "p", acts: [], fails: false },
    agent: "durable",
    session_id: null,
    key: null,
    mode: "async",
  });
}

function bodies(of: Case): string[] {
  return complaints((complain) => judgeBodies(evidenceOf(of), knownOf(of), LEASE_MS, complain));
}

describe("of the bodies of steps", () => {
  it.each<readonly [string, Case]>([
    [
      "a step that has a result",
      { lines: lines(["a/1", began("s#1", "x")], ["a/1", got("s#1", "x")], ["b/1", began("s#1", "y", 2)]) },
    ],
    ["an attempt that was begun before", { lines: lines(["a/1", began("s#1", "x")], ["b/1", began("s#1", "y")]) }],
    [
      "a body in a process that has lost the run",
      { lines: lines(["a/1", began("s#1", "x")], ["b/1", began("s#1", "y", 2)], ["a/1", began("t#1", "z")]) },
    ],
    [
      "the second of parallel bodies, after one check of the lease for both",
      {
        lines: lines(
          ["a/1", began("s#1", "x")],
          ["b/1", began("s#1", "y", 2)],
          ["a/1", began("t#1", "z", 1, { lookedMs: 5_000, begunSince: 1 })],
        ),
      },
    ],
    [
      "a step that runs in another process, which is sound",
      {
        lines: lines(["a/1", began("s#1", "x")], ["b/1", began("s#1", "y", 2)]),
        processes: { a: [{ is: "started", at: T0 - 10_000 }] },
      },
    ],
    [
      "a second call of an agent that is not durable",
      { durable: false, lines: lines(["a/1", { is: "called" }], ["b/1", { is: "called" }]) },
    ],
    [
      "a body after the run was seen to end",
      { lines: lines(["a/1", { is: "seen to end" }], ["a/1", began("s#1", "x")]) },
    ],
  ])("blames %s", (_what, of) => {
    expect(bodies(of)).toContain("doubled");
  });

  it.each<readonly [string, Case]>([
    [
      "an attempt after an interruption",
      {
        lines: lines(["a/1", began("s#1", "x")], ["b/1", began("s#1", "y", 2)]),
        processes: { a: [{ is: "killed", at: T0 + 50 }] },
      },
    ],
    [
      "a body that goes on in a process that was frozen",
      {
        lines: lines(["a/1", began("s#1", "x")], ["b/1", began("s#1", "y", 2)]),
        processes: {
          a: [
            { is: "frozen", at: T0 + 10 },
            { is: "thawed", at: T0 + 5_000 },
          ],
        },
      },
    ],
    [
      "a body that goes on in a process that is closing",
      {
        lines: lines(["a/1", began("s#1", "x")], ["b/1", began("s#1", "y", 2)]),
        processes: { a: [{ is: "closing", at: T0 + 10 }] },
      },
    ],
    [
      "a body whose process froze between the check of the lease and the first line",
      {
        lines: lines(
          ["a/1", began("s#1", "x")],
          ["b/1", began("s#1", "y", 2)],
          ["a/1", began("t#1", "z", 1, { lookedMs: 5_000, begunSince: 0 })],
        ),
        processes: { a: [{ is: "frozen", at: T0 + 10 }] },
      },
    ],
    [
      "a body whose process froze in its first line",
      {
        lines: lines(
          ["a/1", began("s#1", "x")],
          ["b/1", began("s#1", "y", 2)],
          ["a/1", { ...began("t#1", "z"), lateMs: 2_000 }],
        ),
        processes: { a: [{ is: "frozen", at: T0 + 10 }] },
      },
    ],
    [
      "a step that had ended in the other process",
      { lines: lines(["a/1", began("s#1", "x")], ["a/1", bodyEnded("s#1", "x")], ["b/1", began("t#1", "y")]) },
    ],
  ])("does not blame %s", (_what, of) => {
    expect(bodies(of)).toEqual([]);
  });
});

describe("of answers", () => {
  const log = [
    created(),
    started,
    asked("ask#1"),
    { ...resumed("ask#1"), answer: { nonce: "n1" } },
    ended("completed"),
  ];
  const declined: Entry = {
    type: "declined",
    at: T0 + 30,
    await_id: "ask#1",
    decline: { reason: "n1" },
    idempotency_key: null,
  };
  const question = {
    expires_at: undefined,
    text: { run: RUN, key: "ask#1", by: "ask", schema: true, timeoutMs: null, defaults: false },
    shown: [],
  } as const;

  function told(
    nonce: string,
    outcomes: readonly string[],
    is: AnswerRecord["is"] = "valid",
    has: readonly Entry[] = log,
  ): string[] {
    const record = newRecord();
    record.answers.push({ nonce, is, question: { ...question, shown: [] }, outcomes: [...outcomes] });
    return complaints((complain) => judgeAnswers(record, knownOf({ log: has }), complain));
  }

  it("blames one that was acknowledged and is not in the log", () => {
    expect(told("n2", ["unknown", ACKNOWLEDGED])).toEqual(["lost"]);
    expect(told("n1", [ACKNOWLEDGED])).toEqual([]);
  });

  it("blames one that was refused and is in the log, if the refusal was certain", () => {
    expect(told("n1", ["lost_ownership", "runtime_closed"])).toEqual(["refused"]);
    expect(told("n1", ["store_failed", "answer_conflict"])).toEqual([]);
    expect(told("n1", ["unknown", "not_awaiting"])).toEqual([]);
    expect(told("n2", ["answer_conflict"])).toEqual([]);
  });

  it("blames one that is invalid and was acknowledged, or is in the log; and one that is valid and was rejected", () => {
    expect(told("n2", [ACKNOWLEDGED], "invalid")).toEqual(["invalid"]);
    expect(told("n1", ["answer_rejected"], "invalid")).toEqual(["invalid"]);
    expect(told("n2", ["answer_rejected"], "invalid")).toEqual([]);
    expect(told("n2", ["answer_rejected"])).toEqual(["lost"]);
  });

  it("blames a decline that was acknowledged and is not in the log, and one that was refused and is", () => {
    const has = log.with(3, declined);
    expect(told("n1", [ACKNOWLEDGED], "decline", has)).toEqual([]);
    expect(told("n2", [ACKNOWLEDGED], "decline", has)).toEqual(["lost"]);
    expect(told("n1", ["run_finished"], "decline", has)).toEqual(["refused"]);
  });

  it("blames a run that shows a question which its sub-run has not asked, or another reply to it", () => {
    const child: RunEvidence = { ...evidenceOf({ log }), run_id: "child" };
    const of = { run_id: "child", await_id: "ask#1" };
    const shows = (await_id: string, reply: object) => {
      const shown: Entry = { ...relayed(`run:durable#1/${await_id}`), of: { ...of, await_id } };
      const over: Entry = {
        type: "settled",
        at: T0,
        await_id: `run:durable#1/${await_id}`,
        of: shown.of ?? of,
        ...reply,
      };
      const parent = evidenceOf({ log: [created(), started, shown, over] });
      return complaints((complain) => judgeShown(parent, knownOf({}, child), complain));
    };
    expect(shows("ask#1", { answer: { nonce: "n1" } })).toEqual([]);
    // A question that has expired is settled without a reply.
    expect(shows("ask#1", {})).toEqual([]);
    expect(shows("ask#1", { answer: { nonce: "n2" } })).toEqual(["changed"]);
    expect(shows("ask#1", { decline: { reason: "n2" } })).toEqual(["changed"]);
    expect(shows("ask#2", {})).toEqual(["changed", "changed"]);
  });

  function goingOn(of: Case): string[] {
    return complaints((complain) => judgeGoingOn(evidenceOf(of), complain));
  }

  it.each(["after", "finally"] as const)("blames a line that runs with another answer (%s)", (is) => {
    const line = (nonce: string) => lines(["a/1", { is, key: "ask#1", nonce }]);
    expect(goingOn({ log, lines: line("n1") })).toEqual([]);
    expect(goingOn({ log, lines: line("n2") })).toEqual(["refused"]);
    expect(goingOn({ log: log.slice(0, 3), lines: line("n1") })).toEqual(["refused"]);
  });

  it("blames a finally without an answer in a run that goes on", () => {
    const seen = lines(["a/1", { is: "finally", key: "ask#1", nonce: "threw run_cancelled" }]);
    expect(goingOn({ log, lines: seen })).toEqual(["refused"]);
    const cancelled: Entry[] = [...log.slice(0, 3), { type: "cancel-requested", at: T0 }, ended("cancelled")];
    expect(goingOn({ log: cancelled, lines: seen })).toEqual([]);
  });

  it("blames a finally that does not run when the run is cancelled", () => {
    const cancelled = [...log.slice(0, 3), ended("cancelled")];
    const seen = lines(
      ["a/1", { is: "waiting", key: "ask#1", ms: null }],
      ["a/1", { is: "finally", key: "ask#1", nonce: "nothing" }],
    );
    const judged = (shown: readonly Seen[]) =>
      complaints((complain) => judgeFinally(evidenceOf({ log: cancelled, lines: shown }), complain));
    expect(judged(seen.slice(0, 1))).toEqual(["left out"]);
    expect(judged(seen)).toEqual([]);
  });

  it("does not ask for a finally of a run that never began", () => {
    const unstarted = log.filter(({ type }) => type === "created");
    const seen = lines(["a/1", { is: "waiting", key: "ask#1", ms: null }]);
    const judged = (entries: readonly Entry[]) =>
      complaints((complain) =>
        judgeFinally(evidenceOf({ log: [...entries, ended("cancelled")], lines: seen }), complain),
      );
    expect(judged(unstarted)).toEqual([]);
    expect(judged(log.slice(0, 3))).toEqual(["left out"]);
  });
});

describe("of messages", () => {
  const at = T0 + 20;
  const mail = (name: string, nonce: string, key = nonce, value: number | string = 1): Entry => {
    return { type: "received", at, name, data: { value, nonce }, idempotency_key: key };
  };
  const taken = (key: string, position: number | null): Entry => ({ type: "taken", at: T0 + 40, key, position });
  const sent = (nonce: string, outcomes: readonly string[], more: Partial<MailRecord> = {}): MailRecord => {
    return {
      nonce,
      name: "note",
      run_id: RUN,
      key: nonce,
      sentAt: 0,
      acknowledgedAt: undefined,
      outcomes: [...outcomes],
      ...more,
    };
  };

  function told(log: readonly Entry[], ...mails: readonly MailRecord[]): string[] {
    const record = newRecord();
    record.mails.push(...mails);
    return complaints((complain) => judgeMessages(record, knownOf({ log }), complain));
  }

  it("blames one that was acknowledged and has not arrived, or has arrived under two keys or another name", () => {
    expect(told([created(), mail("note", "m1")], sent("m1", ["unknown", ACKNOWLEDGED]))).toEqual([]);
    expect(told([created()], sent("m1", [ACKNOWLEDGED]))).toEqual(["lost"]);
    const record = newRecord();
    record.mails.push(sent("m1", [ACKNOWLEDGED]));
    const known = knownOf({ log: [created()], inbox: [mail("note", "m1")] });
    expect(complaints((complain) => judgeMessages(record, known, complain))).toEqual([]);
    // It counts once.
    expect(told([mail("note", "m1"), mail("note", "m1")], sent("m1", [ACKNOWLEDGED]))).toEqual([]);
    expect(told([mail("note", "m1"), mail("note", "m1", "k2")], sent("m1", [ACKNOWLEDGED]))).toEqual(["doubled"]);
    expect(told([mail("order", "m1")], sent("m1", [ACKNOWLEDGED]))).toEqual(["changed"]);
  });

  it("blames one that was refused and has arrived, if the refusal was certain", () => {
    const log = [created(), mail("note", "m1")];
    expect(told(log, sent("m1", ["run_finished"]))).toEqual(["refused"]);
    expect(told(log, sent("m1", ["store_failed", "run_finished"]))).toEqual([]);
    expect(told([created()], sent("m1", ["run_finished"]))).toEqual([]);
    expect(told([created()], sent("m1", ["TypeError: it broke"]))).toEqual(["lost"]);
  });

  it("blames a repeated one that is refused after it was acknowledged", () => {
    const log = [created(), mail("note", "m1")];
    expect(told(log, sent("m1", [ACKNOWLEDGED, "runtime_closed", ACKNOWLEDGED]))).toEqual([]);
    expect(told(log, sent("m1", [ACKNOWLEDGED, "run_finished"]))).toEqual(["lost"]);
  });

  it("blames one that was sent after another was acknowledged and has arrived before it", () => {
    const log = [created(), mail("note", "m2"), mail("note", "m1")];
    const first = sent("m1", [ACKNOWLEDGED], { acknowledgedAt: 2 });
    expect(told(log, first, sent("m2", [ACKNOWLEDGED], { sentAt: 3 }))).toEqual(["changed"]);
    expect(told(log, first, sent("m2", [ACKNOWLEDGED], { sentAt: 1 }))).toEqual([]);
  });

  it("blames one that is taken twice, out of order, or by a receive of another name", () => {
    const log = [created(), mail("note", "m1"), mail("note", "m1"), mail("note", "m2"), mail("order", "m3")];
    const judged = (...takes: readonly Entry[]) =>
      complaints((complain) => judgeTaking(evidenceOf({ log: [...log, ...takes] }), complain));
    const [first, second] = ["receive:note#1", "receive:note#2"] as const;
    expect(judged(taken(first, 1), taken(second, 3), taken("receive:order#1", 4))).toEqual([]);
    expect(judged(taken(first, null), taken(second, 1))).toEqual([]);
    expect(judged(taken(first, 1), taken(second, 1))).toEqual(["doubled"]);
    expect(judged(taken(first, 1), taken(second, 2))).toEqual(["doubled"]);
    expect(judged(taken(first, 3))).toEqual(["changed"]);
    expect(judged(taken(first, 4))).toEqual(["changed"]);
    expect(judged(taken(first, 0))).toEqual(["changed"]);
  });

  it("blames an agent that gets another one than the log has", () => {
    const log = [created(), mail("note", "m1"), mail("order", "m2", "m2", "many"), ended("completed")];
    const judged = (key: string, position: number | null, nonce: string) => {
      const of = { log: log.toSpliced(3, 0, taken(key, position)), lines: lines(["a/1", { is: "after", key, nonce }]) };
      return complaints((complain) => judgeGoingOn(evidenceOf(of), complain));
    };
    expect(judged("receive:note#1", 1, "m1")).toEqual([]);
    expect(judged("receive:note#1", 1, "m2")).toEqual(["refused"]);
    expect(judged("receive:order#1", 2, REJECTED)).toEqual([]);
    expect(judged("receive:order#1", 2, "m2")).toEqual(["refused"]);
    expect(judged("receive:order#1", null, DEFAULT)).toEqual([]);
  });
});

describe("of time", () => {
  const until = T0 + 1_000;
  const key = "sleep#1";
  const slept = (at: number): Entry => ({ type: "step", at, key, result: undefined, error: null, usage: null });
  const begun = (of: string): Entry => ({ type: "intent", at: T0, key: of, attempt: 1, run_id: null, until });
  const judged = (of: Case) => complaints((complain) => judgeTimes(evidenceOf(of), complain));

  it("blames a run that begins before its start", () => {
    const log = [created({ start_at: until }), { ...started, at: until }];
    const called = (at: number) => lines(["a/1", { is: "called", at }]);
    expect(judged({ log, lines: called(until) })).toEqual([]);
    expect(judged({ log, lines: called(until - 1) })).toEqual(["early"]);
    expect(judged({ log: [...log.slice(0, 1), started] })).toEqual(["early"]);
  });

  it("blames a sleep, a receive and a question that end before their time", () => {
    const question: Entry = { ...relayed("ask#1"), deadline: until };
    const receive = "receive:note#1";
    const ends = (at: number): readonly (readonly Entry[])[] => [
      [begun(key), slept(at)],
      [begun(receive), { type: "taken", at, key: receive, position: null }],
      [question, { type: "timed-out", at, await_id: "ask#1", defaulted: true }],
    ];
    for (const log of ends(until)) expect(judged({ log })).toEqual([]);
    for (const log of ends(until - 1)) expect(judged({ log })).toEqual(["early"]);
    // A message may come at any time.
    expect(judged({ log: [begun(receive), { type: "taken", at: T0, key: receive, position: 0 }] })).toEqual([]);
  });

  it("blames an agent that goes on before its time", () => {
    const waits = (ms: number, nonce: string) =>
      judged({ lines: lines(["a/1", { is: "waiting", key, ms }], ["a/1", { is: "after", key, nonce }]) });
    expect(waits(100, SLEPT)).toEqual([]);
    expect(waits(101, SLEPT)).toEqual(["early"]);
    expect(waits(101, DEFAULT)).toEqual(["early"]);
    expect(waits(101, "m1")).toEqual([]);
  });
});

describe("of runs", () => {
  const expected = { fails: false, isCancelled: false, isAnswered: true } as const;
  const step = (result: string): Entry => ({ type: "step", at: T0, key: "s#1", result, error: null, usage: null });

  function judged(of: Case, more: Partial<typeof expected> | object = {}, ...others: readonly RunEvidence[]): string[] {
    const known = knownOf(of, ...others);
    return complaints((complain) => judgeRun(evidenceOf(of), known, { ...expected, ...more }, complain));
  }

  it("blames one that does not end, and one that outlives its parent", () => {
    expect(judged({ log: [created(), started] })).toEqual(["stuck"]);
    const parent: RunEvidence = { ...evidenceOf({ log: [created(), ended("failed")] }), run_id: "parent" };
    expect(judged({ log: [created(), started], parent: "parent" }, {}, parent)).toEqual(["orphaned"]);
    const living: RunEvidence = { ...parent, log: [created()] };
    expect(judged({ log: [created(), started], parent: "parent" }, {}, living)).toEqual([]);
    // The client does not know of it, and cannot answer it.
    expect(judged({ log: [created(), started, asked("ask#1")] }, { isAnswered: false })).toEqual([]);
    expect(judged({ log: [created(), started] }, { isAnswered: false })).toEqual(["stuck"]);
    const receive: Entry = { type: "intent", at: T0, key: "receive:note#1", attempt: 1, run_id: null, until: null };
    const begun: Entry = { ...receive, key: "run:durable#1", run_id: "child" };
    const child: RunEvidence = { ...evidenceOf({ log: [created(), started, receive] }), run_id: "child" };
    expect(judged({ log: [created(), started, begun] }, { isAnswered: false }, child)).toEqual([]);
    expect(judged({ log: [created(), started, begun] }, {}, child)).toEqual(["stuck"]);
  });

  it("blames a result that is lost, or differs from the one that the agent got", () => {
    const seen = lines(["a/1", got("s#1", "x")]);
    expect(judged({ log: [created(), step("x"), ended("completed")], lines: seen })).toEqual([]);
    expect(judged({ log: [created(), step("y"), ended("completed")], lines: seen })).toEqual(["changed"]);
    expect(judged({ log: [created(), ended("completed")], lines: seen })).toEqual(["lost"]);
    expect(judged({ log: [created(), step("x"), step("x"), ended("completed")], lines: seen })).toEqual(["doubled"]);
  });

  it("blames an end without a reason", () => {
    expect(judged({ log: [created(), ended("cancelled")] })).toEqual(["unexplained"]);
    expect(judged({ log: [created(), ended("cancelled")] }, { isCancelled: true })).toEqual([]);
    expect(judged({ log: [created(), ended("failed")] })).toEqual(["unexplained"]);
    expect(judged({ log: [created(), ended("completed")] }, { fails: true })).toEqual(["unexplained"]);
    const error = { code: "server_error", message: "", data: { reason: "interrupted" } } as const;
    const interrupted = [created(), { ...ended("failed"), error } as Entry];
    const called = lines(["a/1", { is: "called" }]);
    expect(judged({ log: interrupted, durable: false, lines: called })).toEqual(["unexplained"]);
    const processes = { a: [{ is: "killed", at: T0 + 10 }] } as const;
    expect(judged({ log: interrupted, durable: false, lines: called, processes })).toEqual([]);
  });

  it("blames events that have changed, or have a gap", () => {
    const event = (id: number, text: string) =>
      ({ id, type: "generic", generic: { text } }) as unknown as Parameters<typeof judgeEvents>[0][number];
    const judgedEvents = (seen: Parameters<typeof judgeEvents>[0], now: Parameters<typeof judgeEvents>[1]) =>
      complaints((complain) => judgeEvents(seen, now, complain));
    expect(judgedEvents([event(1, "a")], [event(1, "a"), event(2, "b")])).toEqual([]);
    expect(judgedEvents([event(1, "a")], [event(1, "b")])).toEqual(["changed"]);
    expect(judgedEvents([event(2, "b")], [event(1, "a")])).toEqual(["changed"]);
    expect(judgedEvents([], [event(2, "b")])).toEqual(["changed"]);
  });

  it("blames output that differs from the log", () => {
    const run = evidenceOf({ log: [created(), step("x"), ended("completed")] });
    const judgedOutput = (text: string) => complaints((complain) => judgeOutput(run, text, complain));
    expect(judgedOutput("look up [s#1=x]<t:1:0>")).toEqual([]);
    expect(judgedOutput("[s#1=x][s#1=x]")).toEqual(["changed"]);
    expect(judgedOutput("[s#1=y]")).toEqual(["changed"]);
    expect(judgedOutput("")).toEqual(["changed"]);
    expect(judgedOutput("[s#1=x]<t:1:0><t:1:0>")).toEqual(["changed"]);
  });
});
