import { expect, it } from "vitest";
import { answerInWorld, answerKinds, sumOf } from "../../harness/world/deadline-answers.ts";

/* `npm run test:answers` tries 1,000 of each kind, here and with the machine's clock. */

const COUNT = 60;

it.each(answerKinds)(
  "an answer $answer to a sub-run at its deadline is taken and reaches the agent, or is refused (durable: $durable)",
  async (kind) => {
    const verdicts = sumOf(await Promise.all(Array.from({ length: COUNT }, (_, seed) => answerInWorld(kind, seed))));
    expect(verdicts.wrong).toEqual([]);
    // Some of the answers come in time, and some come too late.
    const inTime = kind.answer === "that does not match" ? "answer_rejected" : "taken";
    expect(verdicts.outcomes[inTime]).toBeGreaterThan(COUNT / 10);
    expect(verdicts.outcomes["not_awaiting"]).toBeGreaterThan(COUNT / 10);
  },
);
