/*
 * What chat pages do, as the rows of a table: in a real browser, with the stock `useChat` of each version of `ai` and each
 * transport. The rows are part of the page's program, so they import nothing. docs/guides/pages.md has the table.
 */

export const chatVersions = ["ai 5", "ai 6", "ai 7"] as const;
export type ChatVersion = (typeof chatVersions)[number];
export const chatTransports = ["chatOptions", "stock"] as const;
export type ChatTransportName = (typeof chatTransports)[number];

type Part = Readonly<Record<string, unknown>> & { readonly type: string };

interface Message {
  readonly id: string;
  readonly role: string;
  readonly parts: readonly Part[];
  readonly metadata?: unknown;
}

/** What `useChat` gives to a page, as far as the rows use it. */
interface Chat {
  readonly messages: readonly Message[];
  readonly status: string;
  readonly error: Error | undefined;
  /** Whether no request of the page is open. */
  readonly isIdle: boolean;
  sendMessage(message: object, options?: object): Promise<void>;
  setMessages(messages: readonly Message[]): void;
  regenerate(options?: object): Promise<void>;
  resumeStream(): Promise<void>;
  stop(): Promise<void>;
  addToolOutput(output: object): Promise<void>;
  addToolApprovalResponse(response: object): Promise<void>;
}

/** A chat in a tab of the browser. */
interface Tab {
  readonly chat: Chat;
  /** What `onData` has got. */
  readonly data: readonly Part[];
  /** Resolves when something is true of the chat. */
  until(test: (chat: Chat) => unknown): Promise<void>;
  reload(): Promise<void>;
}

/** One row with one version and one transport, in a chat of its own. */
export interface Visit {
  readonly version: ChatVersion;
  readonly transport: ChatTransportName;
  open(options?: OpenOptions): Promise<Tab>;
  /** Lets the agent go on where it waits. */
  go(): Promise<void>;
  /** Breaks the connections of the chat off. */
  cut(): Promise<void>;
  /** `DELETE {api}/{id}/stream`. */
  stopRun(): Promise<void>;
  /** The states of the chat's runs, the newest first. */
  runs(): Promise<readonly string[]>;
}

export interface OpenOptions {
  /** The last segment of `api`. */
  readonly agent?: string;
  /** Whether the page begins with what was said, as after a reload. */
  readonly isLoaded?: boolean;
  /** Whether the page executes the tool `getLocation` by `onToolCall`. */
  readonly hasTools?: boolean;
  /** Whether the page names with the next message the first one that it has taken back, as `messageId` of the body. */
  readonly takesBack?: boolean;
}

type PerVersion = string | Readonly<Record<ChatVersion, string>>;

export interface ChatRow {
  /** What the page does. */
  readonly name: string;
  /** What comes of it, where that is not "yes". */
  readonly expected?: Partial<Record<ChatTransportName, PerVersion>>;
  /** Resolves with what comes of it; undefined for "yes". Rejects where the page shows anything else. */
  does(visit: Visit): Promise<string | undefined>;
}

export function expectedOf({ expected }: ChatRow, transport: ChatTransportName, version: ChatVersion): string {
  const given = expected?.[transport] ?? "yes";
  return typeof given === "string" ? given : given[version];
}

function same(found: unknown, wanted: unknown): void {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (one !== other) throw new Error(`Expected ${other}, found ${one}.`);
}

const said = ({ messages }: Chat): string => textOf(messages.filter(({ role }) => role === "assistant"));
const textOf = (messages: readonly Message[]): string =>
  messages.flatMap(({ parts }) => parts.map((part) => (part.type === "text" ? part["text"] : ""))).join("");
const isReady = ({ status, isIdle }: Chat): boolean => status === "ready" && isIdle;
/** The hook has the state and its error in two stores: a page has both when it shows both. */
const hasFailed = ({ status, error }: Chat, because: string): boolean =>
  status === "error" && error !== undefined && error.message.includes(because);
