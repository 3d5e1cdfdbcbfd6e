import { AgentError, AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type { Schedules } from "cadenza/schedules";
import { schedules } from "cadenza/schedules";
import { durable } from "cadenza/store";
import { z } from "zod";
import { FakeClock } from "../harness/clock.ts";
import { persistent } from "../harness/store-proxy.ts";

const MINUTE = 60_000;
/** How long the seed moves the clock. */
const LASTS_MS = 49 * MINUTE + 50_000;

/** A made-up shop on a store, with runs of three hours that ends now. Times of its steps are those of a clock that the seed moves. */
export interface Shop {
  readonly runtime: AgentRuntime;
  readonly plans: Schedules;
  readonly clock: FakeClock;
  /** The ids of runs of note, by what they show. */
  readonly runs: Readonly<
    Record<
      | ("family" | "fork" | "refunded" | "before" | "waiting" | "failed" | "working" | "fanOut" | "forEver")
      | ("exporting" | "queued"),
      string
    >
  >;
  close(): Promise<void>;
}

/** Opens the shop. */
export async function openShop(): Promise<Shop> {
  const clock = new FakeClock();
  clock.set(Date.now() - clock.now() - LASTS_MS);
  const wait = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      clock.setTimeout(resolve, ms);
    });
  const { refund: refundAgent, before: refundBefore, others } = agentsOf(wait);
  const runtime = new AgentRuntime({
    clock,
    store: durable(persistent(new MemoryStore({ clock }))),
    stepLimits: { search: { max: 1 } },
    agents: [refundBefore, ...others],
  });
  const plans = schedules(runtime);
  // Counted from the beginning, and not from 1970 on: what has run by the end must not depend on the hour.
  const begun = clock.now();
  const every = { everyMs: 3_600_000, startAt: begun + 20 * MINUTE, agent_name: "triage", input: "the day" };
  const begin = async (agent_name: string, input: string, tenant = "acme", labels = {}): Promise<string> => {
    const run = await runtime
      .scope({ tenant, principal: { name: "Ada" } })
      .createRun({ agent_name, input, mode: "async" }, { labels });
    return run.run_id;
  };
  const refund = (order: string, tenant = "acme"): Promise<string> => begin("refund", order, tenant, { order });
  const answer = async (run_id: string, approved: boolean): Promise<void> => {
    const scope = runtime.scope({ tenant: "acme", principal: { name: "Grace" } });
    await scope.resume({ run_id, mode: "async", await_resume: { approved, note: "With our apologies." } });
  };

  await plans.put({ id: "hourly-triage", ...every, tenant: "acme" });
  await plans.put({
    id: "prices",
    agent_name: "research",
    input: "Prices.",
    everyMs: 86_400_000,
    startAt: begun + 90 * MINUTE,
  });
  const forEver = await begin("watch-prices", "", "acme");
  await clock.advance(7 * MINUTE);
  for (let n = 0; n < 2; n++) await clock.advance(8 * MINUTE);
  await begin("importer", "march.csv", "globex");
  const before = await refund("A-1001");
  await clock.advance(50_000);
  await answer(before, false);
  await clock.advance(10_000);
  runtime.register(refundAgent);
  for (let n = 0; n < 5; n++) {
    await begin("triage", `A-${980 + n}`, n % 2 === 0 ? "acme" : "globex");
    await clock.advance(2 * MINUTE);
  }
  const fanOut = await begin("research", "Which suppliers are late?", "globex");
  await clock.advance(3 * MINUTE);
  const refunded = await refund("A-1001");
  const failed = await refund("A-1006");
  await clock.advance(60_000);
  await answer(refunded, true);
  await clock.advance(20_000);
  await answer(failed, true);
  await clock.advance(MINUTE);
  await refund("A-1002");
  await clock.advance(4 * MINUTE);
  const waiting = await refund("A-1003");
  await refund("A-1004", "globex");
  await clock.advance(6 * MINUTE);
  const exporting = await begin("export", "march", "globex");
  const queued = await begin("export", "april", "acme");
  const working = await begin("research", "What do customers say of parcels?", "acme");
  await clock.advance(9_000);
  const family = await begin("campaign", "autumn");
  await clock.advance(20_000);
  const fork = await runtime.scope({ tenant: "acme" }).fork(failed, { mode: "async" });
  await clock.advance(1_000);
  return {
    runtime,
    plans,
    clock,
    runs: { family, fork: fork.run_id, refunded, before, exporting, queued, waiting, failed, working, fanOut, forEver },
    async close() {
      const closed = runtime.close({ drainMs: 0 });
      await clock.advance(60_000);
      await closed;
    },
  };
}

