import type { AgentContext, AgentFunction, Run } from "cadenza";
import { defineAgent } from "cadenza";
import { everyUpgrade } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import { nextTurn } from "../harness/promises.ts";

/* What `everyUpgrade` reports, and by it what `context.patched` says wherever a run of the old code stands. */

const done = () => "done";

type UpgradeOptions = Parameters<typeof everyUpgrade>[2];

/** Where each run stood when the code changed, and what it shows in the end. */
async function outcomes(before: AgentFunction, after: AgentFunction, options?: UpgradeOptions) {
  const report = await everyUpgrade(before, after, options);
  const upgrades = report.results.filter(({ kind }) => kind === "upgrade");
  return upgrades.map(({ where, output, status, problems }) => {
    const ended = problems.length > 0 ? "blocked" : status === "completed" ? output : status;
    return `${where.replace("upgraded after ", "")}: ${ended}`;
  });
}

/** Does what is given, and says what it has done. */
function steps(...names: readonly string[]): AgentFunction {
  return async (_input, context) => {
    for (const name of names) await context.step(name, done);
    return names.join(", ");
  };
}

/** One way for the runs that have the patch, another one for those that do not. */
function patchedBy(id: string, patched: AgentFunction, other: AgentFunction): AgentFunction {
  return (input, context) => (context.patched(id) ? patched : other)(input, context);
}

interface Row {
  readonly is: string;
  readonly before: AgentFunction;
  readonly after: AgentFunction;
  readonly options?: UpgradeOptions;
  readonly become: readonly string[];
}

const child = defineAgent("child", async (_input, { step }) => {
  await step("work", done);
  return "child";
});

async function late(value: string, turns: number): Promise<string> {
  for (let turn = 0; turn < turns; turn++) await nextTurn();
  return value;
}

const inLoop =
  (patch: boolean): AgentFunction =>
  async (_input, { step, patched }) => {
    const said: string[] = [];
    for (let day = 1; day <= 2; day++) {
      if (patch && patched("greet")) said.push(await step("greet", () => "hello"));
      said.push(await step("work", () => "work"));
    }
    return said.join(" ");
  };

const beside =
  (patch: boolean, turns = 0): AgentFunction =>
  async (_input, { step, patched }) => {
    const said = await Promise.all([
      step("a", () => (turns === 0 ? "a" : late("a", turns))),
      (async () => {
        const b = await step("b", () => "b");
        return patch && patched("c") ? `${b} ${await step("c", () => "c")}` : b;
      })(),
    ]);
    return said.join(" ");
  };

const inBranch =
  (patch: boolean): AgentFunction =>
  async (_input, { ask, step, patched }) => {
    const { ok } = (await ask("Go on?")) as { readonly ok: boolean };
    if (ok) {
      if (patch && patched("log")) await step("log", done);
      await step("go", done);
      return "went";
    }
    return "stayed";
  };

const generations =
  (patch: boolean): AgentFunction =>
  async (_input, { carry = 1, continueAsNew, emit, step, patched }: AgentContext) => {
    const isNew = patch && patched("mark");
    if (isNew) await step("mark", done);
    await step("work", done);
    await emit(isNew ? `new ${carry}` : `old ${carry}`);
    return Number(carry) < 2 ? continueAsNew(Number(carry) + 1) : undefined;
  };

const parent =
  (patch: boolean): AgentFunction =>
  async (_input, { run, step, patched }) => {
    if (patch && patched("before")) await step("before", done);
    await run("child", "x");
    if (patch && patched("after")) await step("after", done);
    return [patch && patched("before") && "before", "child", patch && patched("after") && "after"]
      .filter(Boolean)
      .join();
  };

const twice: AgentFunction = async (_input, { step, patched }) => {
  const first = patched("one");
  await step("a", done);
  // The first ask has decided, also for this place.
  const second = patched("one");
  if (second) await step("b", done);
  return `${first} ${second}`;
};

