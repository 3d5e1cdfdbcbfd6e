import * as six from "ai";
import { describe, expect, it } from "vitest";
import { nextTurn } from "../harness/promises.ts";
import { a2aClients } from "./a2a-visitor.ts";
import { acpClient } from "./acp-visitor.ts";
import { agUiHost } from "./ag-ui-visitor.ts";
import { loadSdk, versions } from "./ai-sdk/versions.ts";
import type { ChatModule } from "./chat-visitor.ts";
import { chatPage } from "./chat-visitor.ts";
import { Desk } from "./desk.ts";
import { mcpCalls, mcpSessions, mcpTasks } from "./mcp-chat-visitor.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

/** What happens in a chat, on one device unless the scenario opens more. */
interface Scenario {
  readonly name: string;
  play(user: Visitor, desk: Desk, visit: (at?: Desk) => Visitor): Promise<Visitor | undefined>;
  readonly sees: Partial<View>;
  /** What a client sees that gets the text only when the run has ended, if that is something else. */
  readonly seesInSilence?: Partial<View>;
  /**
   * What all devices together send and get: so many requests, and so many parts or events in their responses. Null: the
   * protocol has no words for it. A call of MCP from 2026-07-28 on is known by its response alone until it asks: to lose that
   * is to cancel it, and no other device and no other process can follow it before.
   */
  readonly traffic: Readonly<Record<FaceUnderTest["kind"], readonly [requests: number, items: number] | null>>;
}

/** Another page of the run, which waits for an answer: it shows the question, and answers it. */
async function openAndAnswer(page: Visitor): Promise<Visitor> {
  await page.open();
  expectSoFar(page, "Looking. ", "Refund 40 €?");
  await page.answer({ approved: true });
  return page;
}

