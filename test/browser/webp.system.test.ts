import { once } from "node:events";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser } from "./browser.ts";
import { animatedWebp } from "./webp.ts";

const PICTURES = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));
/** GitHub shows larger ones late, and each installation has them. */
const MOST_BYTES = 1_500_000;

const browser = await openBrowser();
// Pages of a server may decode images, and empty ones may not.
const server = createServer((_, response) => response.end("<p>"));
let page: Page;

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  page = await (browser as Browser).newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await page.setViewport({ width: 40, height: 30 });
});

afterAll(async () => {
  await browser?.close();
  server.closeAllConnections();
  server.close();
});

describe.skipIf(browser === undefined)("a moving picture", () => {
  it("has each frame that differs, for as long as its equals take together, and its pixels", async () => {
    const colours = ["rgb(200, 0, 0)", "rgb(200, 0, 0)", "rgb(0, 100, 0)", "rgb(0, 0, 250)"];
    const frames: { png: Uint8Array; ms: number }[] = [];
    for (const [index, colour] of colours.entries()) {
      await page.evaluate(
        `document.body.innerHTML = '<p style="position: fixed; margin: 0; inset: 7px 11px 5px 13px; background: ${colour}">'`,
      );
      frames.push({ png: await page.screenshot(), ms: 100 * (index + 1) });
    }
    const { durations, middles, corners, size } = await decoded(await animatedWebp(page, frames));
    expect(size).toEqual([40, 30]);
    expect(durations).toEqual([300, 300, 400]);
    expect(middles).toEqual(["200 0 0", "0 100 0", "0 0 250"]);
    expect(corners).toEqual(["255 255 255", "255 255 255", "255 255 255"]);
  });

  it.each(readdirSync(PICTURES).filter((file) => file.endsWith(".webp")))(
    "of the README moves, and is small: %s",
    async (file) => {
      expect(statSync(PICTURES + file).size).toBeLessThan(MOST_BYTES);
      const { durations } = await decoded(readFileSync(PICTURES + file));
      expect(durations.length).toBeGreaterThan(5);
    },
  );
});

interface Decoded {
  readonly size: readonly number[];
  /** In milliseconds. */
  readonly durations: readonly number[];
  /** The colour in the middle of each frame, and in its corner. */
  readonly middles: readonly string[];
  readonly corners: readonly string[];
}

/** The frames of a picture, as the browser shows them. */
function decoded(webp: Uint8Array): Promise<Decoded> {
  return page.evaluate(`(async () => {
    const data = Uint8Array.from(atob("${Buffer.from(webp).toString("base64")}"), (character) => character.charCodeAt(0));
    const decoder = new ImageDecoder({ data, type: "image/webp" });
    await Promise.all([decoder.completed, decoder.tracks.ready]);
    const result = { size: [], durations: [], middles: [], corners: [] };
    for (let frameIndex = 0; frameIndex < decoder.tracks.selectedTrack.frameCount; frameIndex++) {
      const { image } = await decoder.decode({ frameIndex });
      result.size = [image.displayWidth, image.displayHeight];
      result.durations.push(image.duration / 1000);
      const context = new OffscreenCanvas(...result.size).getContext("2d");
      context.drawImage(image, 0, 0);
      const colour = (x, y) => [...context.getImageData(x, y, 1, 1).data].slice(0, 3).join(" ");
      result.middles.push(colour(20, 15));
      result.corners.push(colour(0, 0));
    }
    return result;
  })()`) as Promise<Decoded>;
}
