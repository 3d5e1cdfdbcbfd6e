import { createRequire } from "node:module";
import type { JsonObject, Message, MessagePart, ProtocolError, Run } from "cadenza";
import fc from "fast-check";
import { describe, expect, expectTypeOf, it } from "vitest";
import type { z } from "zod";
import { eventSchema, eventTypes } from "../../src/protocol/event.ts";
import type { EventType, RunEvent } from "../harness/internals.ts";
import { event } from "./arbitraries.ts";
import { itAccepts, itRefuses } from "./tables.ts";

const run = {
  agent_name: "echo",
  session_id: "0f8fad5b-d9cb-469f-a165-70867728950e",
  run_id: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
  status: "created",
  await_request: null,
  output: [],
  error: null,
  created_at: "2026-01-31T12:00:00.000Z",
  finished_at: null,
};
const part = { content_type: "text/plain", content_encoding: "plain", content: "Hello" };
const message = { role: "agent/echo", parts: [part], created_at: "2026-01-31T12:00:00.000Z", completed_at: null };

describe("an event", () => {
  itAccepts(eventSchema, [
    ...eventTypes.filter((type) => type.startsWith("run.")).map((type) => [`a run in ${type}`, { type, run }] as const),
    ["a message that opens", { type: "message.created", message: { ...message, parts: [] } }],
    ["a part", { type: "message.part", part }],
    [
      "a message that closes",
      { type: "message.completed", message: { ...message, completed_at: "2026-01-31T12:00:01Z" } },
    ],
    ["an object of the agent's own", { type: "generic", generic: { progress: 0.5, note: null } }],
    ["a broken stream", { type: "error", error: { code: "server_error", message: "A gap." } }],
    ["unknown keys, which are dropped", { type: "message.part", part, id: 3 }, { type: "message.part", part }],
  ]);

  itRefuses(eventSchema, [
    ["an unknown type", { type: "run.cancelling", run }, ["type"]],
    ["no type", { run }, ["type"]],
    ["null", null, []],
    ["a run under another name", { type: "run.created", message }, ["run"]],
    ["a run without output", { type: "run.created", run: { ...run, output: null } }, ["run", "output"]],
    [
      "a part with content and URL",
      { type: "message.part", part: { content: "", content_url: "" } },
      ["part", "content_url"],
    ],
    ["a list as an object of the agent's own", { type: "generic", generic: [] }, ["generic"]],
    ["an unknown error code", { type: "error", error: { code: "gap", message: "" } }, ["error", "code"]],
  ]);

  it("is of one of eleven types, each of which has a schema", () => {
    expect(eventTypes).toHaveLength(11);
    expect(new Set(eventTypes)).toHaveLength(11);
    const issue = eventSchema.safeParse({ type: "?" }).error?.issues[0];
    expect(issue).toMatchObject({ code: "invalid_union", note: "No matching discriminator" });
  });

  it("stays the same when it is parsed again, also after a round trip as JSON", () => {
    fc.assert(
      fc.property(event, (written) => {
        const read = eventSchema.parse(written);
        expect(eventSchema.parse(read)).toStrictEqual(read);
        expect(JSON.stringify(eventSchema.parse(JSON.parse(JSON.stringify(read))))).toBe(JSON.stringify(read));
      }),
    );
  });

  it("is read by the official TypeScript client", () => {
    const client: { readonly Event: z.ZodType } = createRequire(import.meta.url)("acp-sdk");
    fc.assert(
      fc.property(event, (written) => {
        client.Event.parse(JSON.parse(JSON.stringify(eventSchema.parse(written))));
      }),
    );
  });
});

describe("the types", () => {
  it("tell the events apart by their type", () => {
    expectTypeOf<RunEvent["type"]>().toEqualTypeOf<EventType>();
    expectTypeOf<Extract<RunEvent, { type: "run.awaiting" }>["run"]>().toEqualTypeOf<Run>();
    expectTypeOf<Extract<RunEvent, { type: "message.part" }>["part"]>().toEqualTypeOf<MessagePart>();
    expectTypeOf<Extract<RunEvent, { type: "message.created" }>["message"]>().toEqualTypeOf<Message>();
    expectTypeOf<Extract<RunEvent, { type: "generic" }>["generic"]>().toEqualTypeOf<JsonObject>();
    expectTypeOf<Extract<RunEvent, { type: "error" }>["error"]>().toEqualTypeOf<ProtocolError>();
  });
});
