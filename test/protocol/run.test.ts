import type { AwaitRequest, AwaitResume, Message, Run } from "cadenza";
import fc from "fast-check";
import { describe, expect, expectTypeOf, it } from "vitest";
import type { MessageResume } from "../../src/protocol/run.ts";
import {
  awaitRequestSchema,
  awaitResumeSchema,
  isMessageResume,
  runModeSchema,
  runModes,
  runSchema,
  runStatuses,
  runStatusSchema,
} from "../../src/protocol/run.ts";
import type { RunStatus } from "../harness/internals.ts";
import { awaitResume, run } from "./arbitraries.ts";
import { changed, itAccepts, itRefuses, without } from "./tables.ts";

const question = { type: "message", message: { role: "agent/booking", parts: [] }, await_id: "7" };

const created = {
  agent_name: "booking",
  session_id: "0f8fad5b-d9cb-469f-a165-70867728950e",
  run_id: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
  status: "created",
  await_request: null,
  output: [],
  error: null,
  created_at: "2026-01-31T12:00:00.000Z",
  finished_at: null,
};

describe("the status of a run", () => {
  itAccepts(
    runStatusSchema,
    runStatuses.map((status) => [status, status]),
  );
  itRefuses(runStatusSchema, [
    ["one l", "canceled", []],
    ["an underscore", "in_progress", []],
    ["null", null, []],
  ]);

  it("has seven values", () => expect(runStatuses).toHaveLength(7));
});

describe("a mode", () => {
  itAccepts(
    runModeSchema,
    runModes.map((mode) => [mode, mode]),
  );
  itRefuses(runModeSchema, [
    ["another word", "batch", []],
    ["upper case", "SYNC", []],
  ]);
});

describe("an await request", () => {
  itAccepts(awaitRequestSchema, [
    ["a question", question],
    ["a question with a deadline", { ...question, expires_at: "2026-01-31T12:00:00Z" }],
    ["a null deadline", { ...question, expires_at: null }, question],
    ["unknown keys, which are dropped", { ...question, schema: {} }, question],
  ]);

  itRefuses(awaitRequestSchema, [
    ["an empty object", {}, ["type"]],
    ["another type", { ...question, type: "form" }, ["type"]],
    ["no message", without(question, "message"), ["message"]],
    ["no id", without(question, "await_id"), ["await_id"]],
    ["a deadline that is a day", { ...question, expires_at: "2026-01-31" }, ["expires_at"]],
  ]);
});

describe("the answer to an await", () => {
  const message = { role: "user", parts: [{ content_type: "text/plain", content_encoding: "plain", content: "yes" }] };
  const answer = { type: "message", message };

  itAccepts(awaitResumeSchema, [
    ["a message", answer],
    ["a message without the defaults", { type: "message", message: { parts: [{ content: "yes" }] } }, answer],
    ["a message without parts", { type: "message", message: { role: "user", parts: [] } }],
    ["a message without a type", { message }, answer],
    ["a message with a null type", { type: null, message }, answer],
    ["unknown keys beside a message, which are dropped", { ...answer, extra: 1 }, answer],
    ["an empty object", {}],
    ["an object with nulls", { ok: true, note: null, nested: { a: null } }],
    ["an object with a type of its own", { type: "form", message: { parts: [] } }],
    ["an object with a type that is no string", { type: 7 }],
    ["an object with a null type and no message", { type: null, ok: true }],
    ["an object with a text as message", { message: "hello" }],
    ["an object with a null message", { message: null }],
    ["an object with a message of another form", { message: { parts: 3 } }],
  ]);

  itRefuses(awaitResumeSchema, [
    ["null", null, []],
    ["nothing", undefined, []],
    ["a list", [], []],
    ["a string", "yes", []],
    ["a type without a message", { type: "message" }, ["message"]],
    ["a type with a null message", { type: "message", message: null }, ["message"]],
    ["a type with a message without parts", { type: "message", message: {} }, ["message", "parts"]],
    ["a message with a bad role", { type: "message", message: { role: "assistant", parts: [] } }, ["message", "role"]],
    ["a message without a type, with a bad part", { message: { parts: ["yes"] } }, ["message", "parts", 0]],
  ]);

  it("names every issue of a message, in words", () => {
    const reading = awaitResumeSchema.safeParse({
      type: "message",
      message: { role: "boss", parts: [{ content: 1 }] },
    });
    expect(reading.error?.issues).toMatchObject([
      { path: ["message", "role"], message: "expected user, agent or agent/<name>" },
      { path: ["message", "parts", 0, "content"], message: expect.stringContaining("expected string") },
    ]);
  });

  it("is a message or the same object, and stays so when it is parsed again", () => {
    fc.assert(
      fc.property(awaitResume, (written) => {
        const resume = awaitResumeSchema.parse(written);
        if (!isMessageResume(resume)) expect(resume).toBe(written);
        expect(awaitResumeSchema.parse(resume)).toStrictEqual(resume);
      }),
    );
  });

  it("is recognised by a type guard", () => {
    const resume: AwaitResume = awaitResumeSchema.parse(answer);
    expect(isMessageResume(resume)).toBe(true);
    expect(isMessageResume(awaitResumeSchema.parse({ ok: true }))).toBe(false);
    if (isMessageResume(resume)) expectTypeOf(resume).toExtend<MessageResume>();
  });
});

