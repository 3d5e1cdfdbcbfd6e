import assert from "node:assert/strict";
import { it } from "node:test";
import { drive, everyInterruption, mockModel } from "cadenza/testing";
import { agents, deskAgent } from "../src/agents.ts";

it("the desk asks before it pays", async () => {
  const [desk] = agents;
  const t = drive(desk, "I want my money back.");
  const asked = await t.until("await");
  assert.equal(asked.question, "Refund 40 €?");
  await t.answer({ approved: true });
  assert.equal((await t.finish()).status, "completed");
  assert.match(t.text(), /The 40 € are on their way\./);
});

it("the desk pays nothing that a person refuses", async () => {
  const model = mockModel([[{ tool: "refund", input: { euros: 40 } }], "Then not."]);
  const t = drive(deskAgent(model), "I want my money back.");
  await t.until("await");
  await t.answer({ approved: false });
  await t.finish();
  assert.equal(t.text().trim(), "Then not.");
  assert.equal(model.calls[1]?.results[0]?.output.type, "execution-denied");
});

it("the desk survives every interruption", async () => {
  const model = mockModel(({ results }) => (results.length > 0 ? "Paid." : { tool: "refund", input: { euros: 40 } }));
  const report = await everyInterruption(deskAgent(model), "Pay.", { answers: [{ approved: true }] });
  report.assert();
});
