import * as one from "@ag-ui/client";
import { afterAll, describe, expect, it } from "vitest";
import { installPackages } from "../../harness/packages.ts";
import { DeskServer } from "./agents.ts";
import type { Client, ClientModule, Page, PageTool } from "./pages.ts";
import { copilotKit, officialClient, shownOf } from "./pages.ts";

/*
 * Hosts of AG-UI and a real server: the official client 1.0.0, the version of it that CopilotKit pins, and CopilotKit's
 * core. The latter two are installed for the test.
 */

// CopilotKit sends no usage data.
process.env["COPILOTKIT_TELEMETRY_DISABLED"] = "true";
process.env["DO_NOT_TRACK"] = "1";

const packages = await installPackages(new URL("./", import.meta.url));
const pinned = typeof packages === "string" ? undefined : ((await packages.load("@ag-ui/client")) as ClientModule);

afterAll(() => {
  if (typeof packages !== "string") packages.remove();
}, 120_000);

const clients: readonly Client[] = [
  officialClient("the official client 1.0.0", one, true),
  ...(typeof packages === "string" || pinned === undefined
    ? []
    : [officialClient("the official client 0.0.59", pinned, false), await copilotKit(packages, pinned)]),
];

it("CopilotKit is installed", ({ skip }) => {
  if (typeof packages === "string") skip(packages);
  expect(clients).toHaveLength(3);
});

interface Row {
  readonly name: string;
  readonly tools?: readonly PageTool[];
  /** Another page than the first may be the one that is looked at. */
  play(page: Page, server: DeskServer, visit: () => Page, client: Client): Promise<Page | undefined>;
  /** What the page shows in the end, and a page that opens the thread. */
  readonly sees: readonly unknown[];
  /** What a page sees that opens the thread: no runs that have failed. Default: the same. */
  readonly later?: readonly string[];
  /** What the user was told of errors. Default: nothing. */
  readonly errors?: readonly string[];
  /** How many runs there are. Default: one. */
  readonly runs?: number;
}

const locate: PageTool = {
  name: "locate",
  handler: ({ of }) => {
    if (of === "nowhere") throw new Error("No GPS.");
    return of === "words" ? "Ulm" : { city: `Ulm (${of})` };
  },
};

const say =
  (...texts: readonly string[]) =>
  async (page: Page): Promise<undefined> => {
    for (const text of texts) await page.say(text);
  };

const calls = (of: string): string => `calls locate {"of":"${of}"}`;
const found = (of: string): string => `tool: {"city":"Ulm (${of})"}`;
const yes = { status: "resolved", payload: { approved: true } } as const;
const hello = ["user: Hello", "assistant: Hello Ada."];

