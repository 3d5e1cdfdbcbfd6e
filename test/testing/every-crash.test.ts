import type { AgentFunction } from "cadenza";
import { defineAgent } from "cadenza";
import type { CrashOptions } from "cadenza/testing";
import { everyCrash, matchers } from "cadenza/testing";
import { afterEach, describe, expect, it, vi } from "vitest";
import * as z from "zod";
import { nextTurn } from "../harness/promises.ts";

expect.extend(matchers);

/* What `everyCrash` does to an agent, what it compares, and what it reports. */

let done: string[] = [];
const options: CrashOptions = {
  before: () => {
    done = [];
  },
  world: () => done,
};

describe("an agent is crashed", () => {
  it("before, in and after each step, around each question and answer, and before its end", async () => {
    const agent: AgentFunction = async function* (_input, { ask, step }) {
      yield "Hello. ";
      await step("look", async ({ emit }) => {
        await emit("Looking. ");
        await nextTurn();
        await emit("Still looking. ");
      });
      const { ok } = await ask("Go on?", { schema: z.object({ ok: z.boolean() }) });
      yield `${ok}`;
    };
    const report = await everyCrash(agent, "x", { ...options, answers: [{ ok: true }] });
    expect(report.results.map(({ kind, where }) => `${kind}: ${where}`)).toEqual([
      "none: left alone",
      "crash: crashed before it began",
      "crash: crashed before step look#1",
      "crash: crashed in step look#1, when it had emitted something",
      "crash: crashed in step look#1, when its work was done and its result was not stored",
      "crash: crashed after step look#1",
      'crash: crashed while it waited for the answer to ask#1 "Go on?"',
      "crash: crashed when ask#1 was answered, before the answer was stored",
      "crash: crashed after the answer to ask#1 was stored",
      "crash: crashed before its end was stored",
      "lost reply: step look#1 failed when its work was done",
      "replay: replayed after every commit",
    ]);
    expect(report.problems).toEqual([]);
    expect(String(report)).toBe(
      '12 ways to run "agent", all well: 1 × left alone, 9 × crash, 1 × lost reply, 1 × replay.',
    );
    expect(report).toSurviveInterruptions();
  });

  it("at each attempt of a step, and in its sub-agents", async () => {
    const child = defineAgent("child", async (_input, { step }) => {
      let tries = 0;
      const work = (): string => {
        tries += 1;
        if (tries === 1) throw new Error("busy");
        return "worked";
      };
      return step("work", work, { retry: { attempts: 2, backoffMs: 60_000 } });
    });
    const report = await everyCrash(async (_input, { run }) => (await run("child", "x")).status, "x", {
      ...options,
      agents: { child },
    });
    expect(report.problems).toEqual([]);
    const where = report.results.map((result) => result.where);
    expect(where).toEqual(
      expect.arrayContaining([
        "crashed before run:child#1",
        "crashed before step work#1, of child",
        "crashed before step work#1, attempt 2, of child",
        "crashed before its end was stored, of child",
        "crashed in run:child#1, when its work was done and its result was not stored",
        "step work#1 of child failed when its work was done",
      ]),
    );
  });

  it("with the given session, principal, time and stand-ins", async () => {
    const seen = new Set<string>();
    const agent: AgentFunction = async (_input, { session, principal, labels, step, now }) => {
      const state = await session.getState();
      seen.add(JSON.stringify([state, principal, labels, (await session.history()).length, now()]));
      return step("fetch", () => "for real");
    };
    const report = await everyCrash(agent, "x", {
      now: "2030-01-01",
      principal: "Ada",
      labels: { order: "O-17" },
      session: { history: "Hello", state: 7 },
      steps: { fetch: "as the test has it" },
      strict: true,
      after: ({ status, output }) =>
        status === "failed" || output[0]?.parts[0]?.content === "as the test has it" ? undefined : "Something else.",
    });
    expect(report.problems).toEqual([]);
    expect(seen).toEqual(new Set([JSON.stringify([7, "Ada", { order: "O-17" }, 1, Date.UTC(2030, 0, 1)])]));
  });
});