const isRested = ({ status, isIdle }: Chat): boolean => (status === "ready" || status === "error") && isIdle;
/** The page gets what comes. What it was loaded with, it may have before. */
const isFollowing = (chat: Chat): boolean => chat.status === "streaming" && said(chat) === "One ";
const lastParts = ({ messages }: Chat): readonly Part[] =>
  messages.at(-1)?.parts.filter(({ type }) => type !== "step-start") ?? [];
const kinds = (chat: Chat): string =>
  lastParts(chat)
    .map(({ type }) => type)
    .join(" ");
const calls = ({ messages }: Chat): readonly Part[] =>
  messages.flatMap(({ parts }) => parts.filter(({ type }) => type.startsWith("tool-") || type === "dynamic-tool"));
const firstCall = (chat: Chat): Readonly<Record<string, unknown>> => calls(chat)[0] ?? {};
const open = (chat: Chat): readonly Part[] => calls(chat).filter(({ state }) => state === "input-available");

/** Sends a message, and waits until the page has the whole response. */
async function say(tab: Tab, text: string, answer: string): Promise<void> {
  void tab.chat.sendMessage({ text });
  await tab.until((chat) => isReady(chat) && said(chat).endsWith(answer));
}

async function answer(tab: Tab, output: unknown): Promise<void> {
  await tab.chat.addToolOutput({ tool: "ask", toolCallId: open(tab.chat)[0]?.["toolCallId"], output });
}

/** Asks for a refund, and waits for the question. */
async function ask(tab: Tab): Promise<void> {
  void tab.chat.sendMessage({ text: "ask" });
  await tab.until((chat) => isReady(chat) && open(chat).length === 1);
}

const takesBack = (transport: ChatTransportName): OpenOptions => ({ takesBack: transport === "stock" });
const BY_MESSAGE_ID = "with `messageId`";

