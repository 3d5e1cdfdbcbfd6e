import * as five from "ai-5";
import { describe, expect, test } from "vitest";
import { versions } from "./ai-sdk/versions.ts";
import type { ChatModule } from "./chat-visitor.ts";
import { chatPage } from "./chat-visitor.ts";
import { Desk } from "./desk.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

/** What happens in a chat, on one device unless the scenario opens more. */
interface Scenario {
  readonly name: string;
  play(user: Visitor, desk: Desk, visit: () => Visitor): Promise<Visitor | undefined>;
  readonly sees: Partial<View>;
}

const scenarios: readonly Scenario[] = [
  {
    name: "a stream",
    play: async (user) => void (await user.say("stream")),
    sees: { text: "One two three." },
  },
  {
    name: "a question",
    play: async (user) => void (await user.say("ask")),
    sees: { text: "Looking. ", question: "Refund 40 €?" },
  },
  {
    name: "an answer",
    play: async (user) => {
      await user.say("ask");
      await user.answer({ approved: true });
      return undefined;
    },
    sees: { text: "Looking. Refunded." },
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
  },
  {
    name: "a declined answer",
    play: async (user) => {
      await user.say("decline");
      await user.decline("No time.");
      return undefined;
    },
    sees: { text: "Not answered: answer_declined." },
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
  },
  {
    name: "a failure",
    play: async (user) => void (await user.say("fail")),
    sees: { text: "Half ", error: "The train is full." },
  },
  {
    name: "a stop",
    play: async (user, desk) => {
      const said = user.say("slow");
      await desk.clock.settle();
      expect(user.view.text).toBe("One ");
      await user.stop();
      await said;
      return undefined;
    },
    sees: { text: "One " },
  },
  {
    name: "a lost connection",
    play: async (user, desk) => {
      const said = user.say("slow");
      await desk.clock.settle();
      await user.disconnect();
      const again = user.open();
      await desk.clock.settle();
      desk.gate.open();
      await Promise.all([said, again]);
      return undefined;
    },
    sees: { text: "One two." },
  },
  {
    name: "a reload while it waits",
    play: async (user, _desk, visit) => {
      await user.say("ask");
      const page = visit();
      await page.open();
      expect(page.view).toEqual({ text: "Looking. ", question: "Refund 40 €?", error: null });
      await page.answer({ approved: true });
      return page;
    },
    sees: { text: "Looking. Refunded." },
  },
  {
    name: "a second device",
    play: async (user, desk, visit) => {
      const said = user.say("slow");
      await desk.clock.settle();
      const phone = visit();
      const followed = phone.open();
      await desk.clock.settle();
      expect(phone.view.text).toBe("One ");
      desk.gate.open();
      await Promise.all([said, followed]);
      expect(user.view).toEqual(phone.view);
      return phone;
    },
    sees: { text: "One two." },
  },
  {
    name: "a restart of the server in the middle",
    play: async (user, desk, visit) => {
      void user.say("slow").catch(() => {});
      await desk.clock.settle();
      await desk.restart();
      await desk.clock.advance(1_000);
      const page = visit();
      const followed = page.open();
      await desk.clock.settle();
      expect(page.view.text).toBe("One ");
      desk.gate.open();
      await followed;
      return page;
    },
    sees: { text: "One two." },
  },
];

const faces: readonly FaceUnderTest[] = [
  ...chatPages("ai 5", five as unknown as ChatModule),
  ...versions.flatMap(({ name, sdk }) => chatPages(name, sdk)),
];

function chatPages(name: string, module: ChatModule): readonly FaceUnderTest[] {
  return [
    chatPage(`a chat page of ${name}`, module),
    chatPage(`a chat page of ${name} with chatOptions`, module, "own"),
  ];
}

describe.each(faces.map((face) => [face.name, face] as const))("over %s", (_name, face) => {
  test.each(scenarios.map((scenario) => [scenario.name, scenario] as const))("%s", async (_title, scenario) => {
    const desk = new Desk();
    const visit = (): Visitor => face.visit(desk, "chat 17/ä");
    const first = visit();
    const user = (await scenario.play(first, desk, visit)) ?? first;
    await desk.clock.settle();
    expect(user.view).toEqual({ text: "", question: null, error: null, ...scenario.sees });
    // Left alone, it sends nothing more.
    const sent = user.requests.length;
    await desk.clock.advance(10_000);
    expect(user.requests).toHaveLength(sent);
  });
});
