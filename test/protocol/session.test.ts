import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { postedSessionSchema, sessionDescriptorSchema } from "../../src/protocol/session.ts";
import { sessionDescriptor } from "./arbitraries.ts";
import { changed, itAccepts, itRefuses, without } from "./tables.ts";

const session = {
  id: "0f8fad5b-d9cb-469f-a165-70867728950e",
  history: ["http://localhost:8000/resources/1", "https://EXAMPLE.com/resources/2"],
  state: "https://example.com/state",
};

describe.each([
  ["a session", sessionDescriptorSchema],
  ["a session that a client brings along", postedSessionSchema],
])("%s", (_what, schema) => {
  itAccepts(schema, [
    ["everything", session],
    ["an empty history", { ...session, history: [] }],
    ["no state", without(session, "state")],
    ["a null state", { ...session, state: null }, without(session, "state")],
    ["an id in upper case", { ...session, id: session.id.toUpperCase() }, session],
    ["unknown keys, which are dropped", { ...session, owner: "a" }, session],
  ]);
  itRefuses(schema, [
    ["an id that is no UUID", changed(session, { id: "my-session" }), ["id"]],
    ["a relative URL in the history", changed(session, { history: ["https://a.b/", "/resources/1"] }), ["history", 1]],
    ["a data URL in the history", changed(session, { history: ["data:,a"] }), ["history", 0]],
    ["a null URL in the history", changed(session, { history: [null] }), ["history", 0]],
    ["a history that is no list", changed(session, { history: "https://a.b/" }), ["history"]],
    ["a relative URL of the state", changed(session, { state: "/state" }), ["state"]],
    ["a file as state", changed(session, { state: "file:///etc/passwd" }), ["state"]],
  ]);

  it("stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(sessionDescriptor, (written) => {
        const read = schema.parse(written);
        expect(schema.parse(read)).toStrictEqual(read);
      }),
    );
  });
});

describe("a session", () => {
  itRefuses(sessionDescriptorSchema, [
    ["no id", without(session, "id"), ["id"]],
    ["no history", without(session, "history"), ["history"]],
  ]);
});

describe("a session that a client brings along", () => {
  itAccepts(postedSessionSchema, [
    ["an empty object", {}, { history: [] }],
    ["nulls", { id: null, history: null, state: null }, { history: [] }],
  ]);
});
