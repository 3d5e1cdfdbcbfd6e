import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { runIdSchema, sessionIdSchema } from "../../src/protocol/identifier.ts";
import { uuid } from "./arbitraries.ts";
import { itAccepts, itRefuses } from "./tables.ts";

const canonical = "0f8fad5b-d9cb-469f-a165-70867728950e";

describe.each([
  ["a run", runIdSchema],
  ["a session", sessionIdSchema],
])("the identifier of %s", (_of, schema) => {
  itAccepts(schema, [
    ["lower case with dashes", canonical],
    ["upper case", canonical.toUpperCase(), canonical],
    ["mixed case", canonical.replace("fad", "FaD"), canonical],
    ["no dashes", canonical.replaceAll("-", ""), canonical],
    ["upper case without dashes", canonical.replaceAll("-", "").toUpperCase(), canonical],
    ["the nil UUID", "00000000-0000-0000-0000-000000000000"],
    ["the max UUID", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    ["an unknown version and variant", "0f8fad5b-d9cb-f69f-0165-70867728950e"],
  ]);

  itRefuses(schema, [
    ["an empty string", "", []],
    ["a word", "session-1", []],
    ["a ULID", "01ARZ3NDEKTSV4RRFFQ69G5FAV", []],
    ["a digit too few", canonical.slice(1), []],
    ["a digit too many", `${canonical}0`, []],
    ["a letter beyond f", canonical.replace("f", "g"), []],
    ["some dashes missing", canonical.replace("-", ""), []],
    ["dashes at other positions", "0f8fad5bd-9cb-469f-a165-70867728950e", []],
    ["a URN", `urn:uuid:${canonical}`, []],
    ["braces", `{${canonical}}`, []],
    ["a line break at the end", `${canonical}\n`, []],
    ["null", null, []],
    ["a number", 7, []],
  ]);

  it("reads every spelling of one UUID as the same string", () => {
    fc.assert(
      fc.property(uuid, fc.boolean(), fc.boolean(), (id, isUpper, isBare) => {
        const cased = isUpper ? id.toUpperCase() : id;
        expect(schema.parse(isBare ? cased.replaceAll("-", "") : cased)).toBe(id);
      }),
    );
  });
});