const scenarios: readonly Scenario[] = [
  {
    name: "a stream",
    play: async (user) => void (await user.say("stream")),
    sees: { text: "One two three." },
    traffic: {
      page: [1, 9],
      chatOptions: [1, 9],
      agUi: [1, 7],
      acp: [1, 8],
      a2a: [1, 6],
      mcpCall: [1, 4],
      mcpSession: [2, 4],
      mcpTask: [2, 4],
    },
  },
  {
    name: "a question",
    play: async (user) => void (await user.say("ask")),
    sees: { text: "Looking. ", question: "Refund 40 €?" },
    seesInSilence: { question: "Refund 40 €?" },
    traffic: {
      page: [1, 8],
      chatOptions: [1, 8],
      agUi: [1, 5],
      acp: [1, 6],
      a2a: [1, 4],
      mcpCall: [1, 2],
      mcpSession: [2, 2],
      mcpTask: [2, 3],
    },
  },
  {
    name: "an answer",
    play: async (user) => {
      await user.say("ask");
      await user.answer({ approved: true });
      return undefined;
    },
    sees: { text: "Looking. Refunded." },
    traffic: {
      page: [2, 16],
      chatOptions: [2, 16],
      agUi: [2, 10],
      acp: [2, 11],
      a2a: [2, 8],
      mcpCall: [2, 4],
      mcpSession: [3, 4],
      mcpTask: [4, 7],
    },
  },
  {
    name: "several questions",
    play: async (user) => {
      await user.say("several");
      expect(user.view.question).toBe("Refund 40 €?");
      await user.answer({ approved: true });
      expect(user.view.question).toBe("Send a letter?");
      await user.answer({ approved: false });
      return undefined;
    },
    sees: { text: "Refunded, not sent." },
    // A client of AG-UI answers all of them at once.
    traffic: {
      page: [2, 18],
      chatOptions: [2, 18],
      agUi: null,
      acp: [3, 10],
      a2a: [3, 10],
      mcpCall: [3, 3],
      mcpSession: [4, 4],
      mcpTask: [6, 9],
    },
  },
  {
    name: "an answer at another process",
    play: async (user, desk, visit) => {
      await user.say("ask");
      const phone = visit(desk.another());
      await phone.open();
      await phone.answer({ approved: true });
      await desk.clock.settle();
      await user.open();
      expect(user.view).toEqual(phone.view);
      return undefined;
    },
    sees: { text: "Looking. Refunded." },
    traffic: {
      page: [6, 24],
      chatOptions: [6, 24],
      agUi: [4, 19],
      acp: [6, 28],
      a2a: [4, 8],
      mcpCall: [4, 5],
      mcpSession: [5, 11],
      mcpTask: [6, 7],
    },
  },
  {
    name: "an answer that does not fit, and one that does",
    play: async (user) => {
      await user.say("ask");
      await user.answer({ approved: 1 });
      expect(user.view.error).toMatch(/approved/);
      expect(user.view.question).toBe("Refund 40 €?");
      await user.answer({ approved: false });
      return undefined;
    },
    sees: { text: "Looking. Refused." },
    traffic: {
      page: [3, 19],
      chatOptions: [3, 19],
      agUi: [3, 12],
      acp: [3, 11],
      a2a: [3, 8],
      mcpCall: [3, 4],
      mcpSession: [4, 5],
      mcpTask: [5, 7],
    },
  },
  {
    name: "a declined answer",
    play: async (user) => {
      await user.say("decline");
      await user.decline("No time.");
      return undefined;
    },
    sees: { text: "Not answered: answer_declined." },
    traffic: {
      page: [2, 13],
      chatOptions: [2, 13],
      agUi: [2, 7],
      acp: [2, 8],
      a2a: [2, 7],
      mcpCall: [2, 3],
      mcpSession: [3, 3],
      mcpTask: [4, 7],
    },
  },
  {
    name: "an answer in words",
    play: async (user) => {
      await user.say("words");
      expect(user.view.question).toBe("Who are you?");
      await user.say("Ada");
      return undefined;
    },
    sees: { text: "Hello Ada." },
    traffic: {
      page: [2, 12],
      chatOptions: [2, 12],
      agUi: [2, 10],
      acp: [2, 8],
      a2a: [2, 7],
      mcpCall: [2, 3],
      mcpSession: [3, 3],
      mcpTask: [4, 7],
    },
  },
  {
    name: "a deadline",
    play: async (user, desk) => {
      await user.say("deadline");
      await desk.clock.advance(60_000);
      await user.open();
      return undefined;
    },
    sees: { text: "Refused in the end." },
    traffic: {
      page: [3, 5],
      chatOptions: [3, 5],
      agUi: [2, 5],
      acp: [3, 11],
      a2a: [2, 3],
      mcpCall: [2, 2],
      mcpSession: [3, 5],
      mcpTask: [3, 3],
    },
  },
  {
    name: "a failure",
    play: async (user) => void (await user.say("fail")),
    sees: { text: "Half ", error: "The train is full." },
    seesInSilence: { error: "The train is full." },
    traffic: {
      page: [1, 8],
      chatOptions: [1, 8],
      agUi: [1, 5],
      acp: [1, 5],
      a2a: [1, 4],
      mcpCall: [1, 2],
      mcpSession: [2, 2],
      mcpTask: [2, 4],
    },
  },
  {
    name: "a stop",
    play: async (user, desk) => {
      const said = user.say("slow");
      await untilSeen(desk, user, "One ");
      await user.stop();
      await said;
      return undefined;
    },
    sees: { text: "One " },
    seesInSilence: {},
    traffic: {
      page: [2, 7],
      chatOptions: [2, 5],
      agUi: [2, 7],
      acp: [2, 5],
      a2a: [2, 4],
      mcpCall: [1, 1],
      mcpSession: [3, 1],
      mcpTask: [3, 4],
    },
  },
  {
    name: "a lost connection",
    play: async (user, desk) => {
      const said = user.say("slow");
      await untilSeen(desk, user, "One ");
      await user.disconnect();
      const again = user.open();
      await untilSeen(desk, user, "One ");
      desk.gate.open();
      await Promise.all([said, again]);
      return undefined;
    },
    sees: { text: "One two." },
    traffic: {
      page: [3, 15],
      chatOptions: [4, 21],
      agUi: [2, 16],
      acp: [3, 11],
      a2a: [3, 6],
      mcpCall: null,
      mcpSession: [3, 4],
      mcpTask: [4, 6],
    },
  },
  {
    name: "a reload while it waits",
    play: async (user, _desk, visit) => {
      await user.say("ask");
      return openAndAnswer(visit());
    },
    sees: { text: "Looking. Refunded." },
    traffic: {
      page: [4, 24],
      chatOptions: [4, 24],
      agUi: [3, 16],
      acp: [4, 17],
      a2a: [3, 8],
      mcpCall: [3, 4],
      mcpSession: [4, 8],
      mcpTask: [5, 7],
    },
  },
  {
    name: "a second device",
    play: async (user, desk, visit) => {
      const said = user.say("slow");
      await untilSeen(desk, user, "One ");
      const phone = visit();
      const followed = phone.open();
      await untilSeen(desk, phone, "One ");
      desk.gate.open();
      await Promise.all([said, followed]);
      expect(user.view).toEqual(phone.view);
      return phone;
    },
    sees: { text: "One two." },
    traffic: {
      page: [3, 20],
      chatOptions: [3, 20],
      agUi: [2, 21],
      acp: [3, 14],
      a2a: [3, 8],
      mcpCall: null,
      mcpSession: [3, 6],
      mcpTask: [4, 8],
    },
  },
  {
    name: "a restart of the server while it waits",
    play: async (user, desk, visit) => {
      await user.say("ask");
      await desk.restart();
      await desk.clock.advance(1_000);
      return openAndAnswer(visit());
    },
    sees: { text: "Looking. Refunded." },
    traffic: {
      page: [4, 24],
      chatOptions: [4, 24],
      agUi: [3, 16],
      acp: [4, 17],
      a2a: [3, 8],
      mcpCall: [3, 4],
      mcpSession: [4, 7],
      mcpTask: [5, 7],
    },
  },
  {
    name: "a restart of the server in the middle",
    play: async (user, desk, visit) => {
      void user.say("slow").catch(() => {});
      await untilSeen(desk, user, "One ");
      await desk.restart();
      await desk.clock.advance(1_000);
      const page = visit();
      const followed = page.open();
      await untilSeen(desk, page, "One ");
      desk.gate.open();
      await followed;
      return page;
    },
    sees: { text: "One two." },
    traffic: {
      page: [3, 16],
      chatOptions: [3, 16],
      agUi: [2, 19],
      acp: [3, 12],
      a2a: [3, 7],
      mcpCall: null,
      mcpSession: [3, 5],
      mcpTask: [4, 7],
    },
  },
];

