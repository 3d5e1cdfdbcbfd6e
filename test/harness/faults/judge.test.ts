import { describe, expect, it } from "vitest";
import type { Entry } from "../../../src/core/log.ts";
import { asked, created, ended, resumed, started, T0 } from "../logs.ts";
import type { RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED, Acknowledged } from "./acknowledged.ts";
import type { Known, ProcessEvent, RunEvidence, Seen } from "./evidence.ts";
import { ProcessHistory } from "./evidence.ts";
import { judgeAnswers, judgeFinally, judgeGoingOn } from "./judge-answers.ts";
import { judgeBodies } from "./judge-bodies.ts";
import { judgeEvents, judgeOutput, judgeRun } from "./judge-runs.ts";
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
  readonly lines?: readonly Seen[];
  readonly durable?: boolean;
  readonly parent?: string;
  readonly processes?: Readonly<Record<string, readonly ProcessEvent[]>>;
}

function evidenceOf({ log = [], lines: seen = [], durable = true, parent }: Case): RunEvidence {
  return { run_id: RUN, log, lines: seen, durable, parent };
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
  const question = {
    await_id: "ask#1",
    expires_at: undefined,
    text: { run: RUN, key: "ask#1", by: "ask", schema: true, timeoutMs: null, defaults: false },
  } as const;

  function told(nonce: string, outcomes: readonly string[], fits = true): string[] {
    const record: RunRecord = new Acknowledged().add({
      plan: { id: "p", acts: [], fails: false },
      agent: "durable",
      session_id: null,
      key: null,
      mode: "async",
    });
    record.answers.push({ nonce, fits, question, outcomes: [...outcomes] });
    return complaints((complain) => judgeAnswers(record, knownOf({ log }), complain));
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
    expect(told("n2", [ACKNOWLEDGED], false)).toEqual(["invalid"]);
    expect(told("n1", ["answer_rejected"], false)).toEqual(["invalid"]);
    expect(told("n2", ["answer_rejected"], false)).toEqual([]);
    expect(told("n2", ["answer_rejected"])).toEqual(["lost"]);
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
      ["a/1", { is: "asking", key: "ask#1" }],
      ["a/1", { is: "finally", key: "ask#1", nonce: "nothing" }],
    );
    const judged = (shown: readonly Seen[]) =>
      complaints((complain) => judgeFinally(evidenceOf({ log: cancelled, lines: shown }), complain));
    expect(judged(seen.slice(0, 1))).toEqual(["left out"]);
    expect(judged(seen)).toEqual([]);
  });

  it("does not ask for a finally of a run that never began", () => {
    const unstarted = log.filter(({ type }) => type === "created");
    const seen = lines(["a/1", { is: "asking", key: "ask#1" }]);
    const judged = (entries: readonly Entry[]) =>
      complaints((complain) =>
        judgeFinally(evidenceOf({ log: [...entries, ended("cancelled")], lines: seen }), complain),
      );
    expect(judged(unstarted)).toEqual([]);
    expect(judged(log.slice(0, 3))).toEqual(["left out"]);
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