const rows: readonly Row[] = [
  { name: "a text", play: say("Hello"), sees: hello },
  {
    name: "history",
    play: say("Hello", "Again"),
    sees: [...hello, "user: Again", "assistant: After 2 messages."],
    runs: 2,
  },
  { name: "thoughts", play: say("Think"), sees: ["user: Think", "reasoning: Hmm.", "assistant: Thought."] },
  {
    name: "a step, a sub-agent, a file, a source, an object and tokens",
    play: say("Show"),
    sees: [
      ...["user: Show", "assistant: Looked. "],
      'activity: {"name":"chart.png","content_type":"image/png","content":"aGk=","content_encoding":"base64"}',
      "assistant: Said.",
    ],
    runs: 2,
  },
  {
    name: "a message that is sent again",
    play: async (page) => {
      await page.say("Hello", "m0");
      page.agent.setMessages([]);
      await page.say("Hello", "m0");
      return undefined;
    },
    sees: hello,
  },
  {
    name: "a front-end tool",
    tools: [locate],
    play: say("Where"),
    sees: ["user: Where", "assistant: Looking. ", calls("Ada"), found("Ada"), "assistant: In Ulm (Ada)."],
  },
  {
    name: "a front-end tool that gives a text",
    tools: [locate],
    play: say("Words"),
    sees: ["user: Words", calls("words"), "tool: Ulm", expect.stringContaining('"content":"Ulm"')],
  },
  {
    name: "a front-end tool of a model",
    tools: [locate],
    play: say("Model"),
    sees: ["user: Model", calls("Ada"), found("Ada"), "assistant: There you are."],
  },
  {
    name: "two front-end tools at once",
    tools: [locate],
    play: say("Both"),
    sees: [
      ...["user: Both", calls("Ada"), calls("Bob"), found("Ada"), found("Bob")],
      "assistant: In Ulm (Ada) and Ulm (Bob).",
    ],
  },
  {
    name: "a front-end tool, and what the agent says before it has the result",
    tools: [locate],
    play: say("Meanwhile"),
    sees: ["user: Meanwhile", calls("Ada"), "assistant: A moment. ", found("Ada"), "assistant: In Ulm (Ada)."],
  },
  {
    name: "a front-end tool that fails, and what the user says then",
    tools: [locate],
    play: say("Fails", "Hello"),
    sees: [...["user: Fails", calls("nowhere"), "tool: Error: No GPS.", "assistant: Not found: No GPS."], ...hello],
    runs: 2,
  },
  {
    name: "a front-end tool whose result waits for what the user says next",
    tools: [{ ...locate, followUp: false }],
    play: say("Where", "Hello"),
    sees: [
      ...["user: Where", "assistant: Looking. ", calls("Ada"), found("Ada"), "assistant: In Ulm (Ada)."],
      ...hello,
    ],
    runs: 2,
  },
  {
    name: "a reload while a front-end tool is asked for",
    tools: [{ ...locate, type: "human-in-the-loop" }],
    play: async (page, server, visit) => {
      // This page has no tools.
      await page.say("Where");
      const again = visit();
      await again.open();
      expect(again.agent.pendingInterrupts).toEqual([]);
      await server.ended();
      const last = visit();
      await last.open();
      return last;
    },
    sees: ["user: Where", "assistant: Looking. ", calls("Ada"), found("Ada"), "assistant: In Ulm (Ada)."],
  },
  {
    name: "an answer",
    play: async (page) => {
      await page.say("Refund");
      expect(page.agent.pendingInterrupts).toMatchObject([{ message: "Refund 40 €?", reason: "confirmation" }]);
      await page.reply(yes);
      return undefined;
    },
    sees: ["user: Refund", "assistant: Refunded."],
  },
  {
    name: "an answer in words",
    play: async (page) => {
      await page.say("Name");
      await page.reply({ status: "resolved", payload: "Ada" });
      return undefined;
    },
    sees: ["user: Name", "user: Ada", "assistant: Hello Ada."],
  },
  {
    name: "answers to two questions",
    play: async (page) => {
      await page.say("Two");
      await page.reply(yes);
      return undefined;
    },
    sees: ["user: Two", "assistant: true,true"],
  },
  {
    name: "an answer that does not fit, and one that does",
    play: async (page) => {
      await page.say("Refund");
      await page.reply({ status: "resolved", payload: { approved: 1 } });
      expect(page.agent.pendingInterrupts).toHaveLength(1);
      await page.reply(yes);
      return undefined;
    },
    sees: ["user: Refund", "assistant: Refunded."],
    errors: ["approved"],
  },
  {
    name: "a question that is declined, and a message after it",
    play: async (page) => {
      await page.say("Decline");
      await page.reply({ status: "cancelled" });
      await page.say("Hello");
      return undefined;
    },
    sees: ["user: Decline", ...hello],
    runs: 2,
  },
  {
    name: "a run that fails after an answer, and a message after it",
    play: async (page) => {
      await page.say("Full");
      await page.reply(yes);
      await page.say("Hello");
      return undefined;
    },
    sees: ["user: Full", ...hello],
    runs: 2,
  },
  {
    name: "a question that expires, and a message after it",
    play: async (page, server, visit, { declinesLate }) => {
      await page.say("Late");
      expect(page.agent.pendingInterrupts).toHaveLength(1);
      await server.clock.advance(2_000);
      // An older client refuses by itself whatever its user does. It opens the thread again.
      const next = declinesLate ? page : visit();
      if (declinesLate) await page.reply({ status: "cancelled" });
      else await next.open();
      await next.say("Hello");
      return next;
    },
    sees: ["user: Late", "assistant: Refused in the end.", ...hello],
    runs: 2,
  },
  {
    name: "a run that fails, and a message after it",
    play: say("Fail", "Hello"),
    sees: ["user: Fail", "assistant: Half ", ...hello],
    later: hello,
    errors: ["The train is full."],
    runs: 2,
  },
  {
    name: "a state of the agent, and one of the page",
    play: async (page) => {
      await page.say("State");
      expect(page.agent.state).toEqual({ step: 2, seats: ["1A", "1B"] });
      page.agent.setState({ step: 3 });
      await page.say("Given");
      return undefined;
    },
    sees: ["user: State", "assistant: Booked. ", "user: Given", 'assistant: {"step":3}'],
    runs: 2,
  },
  {
    name: "a reload while a question is open",
    play: async (page, _server, visit) => {
      await page.say("Refund");
      const again = visit();
      await again.open();
      expect(again.agent.pendingInterrupts).toEqual(page.agent.pendingInterrupts);
      await again.reply(yes);
      return again;
    },
    sees: ["user: Refund", "assistant: Refunded."],
  },
  {
    name: "a run that is stopped, and a message after it",
    play: async (page, server) => {
      const said = page.say("Slow");
      await page.shows("assistant: One ");
      await fetch(`${server.url}?threadId=${encodeURIComponent(page.agent.threadId)}`, { method: "DELETE" });
      await said;
      await page.say("Hello");
      return undefined;
    },
    sees: ["user: Slow", "assistant: One ", ...hello],
    later: hello,
    runs: 2,
  },
  {
    name: "a page that leaves a run at work, and another one that follows it",
    play: async (page, server, visit) => {
      const said = page.say("Slow");
      await page.shows("assistant: One ");
      page.leave();
      await said;
      const again = visit();
      const opened = again.open();
      await again.shows("assistant: One ");
      server.goOn();
      await opened;
      return again;
    },
    sees: ["user: Slow", "assistant: One ", "assistant: two."],
  },
];