const faces: readonly FaceUnderTest[] = [
  ...chatPages("ai 5", (await loadSdk("ai-sdk-react-5")) as ChatModule),
  ...versions.flatMap(({ name, sdk }) => chatPages(name, sdk)),
  agUiHost,
  acpClient,
  ...a2aClients,
  mcpCalls,
  mcpSessions,
  mcpTasks,
];

/** What a visitor sees while the run is open. */
function expectSoFar({ view, isSilent = false }: Visitor, text: string, question: string | null = null): void {
  expect(view).toEqual({ text: isSilent ? "" : text, question, error: null });
}

/** Waits until a visitor sees a text, which may take the cryptography of the machine, and no question or error. */
async function untilSeen(desk: Desk, visitor: Visitor, text: string): Promise<void> {
  while (visitor.isSilent !== true && visitor.view.text !== text) await nextTurn();
  await desk.clock.settle();
  expectSoFar(visitor, text);
}

function chatPages(name: string, module: ChatModule): readonly FaceUnderTest[] {
  return [
    chatPage(`a chat page of ${name}`, module),
    chatPage(`a chat page of ${name} with chatOptions`, module, "own"),
  ];
}

describe.each(faces.map((face) => [face.name, face] as const))("over %s", (_name, face) => {
  const played = scenarios.filter(({ traffic }) => traffic[face.kind] !== null);
  it.each(played.map((scenario) => [scenario.name, scenario] as const))("%s", async (_title, scenario) => {
    const desk = new Desk();
    const visits: Visitor[] = [];
    const visit = (at = desk): Visitor => {
      const visitor = face.visit(at, "chat 17/ä");
      visits.push(visitor);
      return visitor;
    };
    const first = visit();
    const user = (await scenario.play(first, desk, visit)) ?? first;
    await desk.clock.settle();
    const sees = (user.isSilent && scenario.seesInSilence) || scenario.sees;
    expect(user.view).toEqual({ text: "", question: null, error: null, ...sees });
    expect(trafficOf(visits)).toEqual(scenario.traffic[face.kind]);
    // Left alone, they send nothing more.
    await desk.clock.advance(10_000);
    expect(trafficOf(visits)).toEqual(scenario.traffic[face.kind]);
  });
});