function agentsOf(wait: (ms: number) => Promise<void>) {
  const after = async <T>(ms: number, value: T): Promise<T> => {
    await wait(ms);
    return value;
  };
  /** How often the bank has refused the order that fails. */
  let refusals = 0;
  const triage = defineAgent("triage", { durable: true, version: "3" }, async (_input, { step, usage }) => {
    await step("classify", () => after(1_400, { topic: "late delivery", mood: "annoyed" }));
    usage.add({ input_tokens: 412, output_tokens: 38 });
    return "late delivery";
  });
  const fraud = defineAgent("fraud-check", { durable: true, version: "2" }, async (_input, { step, usage }) => {
    await Promise.all([step("earlier refunds", () => after(2_600, 1)), step("address", () => after(900, "known"))]);
    usage.add({ input_tokens: 890, output_tokens: 21 });
    await step("score", () => after(1_100, 0.04));
    return "no fraud";
  });
  const refundAs = (version: string, checksFraud: boolean) =>
    defineAgent(
      "refund",
      { durable: true, version, description: "Decides whether a customer gets money back." },
      async function* (input, { ask, run, step, usage, sleep }) {
        const order = input[0]?.parts[0]?.content ?? "";
        yield `Looking at order ${order}. `;
        await run("triage", order);
        const found = await step("find the order", () => after(420, { order, total: 40, shipped: "five hours late" }));
        const call = { type: "tool-call", toolCallId: "call-1", toolName: "rules", input: { topic: "late delivery" } };
        const finish = { type: "finish", usage: { inputTokens: 1_204, outputTokens: 96 } };
        const called = { model: { provider: "a provider", id: "large-model" }, answer: [call, finish] };
        const prompt = [{ role: "user", content: `Order ${order} was ${found.shipped}. What do our rules say?` }];
        await step("model", () => after(3_700, { ...called, prompt }));
        usage.add({ input_tokens: 1_204, output_tokens: 96 });
        await step("rules call-1", () => after(310, "Delay above four hours: the whole price."));
        if (checksFraud) await run("fraud-check", order);
        yield "Our rules allow 40 €. ";
        const { approved } = await ask("Refund 40 €?", {
          kind: "approval",
          schema: z.object({
            approved: z.boolean().describe("Whether the customer gets the money."),
            note: z.string().min(3).describe("What the customer is told."),
          }),
        });
        await sleep(4_000);
        let tries = 0;
        const bank = async (): Promise<string> => {
          tries += 1;
          await wait(1_300);
          if (order === "A-1006" && refusals < 3) refusals += 1;
          else if (order === "A-1006" || tries > 1) return "tx-5512";
          throw new TypeError("The bank does not answer.");
        };
        yield approved
          ? `Paid: ${await step("pay", bank, { retry: { attempts: 3, backoffMs: 3_000 } })}.`
          : "No refund.";
        await step("tell the customer", () => after(240, "sent"));
      },
    );
  const search = defineAgent("search", { durable: true }, async (_input, { step, usage }) => {
    await step("query", () => after(1_900, ["three pages"]), { limit: "search" });
    await step("read", () => after(2_700, "It says little."));
    usage.add({ input_tokens: 2_310, output_tokens: 140 });
    return "little";
  });
  const research = defineAgent("research", { durable: true, version: "1" }, async (_input, { run, step, usage }) => {
    const plan = await step("plan", () => after(2_200, ["carriers", "weather", "strikes", "customs"]));
    await Promise.all(plan.map((topic) => run("search", topic)));
    await step("write", () => after(5_200, "A page."));
    usage.add({ input_tokens: 8_120, output_tokens: 1_033 });
    return "Carriers are late in March.";
  });
  const watcher = defineAgent(
    "watch-prices",
    { durable: true },
    async (_input, { step, sleep, carry, continueAsNew }) => {
      await step("read prices", () => after(2_000, { copper: 9.2 }));
      await sleep(7 * MINUTE);
      return continueAsNew(Number(carry ?? 0) + 1);
    },
  );
  const importer = defineAgent("importer", { durable: true }, async (_input, { step }) => {
    await step("open", () => after(30, "march.csv"));
    await wait(800);
    throw new AgentError("bad_file", "Line 3 has no amount.");
  });
  const child = defineAgent("child", { durable: true }, (_input, { step }) => step("work", () => "done"));
  /** Has as many operations as its input says, a fiftieth of them sub-runs. */
  const long = defineAgent("long", { durable: true }, async (input, { run, step }) => {
    const all = Number(input[0]?.parts[0]?.content);
    for (let n = 1; n <= all - all / 50; n++) await step(`count ${n.toLocaleString("en")}`, () => n);
    for (let n = 0; n < all / 50; n++) await run("child", "");
  });
  const campaign = defineAgent("campaign", { durable: true, version: "4" }, async (_input, { run }) => {
    const letters = Array.from({ length: 12 }, () => run("child", ""));
    await Promise.all([
      ...letters,
      run("research", "What sells in autumn?"),
      run("refund", "A-1010"),
      run("importer", ""),
    ]);
  });
  const exporter = defineAgent("export", { durable: true, concurrency: { max: 1 } }, (_input, { step }) =>
    step("write the file", () => after(6 * 60 * MINUTE, "march.csv")),
  );
  const others = [campaign, child, long, triage, fraud, search, research, watcher, importer, exporter];
  return { refund: refundAs("7", true), before: refundAs("6", false), others };
}
