import { expect, it } from "vitest";
import type { EmittedPart, Entry } from "../../src/core/log.ts";
import { emittedIn, isAsEmitted, judge } from "../harness/world/judge.ts";
import type { Node } from "../harness/world/programs.ts";

/** One branch closes a message, the other one emits its content. The runtime may choose the order. */
const node: Node = { does: "all", nodes: [{ does: "closes" }, { does: "says", text: "text" }] };
const text: EmittedPart = {
  type: "emitted",
  kind: "part",
  at: 0,
  part: { content_type: "text/plain", content: "text", content_encoding: "plain" },
  opens: true,
};
const last: Entry = { ...text, part: { ...text.part, content: "all 0,1" } };
const close: Entry = { type: "emitted", kind: "close", at: 0 };

it.each([
  { what: "closed after another branch has emitted", log: [text, close, last], isRight: true },
  { what: "not closed, since nothing was open", log: [text, last], isRight: true },
  { what: "closed twice", log: [text, close, close, last], isRight: false },
  { what: "closed without anything in it", log: [close, last], isRight: false },
])("a message of branches side by side is judged that was $what", async ({ log, isRight }) => {
  expect(isAsEmitted(await judge(node, "", log), emittedIn(log))).toBe(isRight);
});
