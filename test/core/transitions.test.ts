import { describe, expect, it } from "vitest";
import type { Command } from "../../src/core/commands.ts";
import { decide, isRefusal } from "../../src/core/decide.ts";
import { evolve } from "../../src/core/evolve.ts";
import type { CommandType } from "../../src/core/transitions.ts";
import type { RunStatus } from "../../src/protocol/run.ts";
import { attemptFailed, created, fold, logs, offered, part, question, received, settled, T0 } from "../harness/logs.ts";

const AT = T0 + 100;

const again = { run_id: "run-2", event: 5, role: "agent/child", step: { key: "step#1", attempt: 2 } } as const;

/** One command of each type, aimed at the open question of the awaiting run. */
const commands: Readonly<Record<CommandType | "create", Command>> = {
  create: { type: "create", entry: created({ agent_name: "another" }) },
  fork: { type: "fork", entry: { type: "forked", at: AT } },
  start: { type: "start", at: AT },
  emit: { type: "emit", at: AT, item: { kind: "part", part: part("text") } },
  tear: { type: "tear", entry: { type: "torn", at: AT, source: again } },
  intend: { type: "intend", entry: { type: "intent", at: AT, key: "step#1", attempt: 1, run_id: null } },
  retry: { type: "retry", entry: attemptFailed("step#1", AT) },
  record: { type: "record", entry: { type: "step", at: AT, key: "step#1", result: 1, error: null, usage: null } },
  ask: { type: "ask", at: AT, ...question("ask#2"), emitted: 0 },
  reply: { type: "reply", at: AT, await_id: null, reply: { answer: { yes: true } }, idempotency_key: null },
  settle: { type: "settle", entry: settled("run:a#1/ask#1", null, AT) },
  offer: { type: "offer", entry: offered("offer-1", "ask#1", AT) },
  refuse: { type: "refuse", entry: { type: "refused", at: AT, offer_id: "offer-1", code: "answer_rejected" } },
  receive: { type: "receive", entry: received("payment", 1, "key-1", AT) },
  take: { type: "take", entry: { type: "taken", at: AT, key: "receive:payment#1", position: null } },
  patch: { type: "patch", entry: { type: "patched", at: AT, id: "a patch" } },
  move: { type: "move", entry: { type: "moved", at: AT, version: "2" } },
  withdraw: { type: "withdraw", at: AT, await_id: "ask#1" },
  expire: { type: "expire", at: AT, await_id: "ask#1", defaulted: true },
  overrun: { type: "overrun", at: AT },
  exceed: { type: "exceed", at: AT, usage: null },
  cancel: { type: "cancel", at: AT },
  continue: { type: "continue", at: AT, carry: undefined, usage: null },
  end: { type: "end", at: AT, failure: null, usage: null },
};

const statuses = ["created", "in-progress", "awaiting", "cancelling", "completed", "failed", "cancelled"] as const;

/*
 * What each command leads to in each status: the entries it makes and the new status, `-` where nothing happens, or
 * the code of the refusal after `!`. The table follows the description of a run's life, not the code.
 */