describe("everyCrash reports a difference", () => {
  it("of the world outside", async () => {
    const agent: AgentFunction = async (_input, { step }) => {
      await step("charge", () => done.push("30 €"));
    };
    const report = await everyCrash(agent, "x", { ...options, world: () => ({ charges: done, mails: [] }) });
    expect(String(report)).toBe(
      [
        '8 ways to run "agent", 1 went wrong:',
        "",
        "  ✗ crashed in step charge#1, when its work was done and its result was not stored",
        "      The world outside is not what it is without the crash: - left alone, + here",
        "        {",
        "          charges: [",
        "            '30 €'",
        "      +     '30 €'",
        "          ]",
        "          mails: []",
        "        }",
        "",
        'To run the first one alone, add to the options: only: "crashed in step charge#1, when its work was done and its result was not stored"',
        "",
      ].join("\n"),
    );
    expect(() => expect(report).toSurviveInterruptions()).toThrow("1 went wrong");
  });

  it("of the output", async () => {
    let runs = 0;
    const agent: AgentFunction = async function* (_input, { step }) {
      runs += 1;
      const run = runs;
      await step("look", () => 1);
      yield `Run ${run}.`;
    };
    const report = await everyCrash(agent, "x", { before: () => (runs = 0) });
    expect(report.problems).toContain(
      "crashed after step look#1: Its output is not what it is without the crash: - left alone, + here\n- Run 1.\n+ Run 2.",
    );
  });

  it("of the run's end", async () => {
    let runs = 0;
    const agent: AgentFunction = async function* (_input, { step }) {
      runs += 1;
      const connection = runs;
      await step("look", () => 1);
      if (connection > 1) throw new Error("There is no such connection.");
      yield "Looked.";
    };
    const report = await everyCrash(agent, "x", { before: () => (runs = 0) });
    expect(report.problems).toContain(
      "crashed after step look#1: It ended as failed (There is no such connection.), and ends as completed when it is left alone.",
    );
  });

  it("of an agent that does not end", async () => {
    const hangs: AgentFunction = async (_input, { step }) => {
      await step("look", () => new Promise(() => {}));
    };
    const report = await everyCrash(hangs, "x", { patienceMs: 20 });
    expect(report.problems).toEqual([
      "left alone: It does not come to an end: it is in-progress, and waits for look#1.",
    ]);
    const talks: AgentFunction = async function* () {
      for (;;) yield "and another thing";
    };
    const works: AgentFunction = async (_input, { step }) => {
      for (;;) await step("look", () => 1);
    };
    const asks: AgentFunction = async (_input, { ask }) => {
      for (;;) await ask("Go on?");
    };
    for (const agent of [talks, works, asks]) {
      const endless = await everyCrash(agent, "x", { answers: () => "yes" });
      expect(endless.problems).toEqual(["left alone: It does not come to an end. It has done 1000 things."]);
    }
    let runs = 0;
    const waits: AgentFunction = async (_input, { step }) => {
      runs += 1;
      if (runs > 1) await new Promise(() => {});
      await step("look", () => 1);
    };
    const other = await everyCrash(waits, "x", { patienceMs: 20, before: () => (runs = 0) });
    expect(other.problems).toContainEqual(
      expect.stringMatching(
        /^crashed after step look#1: It is blocked: .* \(history: the result of look#1; code: nothing\)/,
      ),
    );
  });

  it("by the test's own check, in each way", async () => {
    const endings: string[] = [];
    const report = await everyCrash(async (_input, { step }) => void (await step("look", () => 1)), "x", {
      after: ({ status }) => {
        endings.push(status);
        return status === "failed" ? "It failed." : undefined;
      },
      ignore: [/before it began/],
    });
    expect(endings).toHaveLength(report.results.length);
    expect(report.problems).toEqual(["step look#1 failed when its work was done: It failed."]);
  });
});

