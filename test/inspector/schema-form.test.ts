import { expect, it } from "vitest";
import type { Schema } from "../../src/inspector-page/schema.ts";
import { firstValue, pressesOf, resolved, shownAs } from "../../src/inspector-page/schema.ts";
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

const yes: Schema = { type: "boolean" };
const text: Schema = { type: "string" };
const of = (properties: Readonly<Record<string, Schema>>, ...required: readonly string[]): Schema => ({
  ...{ type: "object", properties, required },
});

it.each<[what: string, schema: Schema, isApproval: boolean, member: string | null | undefined, values?: unknown]>([
  ["a yes or no", yes, false, null, [true, false]],
  ["a reference to one", { $ref: "#/$defs/it", ...({ $defs: { it: yes } } as object) }, false, null, [true, false]],
  ["few texts", { enum: ["ship", "wait"] }, false, null, ["ship", "wait"]],
  ["many texts", { enum: ["a", "b", "c", "d", "e", "f"] }, false, undefined],
  ["numbers", { enum: [1, 2] }, false, undefined],
  ["an object with a yes or no alone", of({ ok: yes }, "ok"), false, "ok", [true, false]],
  ["one beside what may be left out", of({ ok: yes, note: text }, "ok"), false, "ok", [true, false]],
  ["one beside what is needed", of({ ok: yes, note: text }, "ok", "note"), false, undefined],
  ["an approval beside what is needed", of({ ok: yes, note: text }, "ok", "note"), true, "ok", [true, false]],
  ["an approval of two things", of({ ok: yes, too: yes }, "ok", "too"), true, undefined],
  ["one with a default", of({ ok: { ...yes, default: true } }, "ok"), false, undefined],
  ["a text", text, true, undefined],
])("%s is answered by a button for each value, or not", (_, schema, isApproval, member, values) => {
  const presses = pressesOf(schema, isApproval);
  expect([presses?.member, presses?.values]).toEqual([member, values]);
});