const rows: readonly Row[] = [
  {
    is: "a step before the first one",
    before: steps("pack"),
    after: patchedBy("weigh", steps("weigh", "pack"), steps("pack")),
    become: ["1 entries, created: weigh, pack", "3 entries, intent pack#1: pack", "4 entries, step pack#1: pack"],
  },
  {
    is: "the same without a patch",
    before: steps("pack"),
    after: steps("weigh", "pack"),
    become: ["1 entries, created: weigh, pack", "3 entries, intent pack#1: blocked", "4 entries, step pack#1: blocked"],
  },
  {
    is: "a step behind the last one, which needs no patch",
    before: steps("pack"),
    after: steps("pack", "send"),
    become: [
      "1 entries, created: pack, send",
      "3 entries, intent pack#1: pack, send",
      "4 entries, step pack#1: pack, send",
    ],
  },
  {
    is: "a step that is gone",
    before: steps("weigh", "pack"),
    after: patchedBy("no weighing", steps("pack"), steps("weigh", "pack")),
    become: [
      "1 entries, created: pack",
      "3 entries, intent weigh#1: weigh, pack",
      "4 entries, step weigh#1: weigh, pack",
      "5 entries, intent pack#1: weigh, pack",
      "6 entries, step pack#1: weigh, pack",
    ],
  },
  {
    is: "steps in another order",
    before: steps("a", "b"),
    after: patchedBy("b first", steps("b", "a"), steps("a", "b")),
    become: [
      "1 entries, created: b, a",
      "3 entries, intent a#1: a, b",
      "4 entries, step a#1: a, b",
      "5 entries, intent b#1: a, b",
      "6 entries, step b#1: a, b",
    ],
  },
  {
    is: "a step in a loop: the first ask decides for all rounds",
    before: inLoop(false),
    after: inLoop(true),
    become: [
      "1 entries, created: hello work hello work",
      "3 entries, intent work#1: work work",
      "4 entries, step work#1: work work",
      "5 entries, intent work#2: work work",
      "6 entries, step work#2: work work",
    ],
  },
  {
    is: "a step in a branch behind an answer",
    before: inBranch(false),
    after: inBranch(true),
    options: { answers: [{ ok: true }] },
    become: [
      "1 entries, created: went",
      "3 entries, awaited ask#1: went",
      "4 entries, resumed ask#1: went",
      "5 entries, intent go#1: went",
      "6 entries, step go#1: went",
    ],
  },
  {
    is: "a step in one of two branches side by side",
    before: beside(false),
    after: beside(true),
    become: [
      "1 entries, created: a b c",
      "3 entries, intent a#1: a b c",
      "4 entries, intent b#1: a b c",
      "5 entries, step a#1: a b c",
      "6 entries, step b#1: a b c",
    ],
  },
  {
    is: "a step in the branch that goes on first: the result of the other one comes after the place",
    before: beside(false, 5),
    after: beside(true, 5),
    become: [
      "1 entries, created: a b c",
      "3 entries, intent a#1: a b c",
      "4 entries, intent b#1: a b c",
      "5 entries, step b#1: a b c",
      "6 entries, step a#1: a b",
    ],
  },
  {
    is: "a step in each generation",
    before: generations(false),
    after: generations(true),
    become: [
      "1 entries, created: new 2",
      "3 entries, intent work#1: new 2",
      "4 entries, step work#1: new 2",
      "6 entries, continued: new 2",
      "7 entries, intent work#2.1: old 2",
      "8 entries, step work#2.1: old 2",
    ],
  },
  {
    is: "steps around a sub-run",
    before: parent(false),
    after: parent(true),
    options: { agents: { child } },
    become: [
      "1 entries, created: before,child,after",
      "3 entries, intent run:child#1: child,after",
      "3 entries, created of child: child,after",
      "3 entries, intent work#1 of child: child,after",
      "3 entries, step work#1 of child: child,after",
      "4 entries, intent run:child#1: child,after",
      "4 entries, ended of child: child,after",
      "5 entries, step run:child#1: child,after",
    ],
  },
  {
    is: "two asks for one patch",
    before: steps("a"),
    after: twice,
    become: ["1 entries, created: true true", "3 entries, intent a#1: false false", "4 entries, step a#1: false false"],
  },
  {
    is: "a patch that is removed",
    before: patchedBy("weigh", steps("weigh", "pack"), steps("pack")),
    after: steps("weigh", "pack"),
    become: [
      "1 entries, created: weigh, pack",
      "4 entries, intent weigh#1: weigh, pack",
      "5 entries, step weigh#1: weigh, pack",
      "6 entries, intent pack#1: weigh, pack",
      "7 entries, step pack#1: weigh, pack",
    ],
  },
];

describe("the report", () => {
  it("tells where a run was blocked, and how to mend it", async () => {
    const report = await everyUpgrade(steps("pack"), steps("weigh"));
    expect(report.ok).toBe(false);
    expect(report.problems).toEqual([
      "upgraded after 3 entries, intent pack#1: It is blocked: the new code does not match its history at position 2 (history: pack#1; code: weigh#1). Ask `context.patched` before what is new, or give the new code another version.",
      "upgraded after 4 entries, step pack#1: It is blocked: the new code does not match its history at position 2 (history: the result of pack#1; code: weigh#1). Ask `context.patched` before what is new, or give the new code another version.",
    ]);
    expect(() => report.assert()).toThrow('4 ways to run "agent", 2 went wrong');
  });

  it("has what the check of the test says of each run", async () => {
    const after = ({ output }: Run) => (output[0]?.parts[0]?.content === "a" ? "It is not upgraded." : undefined);
    const report = await everyUpgrade(steps("a"), patchedBy("b", steps("b"), steps("a")), { after, only: /created/ });
    expect(report.problems).toEqual(["left alone: It is not upgraded."]);
    expect(report.results.map(({ entries, status }) => [entries, status])).toEqual([
      [6, "completed"],
      [1, "completed"],
    ]);
  });

  it("takes the new code for the same version, and an input", async () => {
    const options = { durable: true, version: "1" } as const;
    const before = defineAgent("said", options, async (input, { step }) => {
      await step("say", done);
      return input[0]?.parts[0]?.content;
    });
    const after = defineAgent("said", { durable: true, version: "2" }, async (input, { step }) => {
      await step("say", done);
      return `2 ${input[0]?.parts[0]?.content}`;
    });
    const report = await everyUpgrade(before, after, { input: "Hello" });
    expect(report.problems).toEqual([]);
    expect(report.results.map(({ output }) => output)).toEqual(["Hello", "2 Hello", "2 Hello", "2 Hello"]);
  });
});

describe("runs of old code that go on with new code", () => {
  it.each(rows)("$is", async ({ before, after, options, become }) => {
    expect(await outcomes(before, after, options)).toEqual(become);
  });
});