describe("no problem is reported for", () => {
  it("another order of the effects in the world", async () => {
    const agent: AgentFunction = async (_input, { step }) => {
      await Promise.all(["a", "b", "c"].map((name) => step(name, () => done.push(name))));
    };
    const report = await everyCrash(agent, "x", {
      ...options,
      world: () => ({ set: new Set(done), map: new Map(done.map((name) => [name, { at: new Date(0) }])), none: null }),
    });
    expect(report.problems).toEqual([]);
  });

  it("an agent whose step runs at most once, and that takes another branch when the step was interrupted", async () => {
    const agent: AgentFunction = async (_input, { ask, step }) => {
      try {
        await step("transfer", () => done.push("30 €"), { once: true });
      } catch {
        await ask("The transfer may or may not have been made. Was it?");
        return "Asked.";
      }
      return "Transferred.";
    };
    expect((await everyCrash(agent, "x", options)).problems).toEqual([]);
    expect((await everyCrash(agent, "x", { ...options, answers: ["yes"] })).problems).toEqual([]);
  });

  it("an agent that compensates for a possible effect", async () => {
    const agent: AgentFunction = async (_input, { step }) => {
      try {
        await step("charge", () => done.push("30 €"));
      } catch {
        await step("refund", () => done.push("-30 €"), { retry: { attempts: 2 } });
        return "Not paid.";
      }
      return "Paid.";
    };
    const report = await everyCrash(agent, "x", { ...options, ignore: ["crashed in step charge#1"] });
    expect(report.problems).toEqual([]);
    expect(report.results.flatMap(({ ignored }) => ignored)).toHaveLength(1);
  });
});

it("a step that runs at most once and that the agent repeats itself is found", async () => {
  const agent: AgentFunction = async (_input, { step }) => {
    try {
      await step("transfer", () => done.push("30 €"), { once: true });
    } catch {
      await step("transfer again", () => done.push("30 €"));
    }
    return "Transferred.";
  };
  const report = await everyCrash(agent, "x", options);
  expect(report.problems).toContainEqual(expect.stringMatching(/^crashed in step transfer#1, .*: The world outside/));
});

it("the effects of a parallel step after the crash are in the world too", async () => {
  const agent: AgentFunction = async (_input, { step }) => {
    await Promise.all([
      step("quick", () => 1),
      step("slow", async () => {
        for (let turn = 0; turn < 30; turn++) await nextTurn();
        done.push("slow");
      }),
    ]);
  };
  const report = await everyCrash(agent, "x", options);
  expect(report.problems).toContainEqual(expect.stringMatching(/^crashed after step quick#1: The world outside/));
});

describe("Math.random()", () => {
  const agent: AgentFunction = async (_input, { step }) => {
    const number = Math.random();
    await step("look", () => done.push(`${number}`));
  };

  afterEach(() => vi.restoreAllMocks());

  it("is restored afterwards, and unchanged meanwhile for other code", async () => {
    const before = Math.random;
    const drawn: string[] = [];
    const record: AgentFunction = async (_input, { step }) => {
      drawn.push(`${Math.random()}`);
      await step("look", () => 1);
    };
    await Promise.all([everyCrash(record, "x"), everyCrash(record, "x")]);
    expect(Math.random).toBe(before);
    // Each tool gives two sequences of numbers: one, and its mirror image.
    expect(new Set(drawn).size).toBe(4);
  });

  it("is not replaced if a test has replaced it", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0.25);
    const report = await everyCrash(agent, "x", { ...options, world: () => new Set(done) });
    expect(report.problems).toEqual([]);
    expect(done).toContain("0.25");
  });
});

it("a question without an answer is an error of the test, as is an answer that does not match", async () => {
  const agent: AgentFunction = async (_input, { ask }) => {
    await ask("Sure?", { schema: z.object({ ok: z.boolean() }) });
  };
  await expect(everyCrash(agent, "x")).rejects.toThrow(
    'everyCrash: the agent asks ask#1 "Sure?", question 1, and there are 0 answers. Add one: { answers: [ … ] }.',
  );
  await expect(everyCrash(agent, "x", { answers: ["perhaps"] })).rejects.toMatchObject({ code: "answer_rejected" });
  await expect(everyCrash(async (_input, { run }) => void (await run("unknown", "x")), "x")).rejects.toThrow(
    "which the test does not know",
  );
});

it.each([
  ["world", "a list"],
  ["before", 7],
  ["answers", "yes"],
  ["steps", 7],
  ["patience", 7],
])("an invalid options.%s is refused", async (name, bad) => {
  await expect(everyCrash(() => "x", "x", { [name]: bad })).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining(name),
  });
});
