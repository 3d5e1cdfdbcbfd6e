import { expect, it } from "vitest";
import type { Schema } from "../../src/inspector-page/schema.ts";
import { firstValue, resolved, shownAs } from "../../src/inspector-page/schema.ts";
import { wideSchema } from "../harness/wide-schema.ts";

const node: Schema = {
  type: "object",
  properties: { name: { type: "string" }, parent: { $ref: "#" } },
  required: ["name"],
};

const wide = wideSchema(7) as Schema;

it.each<[what: string, schema: Schema, root: Schema, above: readonly Schema[], isRequired: boolean, is: string]>([
  ["an object at the top", node, node, [], true, "field"],
  ["an object within itself", { $ref: "#" }, node, [node], true, "behind add"],
  ["an object that may be left out", { type: "object", properties: {} }, node, [node], false, "behind add"],
  ["a required object", { type: "object", properties: {} }, node, [node], true, "field"],
  ["a text that may be left out", { type: "string" }, node, [node], false, "field"],
  ["a reference to nothing", { $ref: "#/$defs/100%" }, node, [node], true, "field"],
  ["more fields than fit a page", wide, wide, [], true, "json"],
])("the form shows %s as it is bearable", (_, schema, root, above, isRequired, is) => {
  expect(shownAs(schema, root, above, isRequired).is).toBe(is);
});

it.each<[what: string, schema: Schema, value: unknown]>([
  ["an object", { ...node, required: ["name", "parent"] }, {}],
  ["an object with a default", { type: "object", properties: { a: { type: "string", default: "x" } } }, { a: "x" }],
  ["variants of itself", { anyOf: [{ $ref: "#" }] }, undefined],
  ["a reference to itself", { $ref: "#" }, undefined],
  ["more fields than fit a page", wide, undefined],
])("the first value of %s ends", (_, schema, value) => {
  expect(firstValue(schema, schema)).toEqual(value);
});

it("a reference that is no address of a schema is a schema without rules", () => {
  expect(resolved({ $ref: "#/$defs/100%" }, node)).toEqual({});
  expect(resolved({ $ref: 7 } as unknown as Schema, node)).toEqual({});
});
