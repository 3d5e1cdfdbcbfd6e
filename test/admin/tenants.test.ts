import { MemoryStore, AgentRuntime as Runtime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { persistent } from "../harness/store-proxy.ts";

/* Runs of two tenants with the same ids, as an operator sees them. */

const [ID, CHILD] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
const TENANTS = ["acme", "blue"];
/** More parts than an admin reads of the end of a log. */
const PARTS = 120;

it("an operator sees the questions and the sub-runs of each tenant", async () => {
  const clock = new FakeClock();
  const next: string[] = [];
  const ids = { uuid: () => next.shift() ?? "33333333-3333-4333-8333-333333333333", token: () => "token" };
  const runtime = new Runtime({ store: durable(persistent(new MemoryStore({ clock }))), clock, ids });
  runtime.register("child", { durable: true }, () => "done");
  runtime.register("agent", { durable: true }, async function* (input, { run, ask }) {
    const [text = ""] = input.flatMap(({ parts }) => parts.map(({ content }) => content ?? ""));
    await run("child", "");
    for (let part = 0; part < PARTS; part++) yield ".";
    yield await ask(`${text}?`);
  });
  for (const tenant of TENANTS) {
    next.push(ID, CHILD);
    await runtime.scope({ tenant }).createRun({ agent_name: "agent", input: tenant, mode: "async" });
    await clock.settle();
  }
  const admin = createAdmin(runtime);
  const keys = TENANTS.map((tenant) => ({ tenant, run_id: ID }));
  const among = async (tenant?: string) => (await admin.runs({ among: keys, tenant })).items;
  expect(await among()).toMatchObject(keys);
  expect(await among("blue")).toMatchObject([{ tenant: "blue" }]);
  // The questions of long logs are kept.
  for (let looks = 0; looks < 2; looks++) {
    const { items } = await admin.questions();
    const texts = items.map(({ tenant, parts }) => [tenant, parts[0]?.content]);
    expect(texts.toSorted()).toEqual(TENANTS.map((tenant) => [tenant, `${tenant}?`]));
  }
  for (const key of keys) {
    const { children } = await admin.tree(key);
    expect(children).toMatchObject([{ tenant: key.tenant, run_id: CHILD }]);
  }
  await runtime.close({ drainMs: 0 });
});
