import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterAll, describe, expect, inject, it } from "vitest";
import { openBrowser, until } from "../browser/browser.ts";
import { javascriptOf, write } from "../harness/project.ts";
import { readPage } from "./pages.ts";
import { snippetsOf } from "./snippets.ts";

const browser = await openBrowser();

afterAll(async () => {
  await browser?.close();
});

describe.skipIf(browser === undefined)("the page of the tutorial", () => {
  it("shows what the agent says, and answers its question", async () => {
    const cwd = inject("projectFolder");
    const programs = snippetsOf(readPage("docs/tutorial/getting-started.md"));
    const serving = programs.find(({ blocks }) => blocks.some(({ code }) => code.includes("server.listen(3000")));
    const code = serving?.blocks.map((block) => block.code).join("\n") ?? "";
    const listening = "listen(0, '127.0.0.1', () => console.log(server.address().port))";
    write(cwd, "pages/tutorial-page.js", javascriptOf(code.replace(/listen\(3000.*\)/, listening)));

    const server = spawn(process.execPath, ["pages/tutorial-page.js"], { cwd, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [port] = await once(createInterface({ input: server.stdout }), "line");
      const page = await browser?.newPage();
      await page?.goto(`http://127.0.0.1:${port}`);
      if (page === undefined) throw new Error("There is no page.");
      await page.click("form button");
      await until(page, `document.querySelectorAll("#question button").length === 2`);
      expect(await page.evaluate("document.body.innerText")).toContain("Looking for a seat, Berlin to Paris…");
      await page.click("#question button");
      await until(page, `document.querySelector("#text").textContent.includes("Booked.")`);
    } finally {
      server.kill();
      await once(server, "exit");
    }
  });
});
