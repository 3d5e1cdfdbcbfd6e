import type { ChildProcess } from "node:child_process";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, describe, expect, inject, it } from "vitest";
import { appears, openBrowser, until } from "./browser.ts";

const browser = await openBrowser();
let inspector: ChildProcess | undefined;

afterAll(async () => {
  await browser?.close();
  inspector?.kill("SIGINT");
  if (inspector?.exitCode === null) await once(inspector, "exit");
});

describe.skipIf(browser === undefined)("a newcomer", () => {
  it("sees why the demo asked about each licence, in at most three clicks", {
    timeout: 60_000,
  }, async () => {
    // The demo keeps its runs in its own folder, which is not the working copy.
    const cwd = inject("projectFolder");
    const said = execFileSync(process.execPath, ["examples/licence-audit/main.js", "--yes"], { cwd, encoding: "utf8" });
    const [, run_id = ""] = /To see what run (\S+) did: npm run demo -- inspect/.exec(said) ?? [];
    const asked = [...said.matchAll(/The run is awaiting \(\S+\): (Allow .*?\?)/g)].map(([, question]) => question);
    expect(asked.length).toBeGreaterThan(2);

    inspector = spawn(
      process.execPath,
      ["--import", "tsx", "src/cli/main.ts", "inspect", join(cwd, ".cadenza/demo.db")],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    let address: string | undefined;
    for await (const line of createInterface({ input: inspector.stdout as NonNullable<ChildProcess["stdout"]> })) {
      address = /http:\S+/.exec(line)?.[0];
      if (address !== undefined) break;
    }
    const page = await browser?.newPage();
    if (page === undefined || address === undefined) throw new Error("There is no page.");
    await page.goto(address);
    let clicks = 0;
    const follow = async (link: string): Promise<void> => {
      clicks += 1;
      await appears(page, link);
      await page.click(link);
    };
    await follow(`a[href="#/run//${run_id}"]`);
    // The picture of a run comes first. In words it is behind the last of these buttons, and a long one comes in pieces.
    await follow("main fieldset.choices button:last-child");
    const shows = (text = ""): string => `document.querySelector("main").innerText.includes(${JSON.stringify(text)})`;
    await until(page, `document.querySelector("ol.timeline") !== null && ${shows(asked.at(-1))}`);
    // `innerText` has only what can be seen.
    const shown = (await page.evaluate(`document.querySelector("main").innerText.replace(/\\s+/g, " ")`)) as string;
    for (const question of asked) expect(shown).toContain(question);
    const reasons = /is not on the list of allowed licences|does not name/g;
    expect(shown.match(reasons)?.length).toBe(asked.length);
    expect(clicks).toBeLessThanOrEqual(3);
  });
});
