import fc from "fast-check";
import { describe, expect, expectTypeOf, it } from "vitest";
import type { RunCreateRequest } from "../../src/protocol/requests.ts";
import {
  agentsListResponseSchema,
  runCreateRequestSchema,
  runEventsListResponseSchema,
  runResumeRequestSchema,
  runsListResponseSchema,
} from "../../src/protocol/requests.ts";
import type { PostedSession } from "../../src/protocol/session.ts";
import { runCreateRequest, runResumeRequest } from "./arbitraries.ts";
import { changed, itAccepts, itRefuses, without } from "./tables.ts";

const id = "0f8fad5b-d9cb-469f-a165-70867728950e";

describe("a request for a run", () => {
  const least = { agent_name: "echo", input: [], mode: "sync" };
  const hello = { role: "user", parts: [{ content_type: "text/plain", content_encoding: "plain", content: "Hello" }] };

  itAccepts(runCreateRequestSchema, [
    ["an empty input", least],
    ["no mode", without(least, "mode"), least],
    ["a null mode", { ...least, mode: null }, least],
    ["a stream", { ...least, mode: "stream" }],
    ["the id of a session", { ...least, session_id: id }],
    [
      "the id of a session in upper case without dashes",
      { ...least, session_id: id.toUpperCase().replaceAll("-", "") },
      { ...least, session_id: id },
    ],
    ["a null session", { ...least, session_id: null, session: null }, least],
    ["an empty session", { ...least, session: {} }, { ...least, session: { history: [] } }],
    ["a session and another id", { ...least, session_id: id, session: { id: id.replace("0", "1"), history: [] } }],
    ["unknown keys, which are dropped", { ...least, priority: 1 }, least],
    [
      "a body of the official Python client",
      {
        agent_name: "echo",
        session_id: null,
        session: null,
        input: [
          {
            parts: [
              {
                name: null,
                content_type: "text/plain",
                content: "Hello",
                content_encoding: "plain",
                content_url: null,
                metadata: null,
              },
            ],
            created_at: "2026-01-31T12:00:00.123456Z",
            completed_at: "2026-01-31T12:00:00.123456Z",
            role: "user",
          },
        ],
        mode: "sync",
      },
      {
        ...least,
        input: [{ ...hello, created_at: "2026-01-31T12:00:00.123456Z", completed_at: "2026-01-31T12:00:00.123456Z" }],
      },
    ],
    [
      "a body of the official TypeScript client",
      {
        agent_name: "echo",
        input: [{ role: "user", parts: [{ content: "Hello", content_type: "text/plain" }] }],
        mode: "async",
      },
      { ...least, mode: "async", input: [hello] },
    ],
  ]);

  itRefuses(runCreateRequestSchema, [
    ["null", null, []],
    ["a list", [], []],
    ["no agent", without(least, "agent_name"), ["agent_name"]],
    ["an invalid agent name", changed(least, { agent_name: "a b" }), ["agent_name"]],
    ["no input", without(least, "input"), ["input"]],
    ["null as input", changed(least, { input: null }), ["input"]],
    ["a text as input", changed(least, { input: "Hello" }), ["input"]],
    [
      "a message that is refused",
      changed(least, { input: [hello, { role: "boss", parts: [] }] }),
      ["input", 1, "role"],
    ],
    ["an unknown mode", changed(least, { mode: "batch" }), ["mode"]],
    ["an id that is no UUID", changed(least, { session_id: "1" }), ["session_id"]],
    ["a session that is refused", changed(least, { session: { history: ["/a"] } }), ["session", "history", 0]],
  ]);

  it("stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(runCreateRequest, (written) => {
        const read = runCreateRequestSchema.parse(written);
        expect(runCreateRequestSchema.parse(read)).toStrictEqual(read);
      }),
    );
  });

  it("has types that are read-only", () => {
    expectTypeOf<RunCreateRequest["session"]>().toEqualTypeOf<PostedSession | undefined>();
    expectTypeOf<RunCreateRequest>().toEqualTypeOf<Readonly<RunCreateRequest>>();
  });
});

describe("a request to resume a run", () => {
  const least = { await_resume: { ok: true }, mode: "sync" };

  itAccepts(runResumeRequestSchema, [
    ["an answer alone", without(least, "mode"), least],
    ["a null mode", { ...least, mode: null }, least],
    ["the run and the await", { ...least, run_id: id, await_id: "7" }],
    ["null for the run and the await", { ...least, run_id: null, await_id: null }, least],
    ["an answer with nulls", { ...least, await_resume: { ok: null } }],
    [
      "a message",
      { ...least, await_resume: { type: "message", message: { parts: [] } } },
      { ...least, await_resume: { type: "message", message: { role: "user", parts: [] } } },
    ],
    ["unknown keys, which are dropped", { ...least, priority: 1 }, least],
  ]);

  itRefuses(runResumeRequestSchema, [
    ["no answer", without(least, "await_resume"), ["await_resume"]],
    ["a null answer", changed(least, { await_resume: null }), ["await_resume"]],
    ["a malformed message", changed(least, { await_resume: { type: "message" } }), ["await_resume", "message"]],
    ["a run that is no UUID", changed(least, { run_id: "1" }), ["run_id"]],
    ["an empty await", changed(least, { await_id: "" }), ["await_id"]],
    ["an await that is no text", changed(least, { await_id: 1 }), ["await_id"]],
    ["an unknown mode", changed(least, { mode: "later" }), ["mode"]],
  ]);

  it("stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(runResumeRequest, (written) => {
        const read = runResumeRequestSchema.parse(written);
        expect(runResumeRequestSchema.parse(read)).toStrictEqual(read);
      }),
    );
  });
});

describe.each([
  ["agents", agentsListResponseSchema],
  ["runs", runsListResponseSchema],
  ["events", runEventsListResponseSchema],
] as const)("a list of %s", (name, schema) => {
  itAccepts(schema, [["an empty list", { [name]: [] }]]);
  itRefuses(schema, [
    ["no list", {}, [name]],
    ["a null item", { [name]: [null] }, [name, 0]],
  ]);
});