const expected: Readonly<Record<keyof typeof commands, readonly string[]>> = {
  create: ["-", "-", "-", "-", "-", "-", "-"],
  fork: ["forked > created", "forked > in-progress", "-", "-", "-", "-", "-"],
  start: ["started > in-progress", "-", "-", "-", "-", "-", "-"],
  emit: ["-", "emitted > in-progress", "emitted > awaiting", "emitted > cancelling", "-", "-", "-"],
  // No run of the table shows a sub-run.
  tear: ["-", "-", "-", "-", "-", "-", "-"],
  intend: ["-", "intent > in-progress", "intent > awaiting", "-", "-", "-", "-"],
  retry: ["-", "attempt-failed > in-progress", "attempt-failed > awaiting", "-", "-", "-", "-"],
  record: ["-", "step > in-progress", "step > awaiting", "step > cancelling", "-", "-", "-"],
  ask: ["-", "awaited > awaiting", "awaited > awaiting", "-", "-", "-", "-"],
  reply: [
    "!not_awaiting",
    "!not_awaiting",
    "resumed > in-progress",
    "!run_cancelling",
    "!not_awaiting",
    "!not_awaiting",
    "!not_awaiting",
  ],
  settle: ["-", "settled > in-progress", "settled > awaiting", "-", "-", "-", "-"],
  offer: ["-", "-", "offered > awaiting", "-", "-", "-", "-"],
  refuse: ["-", "refused > in-progress", "refused > awaiting", "-", "-", "-", "-"],
  receive: [
    "received > created",
    "received > in-progress",
    "received > awaiting",
    "!run_cancelling",
    "!run_finished",
    "!run_finished",
    "!run_finished",
  ],
  take: ["-", "taken > in-progress", "taken > awaiting", "-", "-", "-", "-"],
  patch: ["-", "patched > in-progress", "patched > awaiting", "patched > cancelling", "-", "-", "-"],
  move: ["moved > created", "moved > in-progress", "moved > awaiting", "-", "-", "-", "-"],
  withdraw: ["-", "-", "withdrawn > in-progress", "-", "-", "-", "-"],
  expire: ["-", "-", "timed-out > in-progress", "-", "-", "-", "-"],
  overrun: ["-", "timed-out > in-progress", "timed-out > in-progress", "-", "-", "-", "-"],
  exceed: ["-", "exceeded > in-progress", "exceeded > in-progress", "exceeded > cancelling", "-", "-", "-"],
  cancel: [
    "cancel-requested > cancelling",
    "cancel-requested > cancelling",
    "cancel-requested > cancelling",
    "-",
    "!run_finished",
    "!run_finished",
    "-",
  ],
  continue: ["-", "continued > in-progress", "continued > in-progress", "-", "-", "-", "-"],
  end: ["ended > completed", "ended > completed", "ended > completed", "ended > cancelled", "-", "-", "-"],
};

const rows = Object.entries(expected).flatMap(([name, cells]) =>
  cells.map((outcome, index): [keyof typeof commands, RunStatus, string] => [
    name as keyof typeof commands,
    statuses[index] ?? "created",
    outcome,
  ]),
);

describe("the table of all commands in all statuses", () => {
  it("has a row for each pair", () => {
    expect(rows).toHaveLength(24 * 7);
  });

  it.each(rows)("%s when %s gives %s", (name, status, outcome) => {
    const state = fold(...logs[status]);
    const before = structuredClone(state);
    const decision = decide(state, commands[name]);

    expect(state).toStrictEqual(before);
    if (isRefusal(decision)) {
      expect(`!${decision.refused}`).toBe(outcome);
      return;
    }
    if (decision.length === 0) {
      expect("-").toBe(outcome);
      return;
    }
    for (const entry of decision) evolve(state, entry);
    expect(`${decision.map(({ type }) => type).join(" ")} > ${state.status}`).toBe(outcome);
  });

  it.each(statuses)(
    "a run that is %s fails when it ends with an error, unless it is cancelling or has ended",
    (status) => {
      const state = fold(...logs[status]);
      const failure = { code: "server_error", message: "It broke." } as const;
      const decision = decide(state, { type: "end", at: AT, failure, usage: null });

      for (const entry of isRefusal(decision) ? [] : decision) evolve(state, entry);
      const stays = ["completed", "failed", "cancelled"].includes(status);
      expect(state.status).toBe(stays ? status : status === "cancelling" ? "cancelled" : "failed");
      expect(state.ended?.error?.message ?? null).toBe(state.status === "failed" ? "It broke." : null);
    },
  );

  it("the first command creates the run", () => {
    expect(decide(fold(), { type: "create", entry: created() })).toEqual([created()]);
  });
});
