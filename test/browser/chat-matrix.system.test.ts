import type { Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { oneOf } from "../harness/share.ts";
import { openBrowser, until } from "./browser.ts";
import { chatRows, chatTransports, chatVersions, expectedOf } from "./chat-rows.ts";
import { ChatServer } from "./chat-server.ts";

const browser = await openBrowser();
const server = new ChatServer();

beforeAll(async () => {
  if (browser !== undefined) await server.listen();
}, 180_000);

afterAll(async () => {
  await browser?.close();
  await server.close();
});

describe.skipIf(browser === undefined).each(chatVersions)("useChat of %s", (version) => {
  let page: Page;
  beforeAll(async () => {
    if (browser === undefined) return;
    page = await browser.newPage();
    await page.goto(server.addressOf(version));
    await until(page, "window.doRow !== undefined");
  }, 180_000);
  afterAll(() => page?.close());

  describe.each(chatTransports)("%s", (transport) => {
    it.concurrent.each(oneOf(3, [...chatRows.entries()]).map(([index, row]) => [row.name, row, index] as const))(
      "%s",
      async (_, row, index) => {
        const outcome = await page.evaluate(`doRow(${index}, "${version}", "${transport}")`);
        expect(outcome).toBe(expectedOf(row, transport, version));
      },
    );
  });
});
