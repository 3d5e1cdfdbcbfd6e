import type { Browser, Page } from "puppeteer-core";
import { expect } from "vitest";
import { until } from "./browser.ts";
import type { ChatVersion } from "./chat-rows.ts";
import { chatVersions } from "./chat-rows.ts";
import { CHAT_PAGE } from "./chat-server.ts";

/* Pages of the waiting desk, with `chatOptions`: whatever happens to their server, each shows each text once. */

/** Where the pages are served. */
export interface Site {
  readonly origin: string;
  /** Lets the runs with these words go on. */
  goOn(words: string): void;
  /** How the runs stand. */
  statuses(): Promise<readonly string[]>;
}

/** A page that is without its server waits for the next attempt for up to half a minute. */
export function waitMsOf(awayS: number): number {
  return 40_000 + awayS * 1_000;
}

/** The page at an address of a site. */
export function pageAt({ searchParams }: URL): string {
  const version = encodeURIComponent(searchParams.get("version") ?? "");
  return CHAT_PAGE.replace("/page.js", `/page.js?version=${version}`);
}

const SAID = `chat.messages.flatMap(({ role, parts }) =>
  role === "assistant" ? parts.map((part) => part.text ?? "") : []).join("")`;
const QUESTION = `chat.messages.flatMap(({ parts }) => parts).find((part) => part.state === "input-available")`;

/** What happens to the server, when pages are in a stream, at a question, and behind an answer. */
export interface Happening {
  /** Answers the open questions. A page whose server is away sends its answers later. */
  readonly answer: () => Promise<void>;
  /** Lets all runs go on. */
  readonly goOn: () => void;
}

/** Opens pages of all versions in a stream, at a question, and behind an answer, and looks at what they show in the end. */
export async function goOnWith(
  browser: Browser,
  site: Site,
  name: string,
  waitMs: number,
  happen: (happening: Happening) => Promise<void>,
): Promise<void> {
  const pages = chatVersions.flatMap((version) =>
    ["stream", "ask", "ask and answer"].map((kind) => new WaitingPage(site, version, `${kind} ${name}`, waitMs)),
  );
  for (const page of pages) await page.open(browser);
  const asking = pages.filter(({ words }) => words === `ask ${name}`);
  await happen({
    answer: async () => void (await Promise.all(asking.map((page) => page.answer()))),
    goOn: () => {
      for (const { words } of pages) site.goOn(words);
    },
  });
  for (const page of pages) await page.end();
  expect((await site.statuses()).filter((status) => status !== "completed")).toEqual([]);
}

class WaitingPage {
  readonly words: string;
  readonly #address: string;
  readonly #waitMs: number;
  readonly #isAsked: boolean;
  #tab: Page | undefined;

  constructor(site: Site, version: ChatVersion, words: string, waitMs: number) {
    const query = new URLSearchParams({ version, chat: `${words} ${version}`, transport: "chatOptions" });
    this.words = words;
    this.#address = `${site.origin}/?${query}`;
    this.#waitMs = waitMs;
    this.#isAsked = words.startsWith("ask");
  }

  /** Opens it, sends its words, and waits until its run waits. */
  async open(browser: Browser): Promise<void> {
    const tab = await browser.newPage();
    this.#tab = tab;
    await tab.goto(this.#address);
    await this.#wait("window.chat !== undefined");
    await tab.evaluate(`void chat.sendMessage({ text: ${JSON.stringify(this.words)} })`);
    await this.#shows(this.#isAsked ? "One " : "One two ");
    if (!this.#isAsked) return;
    await this.#wait(`${QUESTION} !== undefined && chat.status === "ready"`);
    if (!this.words.startsWith("ask and answer")) return;
    await this.answer();
    await this.#shows("One yes two ");
  }

  async answer(): Promise<void> {
    await this.#tab?.evaluate(`void chat.addToolOutput({
      tool: "ask", toolCallId: ${QUESTION}.toolCallId, output: { approved: true } })`);
  }

  /** Waits for the end, and looks at what is shown then. */
  async end(): Promise<void> {
    const said = this.#isAsked ? "One yes two three." : "One two three.";
    await this.#shows(said);
    await this.#wait(`chat.status === "ready" || chat.status === "error"`);
    const shown = await this.#tab?.evaluate(
      `({ said: ${SAID}, messages: chat.messages.length, error: chat.error?.message })`,
    );
    expect(shown).toEqual({ said, messages: 2 });
    await this.#tab?.close();
  }

  async #shows(text: string): Promise<void> {
    try {
      await this.#wait(`${SAID} === ${JSON.stringify(text)}`);
    } catch {
      const shown = await this.#tab?.evaluate(`({ said: ${SAID}, error: chat.error?.message })`);
      expect(shown, this.#address).toEqual({ said: text });
    }
  }

  async #wait(condition: string): Promise<void> {
    if (this.#tab !== undefined) await until(this.#tab, condition, this.#waitMs);
  }
}