export const chatRows: readonly ChatRow[] = [
  {
    name: "text, as it comes",
    does: async ({ open, go }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "slow" });
      await tab.until((chat) => chat.status === "streaming" && said(chat) === "One ");
      await go();
      await tab.until((chat) => isReady(chat) && said(chat) === "One two.");
      return undefined;
    },
  },
  {
    name: "a run that fails, and an agent that does not exist, as `error`",
    does: async ({ open }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "fail" });
      await tab.until((chat) => hasFailed(chat, "The train is full."));
      same(said(tab.chat), "Half ");
      const other = await open({ agent: "other" });
      void other.chat.sendMessage({ text: "hello" });
      await other.until((chat) => hasFailed(chat, "There is no agent"));
      return undefined;
    },
  },
  {
    name: "the page is loaded again",
    does: async ({ open }) => {
      const tab = await open();
      await say(tab, "hello", "You said hello.");
      const before = tab.chat.messages.map(({ id }) => id);
      await tab.reload();
      await tab.until((chat) => isReady(chat) && said(chat) === "You said hello.");
      same(
        tab.chat.messages.map(({ id }) => id),
        before,
      );
      return undefined;
    },
  },
  {
    name: "the page is loaded again while text comes",
    does: async ({ open, go }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "slow" });
      await tab.until((chat) => said(chat) === "One ");
      await tab.reload();
      await tab.until(isFollowing);
      await go();
      await tab.until((chat) => isReady(chat) && said(chat) === "One two.");
      same(tab.chat.messages.length, 2);
      return undefined;
    },
  },
  {
    name: "the page is loaded again at a question, which is then answered",
    does: async ({ open: openTab }) => {
      const tab = await openTab();
      await ask(tab);
      await tab.reload();
      await tab.until((chat) => isReady(chat) && open(chat).length === 1 && said(chat) === "Looking. ");
      await answer(tab, { approved: true });
      await tab.until((chat) => isReady(chat) && said(chat) === "Looking. Refunded.");
      same(tab.chat.messages.length, 2);
      return undefined;
    },
  },
  {
    name: "a second tab follows",
    does: async ({ open, go }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "slow" });
      await tab.until((chat) => said(chat) === "One ");
      const second = await open({ isLoaded: true });
      await second.until(isFollowing);
      await go();
      for (const one of [tab, second]) await one.until((chat) => isReady(chat) && said(chat) === "One two.");
      return undefined;
    },
  },
  {
    name: "a question is answered in two tabs: the second one gets an `error`",
    does: async ({ open: openTab, runs }) => {
      const tab = await openTab();
      await ask(tab);
      const second = await openTab({ isLoaded: true });
      await second.until((chat) => isReady(chat) && open(chat).length === 1);
      await answer(tab, { approved: true });
      await tab.until((chat) => isReady(chat) && said(chat) === "Looking. Refunded.");
      await answer(second, { approved: false });
      await second.until((chat) => hasFailed(chat, "has another answer to this question already."));
      same(await runs(), ["completed"]);
      return undefined;
    },
  },
  {
    name: "`stop()` stops the run",
    expected: { stock: "with `DELETE`" },
    does: async ({ open, runs, stopRun }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "slow" });
      await tab.until((chat) => said(chat) === "One ");
      await tab.chat.stop();
      await tab.until(isReady);
      for (let turn = 0; turn < 20; turn++) if ((await runs())[0] === "cancelled") return undefined;
      same(await runs(), ["in-progress"]);
      await stopRun();
      same(await runs(), ["cancelled"]);
      return "with `DELETE`";
    },
  },
  {
    name: "`regenerate()`",
    does: async ({ open }) => {
      const tab = await open();
      await say(tab, "hello", "You said hello.");
      await say(tab, "history", "I know: hello; You said hello.");
      await tab.chat.regenerate();
      await tab.until((chat) => isReady(chat) && said(chat) === "You said hello.I know: hello; You said hello.");
      await tab.chat.regenerate({ messageId: tab.chat.messages[1]?.id });
      await tab.until((chat) => isReady(chat) && said(chat) === "You said hello." && chat.messages.length === 2);
      await say(tab, "history", "I know: hello; You said hello.");
      return undefined;
    },
  },
  {
    name: "a message is edited and sent again",
    does: async ({ open }) => {
      const tab = await open();
      await say(tab, "hello", "You said hello.");
      await say(tab, "again", "You said again.");
      void tab.chat.sendMessage({ text: "goodbye", messageId: tab.chat.messages[0]?.id });
      await tab.until((chat) => isReady(chat) && said(chat) === "You said goodbye.");
      await say(tab, "history", "I know: goodbye; You said goodbye.");
      return undefined;
    },
  },
  {
    name: "`setMessages` takes the last messages back, then `sendMessage`",
    expected: { stock: BY_MESSAGE_ID },
    does: async ({ open, transport }) => {
      const tab = await open(takesBack(transport));
      for (const text of ["hello", "again"]) await say(tab, text, `You said ${text}.`);
      tab.chat.setMessages(tab.chat.messages.slice(0, 2));
      await tab.until(({ messages }) => messages.length === 2);
      await say(tab, "history", "I know: hello; You said hello.");
      await tab.reload();
      await tab.until((chat) => said(chat) === "You said hello.I know: hello; You said hello.");
      return transport === "stock" ? BY_MESSAGE_ID : undefined;
    },
  },
  {
    name: "`setMessages` takes an answer back, then `sendMessage`",
    expected: { stock: BY_MESSAGE_ID },
    does: async ({ open, transport }) => {
      const tab = await open(takesBack(transport));
      for (const text of ["hello", "again"]) await say(tab, text, `You said ${text}.`);
      tab.chat.setMessages(tab.chat.messages.slice(0, 3));
      await tab.until(({ messages }) => messages.length === 3);
      await say(tab, "history", "I know: hello; You said hello.; again");
      return transport === "stock" ? BY_MESSAGE_ID : undefined;
    },
  },
  {
    name: "`setMessages([])`, then `sendMessage`",
    expected: { stock: BY_MESSAGE_ID },
    does: async ({ open, transport }) => {
      const tab = await open(takesBack(transport));
      await say(tab, "hello", "You said hello.");
      await tab.reload();
      await tab.until((chat) => isReady(chat) && chat.messages.length === 2);
      tab.chat.setMessages([]);
      await tab.until(({ messages }) => messages.length === 0);
      await say(tab, "history", "I know: ");
      return transport === "stock" ? BY_MESSAGE_ID : undefined;
    },
  },
  {
    name: "`setMessages` takes a message in the middle back, then `sendMessage`",
    expected: { chatOptions: "`error`", stock: "the agent keeps it" },
    does: async ({ open, runs }) => {
      const tab = await open();
      for (const text of ["hello", "again"]) await say(tab, text, `You said ${text}.`);
      tab.chat.setMessages(tab.chat.messages.slice(2));
      await tab.until(({ messages }) => messages.length === 2);
      void tab.chat.sendMessage({ text: "history" });
      const refused = "The page has taken back messages in the middle of the chat";
      await tab.until((chat) => isRested(chat) && (hasFailed(chat, refused) || chat.messages.length === 4));
      if (tab.chat.status === "error") {
        same((await runs()).length, 2);
        return "`error`";
      }
      same(said(tab.chat), "You said again.I know: hello; You said hello.; again; You said again.");
      return "the agent keeps it";
    },
  },
  {
    name: "a tab that shows less than the chat has takes nothing back",
    does: async ({ open }) => {
      const tab = await open();
      await say(tab, "hello", "You said hello.");
      const second = await open({ isLoaded: true });
      await second.until((chat) => isReady(chat) && chat.messages.length === 2);
      await say(tab, "again", "You said again.");
      await say(second, "history", "I know: hello; You said hello.; again; You said again.");
      return undefined;
    },
  },
  {
    name: "a file of the user, with its name",
    does: async ({ open }) => {
      const tab = await open();
      const file = { type: "file", mediaType: "image/png", filename: "cat.png", url: "data:image/png;base64,aGk=" };
      void tab.chat.sendMessage({ text: "files", files: [file] });
      await tab.until((chat) => isReady(chat) && said(chat) === "cat.png image/png aGk=");
      await tab.reload();
      await tab.until(({ messages }) => messages.length === 2);
      same(tab.chat.messages[0]?.parts.find(({ type }) => type === "file")?.["filename"], "cat.png");
      return undefined;
    },
  },
  {
    name: "a file of the agent, with its name",
    expected: { chatOptions: "name after a reload", stock: "name after a reload" },
    does: async ({ open }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "chart" });
      await tab.until((chat) => isReady(chat) && kinds(chat) === "file");
      const [file] = lastParts(tab.chat);
      same([file?.["mediaType"], file?.["url"]], ["image/png", "data:image/png;base64,aGk="]);
      if (file?.["filename"] !== undefined) return undefined;
      await tab.reload();
      await tab.until((chat) => lastParts(chat)[0]?.["filename"] === "chart.png");
      return "name after a reload";
    },
  },
  {
    name: "data parts of the agent; `data-state` is replaced; a transient one is for `onData`",
    does: async ({ open }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "data" });
      await tab.until((chat) => isReady(chat) && kinds(chat) === "data-part data-state text");
      const [part, state] = lastParts(tab.chat);
      same([part?.["data"], state?.["data"]], [{ total: 3 }, { step: 2 }]);
      same(
        tab.data.filter(({ type }) => type === "data-generic").map(({ data }) => data),
        [{ progress: 1 }],
      );
      return undefined;
    },
  },
  {
    name: "a data part of the user, and what the page adds to the body",
    does: async ({ open }) => {
      const tab = await open();
      const parts = [
        { type: "text", text: "given" },
        { type: "data-order", data: { id: 17 } },
      ];
      void tab.chat.sendMessage({ parts }, { body: { theme: "dark" } });
      await tab.until((chat) => isReady(chat) && said(chat) === `order {"id":17} {"theme":"dark"}`);
      return undefined;
    },
  },
  {
    name: "`reasoning`, `source-url` and the `metadata` of the message",
    does: async ({ open }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "think" });
      await tab.until((chat) => isReady(chat) && kinds(chat) === "reasoning source-url text");
      const [thought, source] = lastParts(tab.chat);
      same([thought?.["text"], thought?.["state"]], ["Let me think.", "done"]);
      same([source?.["url"], source?.["title"]], ["https://example.com/a", "A page"]);
      const { run_id, finished_at, usage } = (tab.chat.messages.at(-1)?.metadata ?? {}) as Record<string, unknown>;
      same([typeof run_id, typeof finished_at], ["string", "string"]);
      const { input_tokens, output_tokens } = (usage ?? {}) as Record<string, unknown>;
      same([input_tokens, output_tokens], [10, 4]);
      return undefined;
    },
  },
  {
    name: "a tool of the page, by `onToolCall`",
    does: async ({ open }) => {
      const tab = await open({ hasTools: true });
      void tab.chat.sendMessage({ text: "location" });
      await tab.until((chat) => isReady(chat) && said(chat) === "Done.");
      const [call] = calls(tab.chat);
      same([call?.type, call?.["state"], call?.["input"]], ["tool-getLocation", "output-available", { precise: true }]);
      return undefined;
    },
  },
  {
    name: "a tool of the page, by `addToolOutput`, also after a reload",
    does: async ({ open: openTab }) => {
      const tab = await openTab();
      void tab.chat.sendMessage({ text: "location" });
      await tab.until((chat) => isReady(chat) && open(chat).length === 1);
      await tab.reload();
      await tab.until((chat) => isReady(chat) && open(chat).length === 1);
      const [call] = open(tab.chat);
      same([call?.type, call?.["input"]], ["tool-getLocation", { precise: true }]);
      await tab.chat.addToolOutput({ tool: "getLocation", toolCallId: call?.["toolCallId"], output: { city: "Ulm" } });
      await tab.until((chat) => isReady(chat) && said(chat) === "Done.");
      same([calls(tab.chat).length, calls(tab.chat)[0]?.["state"]], [1, "output-available"]);
      return undefined;
    },
  },
  {
    name: "a tool of the page that fails: `output-error`",
    does: async ({ open: openTab }) => {
      const tab = await openTab();
      void tab.chat.sendMessage({ text: "location" });
      await tab.until((chat) => isReady(chat) && open(chat).length === 1);
      const toolCallId = open(tab.chat)[0]?.["toolCallId"];
      void tab.chat.addToolOutput({ state: "output-error", tool: "getLocation", toolCallId, errorText: "No right." });
      await tab.until((chat) => isReady(chat) && said(chat) === "Done.");
      same([calls(tab.chat)[0]?.["state"], calls(tab.chat)[0]?.["errorText"]], ["output-error", "No right."]);
      return undefined;
    },
  },
  {
    name: "a tool is approved, by `addToolApprovalResponse`",
    expected: asksInVersion5(),
    does: (visit) => approve(visit, true),
  },
  {
    name: "a tool is not approved: `output-denied`",
    expected: asksInVersion5(),
    does: (visit) => approve(visit, false),
  },
  {
    name: "preliminary outputs of a tool",
    does: async ({ open, go }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "weather" });
      await tab.until((chat) => calls(chat)[0]?.["state"] === "output-available");
      const { toolName, input, output, preliminary } = firstCall(tab.chat);
      same([toolName, input, output, preliminary], ["weather", { city: "Ulm" }, { sky: "looking" }, true]);
      await go();
      await tab.until((chat) => isReady(chat) && said(chat) === "Done.");
      const [call] = calls(tab.chat);
      same([calls(tab.chat).length, call?.["output"], call?.["preliminary"] ?? false], [1, { sky: "blue" }, false]);
      await tab.reload();
      await tab.until((chat) => said(chat) === "Done.");
      same([calls(tab.chat).length, calls(tab.chat)[0]?.["output"]], [1, { sky: "blue" }]);
      return undefined;
    },
  },
  {
    name: "an answer that does not fit: `error`, and the question is open again",
    does: async ({ open: openTab }) => {
      const tab = await openTab();
      await ask(tab);
      await answer(tab, { approved: "perhaps" });
      await tab.until((chat) => hasFailed(chat, "approved") && open(chat).length === 1);
      await answer(tab, { approved: false });
      await tab.until((chat) => isReady(chat) && said(chat) === "Looking. Refused.");
      return undefined;
    },
  },
  {
    name: "an answer in words, as the next message",
    does: async ({ open: openTab }) => {
      const tab = await openTab();
      void tab.chat.sendMessage({ text: "name" });
      await tab.until((chat) => isReady(chat) && open(chat).length === 1);
      await say(tab, "Ada", "Hello Ada.");
      same(
        tab.chat.messages.map(({ role }) => role),
        ["user", "assistant", "user", "assistant"],
      );
      return undefined;
    },
  },
  {
    name: "several questions at once",
    does: async ({ open: openTab }) => {
      const tab = await openTab();
      void tab.chat.sendMessage({ text: "two" });
      await tab.until((chat) => isReady(chat) && open(chat).length === 2);
      await answer(tab, { approved: true });
      await tab.until((chat) => open(chat).length === 1);
      await answer(tab, { approved: false });
      await tab.until((chat) => isReady(chat) && said(chat) === "yes no");
      return undefined;
    },
  },
  {
    name: "torn text, of an attempt at a step that is made again, leaves the page",
    expected: { stock: "after a reload" },
    does: async ({ open, go }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "torn" });
      await tab.until((chat) => said(chat) === "First. One ");
      await go();
      await tab.until((chat) => isReady(chat) && said(chat).endsWith("Last."));
      const live = said(tab.chat);
      await tab.reload();
      await tab.until((chat) => isReady(chat) && said(chat) === "First. One two. Last.");
      if (live === said(tab.chat)) return undefined;
      same(live, "First. One One two. Last.");
      return "after a reload";
    },
  },
  {
    name: "the connection breaks off while text comes",
    expected: {
      stock: { "ai 5": "after a reload", "ai 6": "after a reload", "ai 7": "with `resumeStream()`" },
    },
    does: async ({ open, go, cut, transport }) => {
      const tab = await open();
      void tab.chat.sendMessage({ text: "slow" });
      await tab.until((chat) => said(chat) === "One ");
      await cut();
      if (transport === "chatOptions") {
        await go();
        await tab.until((chat) => isReady(chat) && said(chat) === "One two.");
        return undefined;
      }
      await tab.until(({ status, isIdle }) => status === "error" && isIdle);
      void tab.chat.resumeStream();
      await tab.until(({ status }) => status === "streaming");
      await go();
      await tab.until(isRested);
      if (said(tab.chat) === "One two.") return "with `resumeStream()`";
      same(said(tab.chat), "One One two.");
      await tab.reload();
      await tab.until((chat) => isReady(chat) && said(chat) === "One two.");
      return "after a reload";
    },
  },
];

function asksInVersion5(): NonNullable<ChatRow["expected"]> {
  const asked = { "ai 5": "as a question", "ai 6": "yes", "ai 7": "yes" };
  return { chatOptions: asked, stock: asked };
}

async function approve({ version, open: openTab }: Visit, approved: boolean): Promise<string | undefined> {
  const tab = await openTab();
  void tab.chat.sendMessage({ text: "pay" });
  if (version === "ai 5") {
    await tab.until((chat) => isReady(chat) && open(chat).length === 1);
    await answer(tab, { approved });
    await tab.until((chat) => isReady(chat) && said(chat) === "Done.");
    return "as a question";
  }
  await tab.until((chat) => isReady(chat) && calls(chat)[0]?.["state"] === "approval-requested");
  const { approval, input, type } = firstCall(tab.chat);
  same([type, input], ["tool-pay", { cents: 40 }]);
  await tab.chat.addToolApprovalResponse({ id: (approval as { id: string }).id, approved });
  await tab.until((chat) => isReady(chat) && said(chat) === "Done.");
  const [call] = calls(tab.chat);
  same(
    [call?.["state"], call?.["output"]],
    approved ? ["output-available", { paid: 40 }] : ["output-denied", undefined],
  );
  return undefined;
}
