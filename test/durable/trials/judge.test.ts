import type { Entry } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { expect as expected, isAsExpected, wordsIn } from "../../harness/expected.ts";
import type { EmittedPart } from "../../harness/internals.ts";
import { misjudged } from "../../harness/judge.ts";
import type { Block, Program, Statement } from "../../harness/program.ts";
import { CHILD, inputOf } from "../../harness/program.ts";
import { agentOf } from "../../harness/program-player.ts";
import { playerIn } from "../../harness/world/bodies.ts";
import { play } from "../../harness/world/play.ts";

/** One branch closes a message, the other one emits its content. The runtime may choose the order. */
const branches: readonly Block[] = [
  [{ does: "emit", what: "close", text: "", by: "emit" }],
  [{ does: "emit", what: "part", text: "text", by: "emit" }],
];
const program: Program = { body: [{ does: "all", branches }], fails: false };
const text: EmittedPart = {
  type: "emitted",
  kind: "part",
  at: 0,
  part: { content_type: "text/plain", content: "text 1 ", content_encoding: "plain" },
  opens: true,
};
const last: Entry = { ...text, part: { ...text.part, content: "all 1 " } };
const close: Entry = { type: "emitted", kind: "close", at: 0 };

it.each([
  { what: "closed after another branch has emitted", log: [text, close, last], isRight: true },
  { what: "not closed, since nothing was open", log: [text, last], isRight: true },
  { what: "closed twice", log: [text, close, close, last], isRight: false },
  { what: "closed without anything in it", log: [close, last], isRight: false },
])("a message of branches side by side is judged that was $what", async ({ log, isRight }) => {
  expect(isAsExpected(await expected({ name: "program", program }, "", log), wordsIn(log))).toBe(isRight);
});

describe("the log of a run of a program", async () => {
  const { world, run_id, log } = await played(
    {
      does: "all",
      branches: [
        [step("slow", 9), said("one")],
        [step("quick", 3), said("other")],
      ],
    },
    { does: "run", agent: CHILD, program: logged(step("inner", 3), said("child")) },
    { does: "report", tokens: 3 },
    said("end"),
  );
  const subRun = log.find((entry) => entry.type === "intent" && entry.run_id !== null);
  const child = subRun?.type === "intent" ? (subRun.run_id ?? "") : "";
  const childLog = await world.log(child);

  /** What the judge says when one of the two logs is another one. */
  const judged = (own: readonly Entry[], others = childLog): Promise<readonly string[]> =>
    misjudged(run_id, (id) => (id === run_id ? own : others));

  it("is right as it is", async () => {
    expect(await judged(log)).toEqual([]);
  });

  it.each<[fault: string, own: (log: readonly Entry[]) => readonly Entry[], says: RegExp]>([
    ["an emission is lost", (log) => log.filter((entry) => !isSaid(entry, "other")), /must emit/],
    [
      "an emission occurs twice",
      (log) => log.flatMap((entry) => (isSaid(entry, "one") ? [entry, entry] : [entry])),
      /must emit/,
    ],
    ["two results are exchanged", exchanged, /must emit/],
    ["a value is another one", (log) => log.map(withValue), /must emit/],
    [
      "it has failed",
      (log) => log.map((entry) => (entry.type === "ended" ? failed(entry) : entry)),
      /is failed, and must be completed/,
    ],
    ["tokens are not counted", (log) => log.map(withoutUsage), /has used \d+, and must have used/],
  ])("is wrong if %s", async (_fault, change, says) => {
    expect((await judged(change(log))).join()).toMatch(says);
  });

  it("is wrong if that of its sub-run is wrong", async () => {
    const changed = childLog.filter((entry) => !isSaid(entry, "child"));
    expect((await judged(log, changed)).join()).toMatch(/^judged\.1 .* must emit/);
  });
});

// Each 64th time a durable agent waits a turn of the event loop, so that a branch which does nothing is the first to end.
it.each([60, 61, 62, 63, 64])(
  "an agent that emits its last values side by side after %d others is judged right",
  async (times) => {
    const { world, run_id } = await played(
      { does: "repeat", times, body: [said("much")] },
      { does: "race", branches: [[said("one"), said("two"), step("slow", 3)], []], leaves: false },
      step("last", 3),
    );
    expect(await misjudged(run_id, (id) => world.log(id))).toEqual([]);
  },
);

