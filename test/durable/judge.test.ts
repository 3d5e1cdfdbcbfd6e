import { expect, it } from "vitest";
import type { EmittedPart, Entry } from "../../src/core/log.ts";
import { emittedIn, isAsEmitted, judge } from "../harness/judge.ts";
import type { Block, Program } from "../harness/program.ts";

/** One branch closes a message, the other one emits its content. The runtime may choose the order. */
const branches: readonly Block[] = [
  [{ does: "emit", what: "close", text: "", by: "emit" }],
  [{ does: "emit", what: "part", text: "text", by: "emit" }],
];
const program: Program = { certainty: "loose", body: [{ does: "all", branches }], fails: false };
const text: EmittedPart = {
  type: "emitted",
  kind: "part",
  at: 0,
  part: { content_type: "text/plain", content: "text 1 ", content_encoding: "plain" },
  opens: true,
};
const last: Entry = { ...text, part: { ...text.part, content: "all 1 " } };
const close: Entry = { type: "emitted", kind: "close", at: 0 };

it.each([
  { what: "closed after another branch has emitted", log: [text, close, last], isRight: true },
  { what: "not closed, since nothing was open", log: [text, last], isRight: true },
  { what: "closed twice", log: [text, close, close, last], isRight: false },
  { what: "closed without anything in it", log: [close, last], isRight: false },
])("a message of branches side by side is judged that was $what", async ({ log, isRight }) => {
  expect(isAsEmitted(await judge({ name: "program", program }, "", log), emittedIn(log))).toBe(isRight);
});
