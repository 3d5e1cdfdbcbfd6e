import type { JsonObject, ProtocolError } from "cadenza";
import { describe, expectTypeOf, it } from "vitest";
import { errorSchema } from "../../src/protocol/error.ts";
import type { ErrorCode } from "../harness/internals.ts";
import { itAccepts, itRefuses } from "./tables.ts";

describe("an error", () => {
  itAccepts(errorSchema, [
    ["server_error", { code: "server_error", message: "It broke." }],
    ["invalid_input", { code: "invalid_input", message: "" }],
    ["not_found with data", { code: "not_found", message: "No such run.", data: { run_id: "1", at: null } }],
    [
      "null data",
      { code: "not_found", message: "No such run.", data: null },
      { code: "not_found", message: "No such run." },
    ],
    [
      "unknown keys, which are dropped",
      { code: "not_found", message: "?", stack: "…" },
      { code: "not_found", message: "?" },
    ],
  ]);

  itRefuses(errorSchema, [
    ["another code", { code: "timeout", message: "Too late." }, ["code"]],
    ["no code", { message: "?" }, ["code"]],
    ["no message", { code: "not_found" }, ["message"]],
    ["data in a list", { code: "not_found", message: "?", data: [] }, ["data"]],
    ["data in a string", { code: "not_found", message: "?", data: "?" }, ["data"]],
    ["null", null, []],
  ]);

  it("has a closed set of codes", () => {
    expectTypeOf<ErrorCode>().toEqualTypeOf<"server_error" | "invalid_input" | "not_found">();
    expectTypeOf<ProtocolError["data"]>().toEqualTypeOf<JsonObject | undefined>();
  });
});
