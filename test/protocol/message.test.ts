import type { Message, MessageInput, MessagePart, MessagePartInput } from "cadenza";
import fc from "fast-check";
import { describe, expect, expectTypeOf, it } from "vitest";
import { messagePartSchema, messageSchema } from "../../src/protocol/message.ts";
import type { Role } from "../harness/internals.ts";
import { message, messagePart } from "./arbitraries.ts";
import { itAccepts, itRefuses } from "./tables.ts";

const plain = { content_type: "text/plain", content_encoding: "plain" };
const absent = { name: null, content_type: null, content_encoding: null, content_url: null, metadata: null };

describe("a message part", () => {
  itAccepts(messagePartSchema, [
    ["an empty object", {}, plain],
    ["content alone", { content: "Hello" }, { ...plain, content: "Hello" }],
    ["null for everything absent", { ...absent, content: "Hello" }, { ...plain, content: "Hello" }],
    ["undefined for everything absent", { name: undefined, content: undefined, metadata: undefined }, plain],
    ["neither content nor URL", { name: "empty" }, { ...plain, name: "empty" }],
    ["empty content", { ...plain, content: "" }],
    ["a name, which makes it an artifact", { ...plain, name: "report.md", content: "# Report" }],
    ["base64", { content_type: "image/png", content_encoding: "base64", content: "AAAA" }],
    ["an https URL, unchanged", { ...plain, content_url: "https://EXAMPLE.com" }],
    ["a data URL", { ...plain, content_url: "data:text/plain,hello" }],
    [
      "a URL beside content that is null",
      { content: null, content_url: "https://a.b/" },
      { ...plain, content_url: "https://a.b/" },
    ],
    ["unknown keys, also null ones", { ...plain, await_id: "1", extra: { a: null }, nothing: null }],
    ["a citation", { ...plain, metadata: { kind: "citation", url: "https://a.b/", start_index: 0, end_index: 4 } }],
    ["an empty citation", { ...plain, metadata: { kind: "citation" } }],
    [
      "nulls in a citation",
      {
        ...plain,
        metadata: { kind: "citation", start_index: null, end_index: null, url: null, title: null, description: null },
      },
      { ...plain, metadata: { kind: "citation" } },
    ],
    ["unknown keys of a citation", { ...plain, metadata: { kind: "citation", page: 3, note: null } }],
    [
      "a trajectory",
      {
        ...plain,
        metadata: { kind: "trajectory", message: "…", tool_name: "search", tool_input: { q: null }, tool_output: {} },
      },
    ],
    [
      "nulls in a trajectory",
      {
        ...plain,
        metadata: { kind: "trajectory", message: null, tool_name: null, tool_input: null, tool_output: null },
      },
      { ...plain, metadata: { kind: "trajectory" } },
    ],
    ["unknown keys of a trajectory", { ...plain, metadata: { kind: "trajectory", duration: 3 } }],
  ]);

  itRefuses(messagePartSchema, [
    ["a string", "Hello", []],
    ["null", null, []],
    ["a list", [], []],
    ["content that is no string", { content: 1 }, ["content"]],
    ["a name that is no string", { name: {} }, ["name"]],
    ["a content type that is no string", { content_type: 1 }, ["content_type"]],
    ["another encoding", { content_encoding: "gzip" }, ["content_encoding"]],
    ["an empty encoding", { content_encoding: "" }, ["content_encoding"]],
    ["both content and URL", { content: "a", content_url: "https://a.b/" }, ["content_url"]],
    ["empty content and URL", { content: "", content_url: "https://a.b/" }, ["content_url"]],
    ["content and an empty URL", { content: "a", content_url: "" }, ["content_url"]],
    ["a relative URL", { content_url: "/files/1" }, ["content_url"]],
    ["an empty URL", { content_url: "" }, ["content_url"]],
    ["metadata of an unknown kind", { metadata: { kind: "score" } }, ["metadata", "kind"]],
    ["metadata without a kind", { metadata: { url: "https://a.b/" } }, ["metadata", "kind"]],
    ["metadata with a null kind", { metadata: { kind: null } }, ["metadata", "kind"]],
    ["metadata that is no object", { metadata: "citation" }, ["metadata"]],
    ["a fraction as index", { metadata: { kind: "citation", start_index: 1.5 } }, ["metadata", "start_index"]],
    ["a tool input in a string", { metadata: { kind: "trajectory", tool_input: "{}" } }, ["metadata", "tool_input"]],
    ["a tool output in a list", { metadata: { kind: "trajectory", tool_output: [] } }, ["metadata", "tool_output"]],
  ]);

  it("has exactly the keys that are present", () => {
    const part = messagePartSchema.parse({ ...absent, content: null });
    expect(Object.keys(part).sort()).toEqual(["content_encoding", "content_type"]);
  });

  it("never gets another prototype", () => {
    const part = messagePartSchema.parse(
      JSON.parse('{ "__proto__": { "isAdmin": true }, "constructor": 1, "prototype": 2, "name": null }'),
    );
    expect(Object.getPrototypeOf(part)).toBe(Object.prototype);
    expect(part["isAdmin"]).toBeUndefined();
    expect(part).toMatchObject({ constructor: 1, prototype: 2 });
    expect(({} as { isAdmin?: unknown }).isAdmin).toBeUndefined();
  });

  it("keeps every key, and stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(messagePart, (written) => {
        const part = messagePartSchema.parse(written);
        expect(messagePartSchema.parse(part)).toStrictEqual(part);
        const metadata = written["metadata"] as object | null | undefined;
        expect(part).toEqual({
          ...plain,
          ...withoutNulls(written, ["name", "content_type", "content", "content_encoding", "content_url", "metadata"]),
          ...(metadata ? { metadata: withoutNulls(metadata, metadataKeys) } : {}),
        });
      }),
    );
  });
});