describe.each(clients.map((client) => [client.name, client] as const))("with %s", (_client, client) => {
  it.each(rows.map((row) => [row.name, row] as const))("%s", async (_row, row) => {
    const server = await DeskServer.start();
    try {
      const pages: Page[] = [];
      const visit = (): Page => {
        // The first page of a reload has not loaded its tools yet.
        const tools = row.name.startsWith("a reload while a front-end") && pages.length === 0 ? [] : row.tools;
        const page = client.visit(server.url, "thread 17/ä", tools);
        pages.push(page);
        return page;
      };
      const first = visit();
      const page = (await row.play(first, server, visit, client)) ?? first;
      const shown = page.agent.messages.map(shownOf);
      // A client may put a result behind its call, before what was said meanwhile.
      expect(shown.toSorted()).toEqual(row.sees.toSorted());
      expect(page.agent.pendingInterrupts).toEqual([]);
      const errors = pages.flatMap((each) => each.errors);
      expect(errors).toEqual((row.errors ?? []).map((text) => expect.stringContaining(text)));
      const again = visit();
      await again.open();
      expect(again.agent.messages.map(shownOf)).toEqual(row.later ?? row.sees);
      const runs = await server.runtime.listRuns();
      expect(runs).toHaveLength(row.runs ?? 1);
      expect(runs.filter(({ status }) => status === "awaiting")).toEqual([]);
    } finally {
      await server.close();
    }
  });
});
