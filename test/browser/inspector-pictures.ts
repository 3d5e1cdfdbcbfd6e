import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { AgentError, AgentRuntime, defineAgent } from "cadenza";
import { createInspectorNodeListener } from "cadenza/inspector";
import { SqliteStore } from "cadenza/sqlite";
import { durable } from "cadenza/store";
import Database from "libsql";
import { z } from "zod";
import { openBrowser } from "./browser.ts";

const FOLDER = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));
const TOKEN = "the-token-of-the-pictures";

const triage = defineAgent("triage", { durable: true, version: "3" }, async (_input, { step, usage }) => {
  usage.add({ input_tokens: 412, output_tokens: 38 });
  await step("classify", () => ({ topic: "late delivery", mood: "annoyed" }));
  return "late delivery";
});

const refund = defineAgent(
  "refund",
  { durable: true, version: "7", description: "Decides whether a customer gets money back." },
  async function* (input, { ask, run, step, usage }) {
    const order = input[0]?.parts[0]?.content ?? "";
    yield `Looking at order ${order}. `;
    await run("triage", order);
    const found = await step("find the order", () => ({ order, total: 40, shipped: "five hours late" }));
    const answer = [{ type: "tool-call", toolCallId: "call-1", toolName: "rules", input: { topic: "late delivery" } }];
    const prompt = [{ role: "user", content: `Order ${order} was ${found.shipped}. What do our rules say?` }];
    await step("model", () => ({ model: "a-model", prompt, answer }));
    await step("rules call-1", () => "Delay above four hours: the whole price.");
    usage.add({ input_tokens: 1_204, output_tokens: 96 });
    yield "Our rules allow 40 €. ";
    const { approved } = await ask("Refund 40 €?", {
      kind: "approval",
      schema: z.object({
        approved: z.boolean().describe("Whether the customer gets the money."),
        note: z.string().min(3).describe("What the customer is told."),
      }),
    });
    let tries = 0;
    const bank = (): string => {
      tries += 1;
      if (order === "A-1006" || tries === 1) throw new TypeError("The bank does not answer.");
      return "tx-5512";
    };
    yield approved ? `Paid: ${await step("pay", bank, { retry: { attempts: 2 } })}.` : "No refund.";
  },
);

const report = defineAgent("nightly-report", { durable: true }, async (_input, { sleep }) => {
  await sleep("8h");
});
const watcher = defineAgent("watcher", { durable: true }, async (_input, { receive, step }) => {
  await step("subscribe", () => "ok");
  await receive("price");
});
const importer = defineAgent("importer", { durable: true }, () =>
  Promise.reject(new AgentError("bad_file", "Line 3 has no amount.")),
);

/** Makes the pictures of the inspector in docs/pictures, from the real page with runs of made-up agents. */
export async function takeInspector(onTaken: (path: string) => void): Promise<void> {
  const browser = await openBrowser();
  if (browser === undefined) throw new Error("There is no browser.");
  const store = durable(new SqliteStore(new Database(":memory:"), { closeDatabase: true }));
  const runtime = new AgentRuntime({ store, agents: [refund, triage, report, watcher, importer] });
  const server = createServer(createInspectorNodeListener(runtime, { token: TOKEN })).listen(0, "127.0.0.1");
  await once(server, "listening");
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const begin = (agent_name: string, input: string, tenant = "", labels = {}) =>
    runtime.scope({ tenant }).createRun({ agent_name, input, mode: "async" }, { labels });
  await begin("importer", "march.csv", "globex");
  for (let n = 0; n < 6; n++) await begin("triage", `A-${980 + n}`, n % 2 === 0 ? "acme" : "globex");
  await begin("nightly-report", "", "acme");
  await begin("watcher", "", "acme", { article: "42" });
  const runs = new Map<string, string>();
  for (let n = 1001; n <= 1007; n++) {
    const run = await begin("refund", `A-${n}`, "acme", { order: `A-${n}` });
    runs.set(`A-${n}`, run.run_id);
  }
  const acme = runtime.scope({ tenant: "acme" });
  for (const order of ["A-1001", "A-1006"]) {
    const run_id = runs.get(order) ?? "";
    for await (const event of acme.events(run_id)) if (event.type === "run.awaiting") break;
    await acme.resume({ run_id, await_resume: { approved: true, note: "With our apologies." } });
  }

  const page = await browser.newPage();
  await page.setViewport({ width: 960, height: 640 });
  await page.goto(`${origin}/?token=${TOKEN}#/runs`);
  mkdirSync(FOLDER, { recursive: true });

  /** Takes a picture of a view as soon as it shows a text. */
  const take = async (name: string, hash: string, text: string, theme: "light" | "dark" = "light"): Promise<void> => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await page.waitForFunction(`document.querySelector("main").innerText.includes(${JSON.stringify(text)})`);
    await page.screenshot({ path: `${FOLDER}${name}.png`, optimizeForSpeed: false });
    onTaken(`docs/pictures/${name}.png`);
  };

  await take("runs", "#/runs", "A-1001");
  await take("run", `#/run/acme/${runs.get("A-1001")}`, "tx-5512");
  await take("run-dark", `#/run/acme/${runs.get("A-1006")}`, "Where it was thrown", "dark");
  await take("questions", "#/questions", "Refund 40 €?");

  await browser.close();
  server.closeAllConnections();
  server.close();
  await runtime.close({ drainMs: 0 });
}