describe("a message", () => {
  const parts = [{ ...plain, content: "Hello" }];

  itAccepts(messageSchema, [
    ["no parts", { role: "user", parts: [] }],
    ["no role", { parts: [] }, { role: "user", parts: [] }],
    ["a null role", { role: null, parts: [] }, { role: "user", parts: [] }],
    ["an agent", { role: "agent", parts }],
    ["a named agent", { role: "agent/slow_echo-2", parts }],
    ["parts without their defaults", { parts: [{ content: "Hello" }] }, { role: "user", parts }],
    ["the same part twice", { role: "user", parts: [parts[0], parts[0]] }],
    [
      "timestamps, digit by digit",
      {
        role: "user",
        parts,
        created_at: "2026-01-31T12:00:00.123456Z",
        completed_at: "2026-01-31T13:00:01.000000+01:00",
      },
      {
        role: "user",
        parts,
        created_at: "2026-01-31T12:00:00.123456Z",
        completed_at: "2026-01-31T12:00:01.000000Z",
      },
    ],
    ["no creation time, in null", { role: "user", parts, created_at: null }, { role: "user", parts }],
    ["a message that is still open", { role: "agent", parts, created_at: "2026-01-31T12:00:00Z", completed_at: null }],
    ["unknown keys, which are dropped", { role: "user", parts, id: 7 }, { role: "user", parts }],
  ]);

  itRefuses(messageSchema, [
    ["no parts at all", { role: "user" }, ["parts"]],
    ["null parts", { parts: null }, ["parts"]],
    ["parts that are no list", { parts: {} }, ["parts"]],
    ["a null part", { parts: [null] }, ["parts", 0]],
    ["a part that is refused", { parts: [{}, { content: 1 }] }, ["parts", 1, "content"]],
    ["a string", "Hello", []],
    ["an assistant", { role: "assistant", parts }, ["role"]],
    ["an empty role", { role: "", parts }, ["role"]],
    ["an agent without its name", { role: "agent/", parts }, ["role"]],
    ["a dot in the agent's name", { role: "agent/a.b", parts }, ["role"]],
    ["a role in upper case", { role: "User", parts }, ["role"]],
    ["a role with a line break", { role: "user\n", parts }, ["role"]],
    ["a leap second", { parts, created_at: "2016-12-31T23:59:60Z" }, ["created_at"]],
    ["a completion time as a number", { parts, completed_at: 0 }, ["completed_at"]],
  ]);

  it("stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(message, (written) => {
        const read = messageSchema.parse(written);
        expect(messageSchema.parse(read)).toStrictEqual(read);
        expect(messageSchema.parse(JSON.parse(JSON.stringify(read)))).toEqual(JSON.parse(JSON.stringify(read)));
        expect("created_at" in read).toBe(typeof written["created_at"] === "string");
      }),
    );
  });
});

describe("the types", () => {
  it("are read-only", () => {
    expectTypeOf<Message["parts"]>().toEqualTypeOf<readonly MessagePart[]>();
    expectTypeOf<Message["role"]>().toEqualTypeOf<Role>();
    expectTypeOf<MessagePart["content_encoding"]>().toEqualTypeOf<"plain" | "base64">();
    expectTypeOf<readonly MessagePartInput[]>().toExtend<MessageInput["parts"]>();
  });

  it("have optional keys that are absent, not undefined", () => {
    expectTypeOf<{ content_type: string; content_encoding: "plain"; name: undefined }>().not.toExtend<MessagePart>();
    expectTypeOf<{ role: "user"; parts: []; completed_at: null }>().toExtend<Message>();
    expectTypeOf<{ role: "user"; parts: []; created_at: null }>().not.toExtend<Message>();
  });

  it("let a client send what it has read", () => {
    expectTypeOf<MessagePart>().toExtend<MessagePartInput>();
    expectTypeOf<Message>().toExtend<MessageInput>();
    expectTypeOf<{ content: string }>().toExtend<MessagePartInput>();
  });
});

const metadataKeys = [
  "start_index",
  "end_index",
  "url",
  "title",
  "description",
  "message",
  "tool_name",
  "tool_input",
  "tool_output",
];

function withoutNulls(record: object, keys: readonly string[]): object {
  return Object.fromEntries(Object.entries(record).filter(([key, value]) => value !== null || !keys.includes(key)));
}
