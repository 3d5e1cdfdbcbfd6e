import { expect, it } from "vitest";
import { kinds, LOG_FORMAT } from "../../src/core/format.ts";
import { fromSnapshot, toSnapshot } from "../../src/core/snapshot.ts";
import { initialState } from "../../src/core/state.ts";
import { jsonPart } from "../../src/protocol/message.ts";

/*
 * What the format 1 of snapshots stands for. A change of a line of this raises the format: a process of another version
 * would else fold on a state that it misreads, or read over an entry that it has to refuse.
 */
it("a snapshot of format 1 has these members, and was made of these kinds of entries", () => {
  expect(toSnapshot(initialState("run"))?.format).toBe(1);
  expect(Object.keys(initialState("run")).join(" ")).toMatchInlineSnapshot(
    `"run_id created started status position latest events last_events last_counts output emitters question more_questions exchanges waits mail overdue cancelled usage waiting_from waiting_ms active_ms generation ended"`,
  );
  expect(`${LOG_FORMAT}: ${Object.keys(kinds).join(" ")}`).toMatchInlineSnapshot(
    `"2: created forked started emitted torn intent attempt-failed step awaited resumed declined withdrawn timed-out exceeded settled offered refused received taken patched moved cancel-requested continued ended"`,
  );
});

it("a state with too many members, or too many characters, has no snapshot", () => {
  const parts = Array.from({ length: 5_000 }, () => jsonPart("Some text, as long as that of a part may be."));
  const message = { role: "agent" as const, parts, created_at: "", completed_at: null };
  expect(toSnapshot({ ...initialState("run"), output: [message] })).toBeUndefined();
  const short = { ...message, parts: [] };
  expect(toSnapshot({ ...initialState("run"), output: Array(4_001).fill(short) })).toBeUndefined();
  expect(toSnapshot({ ...initialState("run"), output: Array(2_000).fill(short) })).toBeDefined();
});

it("a snapshot of another format is not read", () => {
  const snapshot = toSnapshot(initialState("run"));
  expect(snapshot && fromSnapshot(snapshot)).toEqual(initialState("run"));
  expect(snapshot && fromSnapshot({ ...snapshot, format: 2 })).toBeUndefined();
});
