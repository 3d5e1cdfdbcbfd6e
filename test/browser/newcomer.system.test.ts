import type { ChildProcess } from "node:child_process";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Page } from "puppeteer-core";
import { afterAll, describe, expect, inject, it } from "vitest";
import { runMain } from "../examples/run-main.ts";
import { appears, openBrowser, until } from "./browser.ts";

const browser = await openBrowser();
let inspector: ChildProcess | undefined;

afterAll(async () => {
  await browser?.close();
  inspector?.kill("SIGINT");
  if (inspector?.exitCode === null) await once(inspector, "exit");
});

/** Opens the inspector on the runs that the demo and the audit keep in a folder. */
async function inspected(cwd: string): Promise<Page> {
  const file = join(cwd, ".cadenza/demo.db");
  inspector = spawn(process.execPath, ["--import", "tsx", "src/cli/main.ts", "inspect", file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let address: string | undefined;
  for await (const line of createInterface({ input: inspector.stdout as NonNullable<ChildProcess["stdout"]> })) {
    address = /http:\S+/.exec(line)?.[0];
    if (address !== undefined) break;
  }
  const page = await browser?.newPage();
  if (page === undefined || address === undefined) throw new Error("There is no page.");
  await page.goto(address);
  return page;
}

describe.skipIf(browser === undefined)("a newcomer", () => {
  it("sees why the licence audit asked about each licence, and what the demo did, in at most three clicks", {
    timeout: 180_000,
  }, async () => {
    // Both keep their runs in the folder in which they are started, which is not the working copy.
    const cwd = inject("projectFolder");
    const said = execFileSync(process.execPath, ["examples/licence-audit/main.js", "--yes"], { cwd, encoding: "utf8" });
    const [, run_id = ""] = /To see what run (\S+) did:/.exec(said) ?? [];
    const asked = [...said.matchAll(/The run is awaiting \(\S+\): (Allow .*?\?)/g)].map(([, question]) => question);
    expect(asked.length).toBeGreaterThan(2);
    const demo = await runMain("demo/main.ts", [], undefined, cwd);
    const [, killed = ""] = /begins +run (\S+)/.exec(demo.stdout) ?? [];

    const page = await inspected(cwd);
    const listed = page.url();
    let clicks = 0;
    const follow = async (link: string): Promise<void> => {
      clicks += 1;
      await appears(page, link);
      await page.click(link);
    };
    const shows = (text = ""): string => `document.querySelector("main").innerText.includes(${JSON.stringify(text)})`;
    // The picture of a run comes first. In words it is behind the last of these buttons, and a long one comes in pieces.
    const inWords = "main fieldset.choices button:last-child";
    await follow(`a[href="#/run//${run_id}"]`);
    await follow(inWords);
    await until(page, `document.querySelector("ol.timeline") !== null && ${shows(asked.at(-1))}`);
    // `innerText` has only what can be seen.
    const shown = (await page.evaluate(`document.querySelector("main").innerText.replace(/\\s+/g, " ")`)) as string;
    for (const question of asked) expect(shown).toContain(question);
    const reasons = /is not on the list of allowed licences|does not name/g;
    expect(shown.match(reasons)?.length).toBe(asked.length);
    expect(clicks).toBeLessThanOrEqual(3);

    await page.goto(listed);
    await follow(`a[href="#/run//${killed}"]`);
    for (const text of ["completed", "find the order", "Refund 40 €?", "refund 40 €"]) await until(page, shows(text));
  });
});