describe("a run", () => {
  itAccepts(runSchema, [
    ["a new run", created],
    ["null for absent keys", without(without(without(created, "await_request"), "error"), "finished_at"), created],
    ["an awaiting run", { ...created, status: "awaiting", await_request: question }],
    ["a failed run", { ...created, status: "failed", error: { code: "server_error", message: "It broke." } }],
    ["an open message in the output", { ...created, output: [{ role: "agent/a", parts: [], completed_at: null }] }],
    ["ids in upper case", { ...created, run_id: created.run_id.toUpperCase() }, created],
    ["unknown keys, which are dropped", { ...created, tenant: "a" }, created],
  ]);

  itRefuses(runSchema, [
    ["no output", without(created, "output"), ["output"]],
    ["null output", changed(created, { output: null }), ["output"]],
    ["no session", without(created, "session_id"), ["session_id"]],
    ["no creation time", changed(created, { created_at: null }), ["created_at"]],
    ["a creation time that is a day", changed(created, { created_at: "2026-01-31" }), ["created_at"]],
    ["a leap second", changed(created, { created_at: "2016-12-31T23:59:60Z" }), ["created_at"]],
    ["an id that is no UUID", changed(created, { run_id: "run-1" }), ["run_id"]],
    ["an unknown status", changed(created, { status: "paused" }), ["status"]],
    ["an unknown error code", changed(created, { error: { code: "oops", message: "" } }), ["error", "code"]],
    ["an empty await request", changed(created, { await_request: {} }), ["await_request", "type"]],
  ]);

  it("stays the same when it is parsed again, also after a round trip as JSON", () => {
    fc.assert(
      fc.property(run, (written) => {
        const read = runSchema.parse(written);
        expect(runSchema.parse(read)).toStrictEqual(read);
        expect(JSON.stringify(runSchema.parse(JSON.parse(JSON.stringify(read))))).toBe(JSON.stringify(read));
      }),
    );
  });

  it("has types that are read-only and never undefined", () => {
    expectTypeOf<Run["output"]>().toEqualTypeOf<readonly Message[]>();
    expectTypeOf<Run["await_request"]>().toEqualTypeOf<AwaitRequest | null>();
    expectTypeOf<Run["finished_at"]>().toEqualTypeOf<string | null>();
    expectTypeOf<Run["status"]>().toEqualTypeOf<RunStatus>();
    expectTypeOf<Extract<Run, { status: "awaiting" }>["await_request"]>().toEqualTypeOf<AwaitRequest>();
    expectTypeOf<Extract<Run, { status: "failed" }>["error"]>().toEqualTypeOf<NonNullable<Run["error"]>>();
    expectTypeOf<Extract<Run, { status: "completed" | "cancelled" }>["error"]>().toEqualTypeOf<null>();
  });
});