// What an agent reads outside of its log it gets in a turn of its own, when its other branches wait.
it("an agent that reads its history in a branch is judged by what its other branches do before", async () => {
  const reads: Statement = {
    does: "race",
    branches: [[{ does: "history" }, said("one")], [said("other")]],
    leaves: true,
  };
  const { world, run_id, log } = await played(reads);
  expect(wordsIn(log)).toEqual(["other 1 ", "won by 1, 32 "]);
  expect(await misjudged(run_id, (id) => world.log(id))).toEqual([]);
  const early = log.flatMap((entry) => (isSaid(entry, "other") ? [withText(entry, "one 1 "), entry] : [entry]));
  expect((await misjudged(run_id, () => early)).join()).toMatch(/must emit other 1 \|won by/);
});

describe("the messages of a program", () => {
  const received = (name: string, value: number): Entry => ({
    type: "received",
    at: 0,
    name,
    data: { value },
    idempotency_key: `${name} ${value}`,
  });
  const taken = (key: string, position: number | null): Entry => ({ type: "taken", at: 0, key, position });
  const twice: Program = logged(
    { does: "receive", name: "mail", schema: false },
    { does: "receive in time", name: "mail", schema: false, ms: 9, otherwise: false },
  );
  const judgeOf = (...log: readonly Entry[]) => expected({ name: "program", program: twice }, "", log);
  const [one, two] = [received("mail", 1), received("mail", 2)];

  it("are right in their order, where one that came twice counts once", async () => {
    const right = await judgeOf(one, one, two, taken("receive:mail#1", 0), taken("receive:mail#2", 2));
    expect([isAsExpected(right, []), right.ending]).toEqual([true, "completed"]);
    const late = await judgeOf(one, taken("receive:mail#1", 0), taken("receive:mail#2", null));
    expect(isAsExpected(late, ["receive_timeout "])).toBe(true);
  });

  it.each([
    { what: "taken out of order", log: [one, two, taken("receive:mail#1", 1)] },
    { what: "taken twice", log: [one, one, taken("receive:mail#1", 0), taken("receive:mail#2", 1)] },
    { what: "taken under another name", log: [received("news", 1), taken("receive:mail#1", 0)] },
  ])("are wrong if one is $what", async ({ log }) => {
    await expect(judgeOf(...log)).rejects.toThrow(/is taken instead of/);
  });

  it("are wrong if a receive is withdrawn that the agent has not aborted", async () => {
    await expect(judgeOf({ type: "withdrawn", at: 0, await_id: "receive:mail#1" })).rejects.toThrow(/was not aborted/);
  });
});

/** Runs a program to its end. */
function played(...body: Block): ReturnType<typeof play> {
  return play({
    register: (process) => {
      const agent = agentOf(playerIn(process));
      for (const name of ["agent", CHILD]) process.runtime.register(name, { durable: true }, agent);
    },
    input: inputOf({ name: "judged", program: logged(...body) }),
  });
}

function logged(...body: Block): Program {
  return { body, fails: false };
}

function step(name: string, ms: number): Statement {
  return { does: "step", name, ms, failures: 0 };
}

function said(what: string): Statement {
  return { does: "emit", what: "part", text: what, by: "emit" };
}

function isSaid(entry: Entry, what: string): boolean {
  return entry.type === "emitted" && entry.kind === "part" && entry.part.content?.startsWith(what) === true;
}

function withText(entry: Entry, content: string): Entry {
  return entry.type === "emitted" && entry.kind === "part" ? { ...entry, part: { ...entry.part, content } } : entry;
}

/** The results of the two branches, each in the place of the other. */
function exchanged(log: readonly Entry[]): readonly Entry[] {
  const results = log.filter((entry) => entry.type === "step" && /^(slow|quick)#1$/.test(entry.key));
  return log.map((entry) => (results.includes(entry) ? (results.at(results.indexOf(entry) - 1) ?? entry) : entry));
}

function withValue(entry: Entry): Entry {
  return entry.type === "step" && entry.key === "slow#1"
    ? { ...entry, result: { key: "slow#1", value: 1_000 } }
    : entry;
}

function failed(entry: Entry & { readonly type: "ended" }): Entry {
  return { ...entry, outcome: "failed", error: { code: "server_error", message: "It broke." } };
}

/** The entry at the end, without the tokens that were reported since the one before. */
function withoutUsage(entry: Entry): Entry {
  if (entry.type !== "ended") return entry;
  const { usage: _usage, ...rest } = entry;
  return rest;
}
