import { defineAgent } from "cadenza";
import { drive, everyInterruption, mockModel, record, replay } from "cadenza/testing";
import { describe, expect, it, vi } from "vitest";
import { poet } from "../../examples/ai-sdk.ts";
import { booking } from "../../examples/approval.ts";
import { crawler } from "../../examples/cancel.ts";
import { chat } from "../../examples/chat.ts";
import { echo } from "../../examples/echo.ts";
import { licenceAudit } from "../../examples/licence-audit/agent.ts";
import { jury } from "../../examples/orchestrator.ts";
import { dice } from "../../examples/statistics.ts";
import { withoutTimers } from "../harness/without-timers.ts";

/* In a process of its own: it replaces a module. */

// Some examples wait to seem slow.
vi.mock("node:timers/promises", () => ({ setTimeout: async () => undefined }));

describe("the example", () => {
  it(
    "echo emits its input",
    withoutTimers(async () => {
      const t = drive(echo, [{ parts: [{ content: "one" }] }, { parts: [{ content: "two" }] }]);
      expect(await t.next()).toMatchObject({ type: "message", text: "one" });
      expect(await t.next()).toMatchObject({ type: "message", text: "two" });
      expect(await t.next()).toMatchObject({ type: "end", status: "completed" });
    }),
  );

  it(
    "booking books as many seats as the answer names, and fails without an answer after a day",
    withoutTimers(async () => {
      const t = drive(booking, "Rome, Friday");
      const question = await t.until("await");
      expect(question).toMatchObject({ question: "Book it?", schema: { required: ["approved"] } });
      await expect(t.answer({ approved: "perhaps" })).rejects.toThrow("approved");
      await t.answer({ approved: true, seats: 2 });
      expect(await t.next()).toMatchObject({ text: "Booked 2 seat(s).\n" });

      const late = drive(booking, "Rome, Friday");
      await late.until("await");
      await late.clock.advance("24h");
      expect(await late.next()).toMatchObject({ status: "failed", error: { data: { reason: "await_timeout" } } });
    }),
  );

  it(
    "crawler closes its browser wherever it is cancelled",
    withoutTimers(async () => {
      const t = drive(crawler, "Go");
      while (!t.text().includes("page 3")) await t.next();
      expect(await t.cancel()).toMatchObject({ status: "cancelled" });
      expect(t.text()).toMatch(/^Opened a browser.*Read page 3\.\nClosed the browser\.\n$/s);
    }),
  );

  it(
    "chat gives its model the history, and reports its usage",
    withoutTimers(async () => {
      const history = [{ parts: [{ content: "I am Ada." }] }, { role: "agent", parts: [{ content: "Hello, Ada." }] }];
      const spy = mockModel("You are Ada.");
      const t = drive(chat(spy), "Who am I?", { session: { history } });
      expect((await t.finish()).status).toBe("completed");
      expect(spy.calls[0]?.prompt.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
      expect(t.text()).toBe("You are Ada.");
      expect(t.usage).toMatchObject({ total_tokens: 33 });
      expect((await t.session()).history).toHaveLength(4);
    }),
  );

  it(
    "poet streams word by word",
    withoutTimers(async () => {
      const t = drive(poet(mockModel("Soft it plays")), "A line, please.");
      expect(await t.next()).toMatchObject({ text: "Soft " });
      expect(await t.next()).toMatchObject({ text: "it " });
      expect((await t.finish()).status).toBe("completed");
    }),
  );

  it(
    "jury emits both opinions, and fails if one of its jurors fails",
    withoutTimers(async () => {
      const t = drive(jury, "La Mer", { agents: { critic: "Dull.", fan: "Grand!" } });
      await t.finish();
      expect(t.text()).toBe("The jury withdraws.\ncritic: Dull.\nfan: Grand!\n");

      const missing = drive(jury, "La Mer", { agents: { "*": "Fine.", fan: new Error("asleep") } });
      expect(await missing.finish()).toMatchObject({ status: "failed", error: { message: /juror is missing/ } });
    }),
  );

  it(
    "dice asks before it rolls, and has no more than six sides",
    withoutTimers(async () => {
      const t = drive(dice, "5");
      await t.until("await");
      await t.answer("yes");
      expect(await t.next()).toMatchObject({ text: "Won." });
      expect((await drive(dice, "7").finish()).error).toMatchObject({ code: "invalid_input", data: { bet: 7 } });
      (await everyInterruption(dice, "2", { answers: ["yes"] })).assert();
    }),
  );
});

describe("the licence audit", () => {
  const packages = ["MIT", "MIT", "GPL-3.0-only", "WTFPL"].map((licence, index) => ({
    path: `node_modules/p${index}`,
    name: `p${index}`,
    licence,
  }));
  const steps = { "read the lock file": packages, "inspect *": "with licence text" };
  const input = "package-lock.json";

  it(
    "asks about each licence that is not allowed, and reports",
    withoutTimers(async () => {
      const t = drive(licenceAudit, input, { steps, strict: true });
      expect(await t.until("await")).toMatchObject({
        question: expect.stringMatching(/^Allow GPL-3\.0-only\? .*\(1 package: p2\)$/),
      });
      await t.answer({ allow: false });
      expect(await t.until("await")).toMatchObject({
        question: expect.stringMatching(/^Allow WTFPL\? .*\(1 package: p3\)$/),
      });
      await t.answer({ allow: true });
      const { part } = await t.until("part");
      expect(JSON.parse(part.content ?? "")).toMatchObject({ packages: 4, findings: { "with licence text": 4 } });
    }),
  );

  it(
    "has no problem at any interruption",
    withoutTimers(async () => {
      const answers = [{ allow: false }, { allow: true }];
      const report = await everyInterruption(licenceAudit, input, { steps, answers });
      expect(report.problems).toEqual([]);
    }),
  );

  it(
    "replays its cassette, and reports the mismatch of a changed one",
    withoutTimers(async () => {
      const t = drive(licenceAudit, input, { steps });
      for (const allow of [false, true]) {
        await t.until("await");
        await t.answer({ allow });
      }
      await t.finish();
      const cassette = JSON.parse(JSON.stringify(await record(t)));
      expect((await replay(licenceAudit, cassette)).status).toBe("completed");

      const lax = defineAgent("licence-audit", async function* (given, context) {
        for await (const shown of licenceAudit.fn(given, context) as AsyncGenerator)
          yield typeof shown === "string" ? shown.replace("Looked at", "Seen") : shown;
      });
      await expect(replay(lax, cassette)).rejects.toThrow(/Entry 4 of 10.*- +"content": "Looked at 4 of 4\.\\n"/s);
    }),
  );
});