const pageOf6 = chatPage("a chat page of ai 6", six as unknown as ChatModule);
/** The faces that find a run by its chat. */
const inChats = [pageOf6, agUiHost, acpClient, ...a2aClients];
/** A task is found by its id. The run of a call of MCP is in no chat, and only its client knows the call. */
const apart = [...inChats, mcpTasks];

const pairs = inChats.flatMap((begins) =>
  apart.filter((face) => face !== begins).map((other) => [begins.name, other.name, begins, other] as const),
);

it.each(pairs)("a run begun over %s, and answered over %s, is watched over all", async (_begins, _answers, ...pair) => {
  const desk = new Desk();
  const all = [...pair, ...apart.filter((face) => !pair.includes(face))].map((face) => face.visit(desk, "chat 17"));
  const [first, second, ...rest] = all as [Visitor, Visitor, ...Visitor[]];
  await first.say("ask");
  for (const other of [second, ...rest]) {
    await other.open();
    expectSoFar(other, "Looking. ", "Refund 40 €?");
  }
  await second.answer({ approved: true });
  for (const other of [first, ...rest]) await other.open();
  for (const visitor of all) expect(visitor.view).toEqual({ text: "Looking. Refunded.", question: null, error: null });
});

it.each(pairs)("a run at work that was begun over %s is followed over %s", async (_begins, _watches, ...pair) => {
  const desk = new Desk();
  const [first, other] = pair.map((face) => face.visit(desk, "chat 17")) as [Visitor, Visitor];
  const said = first.say("slow");
  await desk.clock.settle();
  const followed = other.open();
  await desk.clock.settle();
  expectSoFar(other, "One ");
  desk.gate.open();
  await Promise.all([said, followed]);
  expect([first.view.text, other.view.text]).toEqual(["One two.", "One two."]);
});

it.each(pairs)("a run at work that was begun over %s is stopped over %s", async (_begins, _stops, ...pair) => {
  const desk = new Desk();
  const [first, other] = pair.map((face) => face.visit(desk, "chat 17")) as [Visitor, Visitor];
  const said = first.say("slow");
  await desk.clock.settle();
  const followed = other.open();
  await desk.clock.settle();
  await other.stop();
  await Promise.all([said, followed]);
  expect((await desk.runtime.listRuns()).map(({ status }) => status)).toEqual(["cancelled"]);
  expect([first.view.question, other.view.question]).toEqual([null, null]);
});

/** The faces that find a run by the id of its session, and by its own id. */
const byId = [acpClient, ...a2aClients, mcpTasks];
const calls = [mcpCalls, mcpSessions, mcpTasks].flatMap((begins) =>
  byId.filter((face) => face !== begins).map((other) => [begins.name, other.name, begins, other] as const),
);

it.each(calls)(
  "a run begun over %s, and answered over %s, is watched over both",
  async (_begins, _answers, ...pair) => {
    const [begins, answers] = pair;
    const desk = new Desk();
    const first = begins.visit(desk, "");
    await first.say("ask");
    const [run] = await desk.runtime.listRuns();
    const other = answers.visit(desk, run?.session_id ?? "");
    await other.open();
    expectSoFar(other, "Looking. ", "Refund 40 €?");
    await other.answer({ approved: true });
    await first.open();
    for (const { view } of [first, other])
      expect(view).toEqual({ text: "Looking. Refunded.", question: null, error: null });
  },
);

/** How many requests the visitors have sent, and how many parts or events they have got. */
function trafficOf(visits: readonly Visitor[]): readonly [requests: number, items: number] {
  const sum = (count: (visit: Visitor) => number): number => visits.reduce((all, visit) => all + count(visit), 0);
  return [sum(({ connection }) => connection.requests.length), sum(({ connection }) => connection.items.length)];
}
