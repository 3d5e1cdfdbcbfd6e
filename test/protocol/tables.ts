import { expect, it } from "vitest";
import type * as z from "zod";

/** An input that a schema takes, and its output; without an output, an equal value. */
export type AcceptedRow = readonly [title: string, input: unknown, output?: unknown];

/** An input that a schema refuses, and the path of its first issue. */
export type RefusedRow = readonly [title: string, input: unknown, path: readonly PropertyKey[]];

export function itAccepts(schema: z.ZodType, rows: readonly AcceptedRow[]): void {
  it.each(rows)("accepts %s", (...row) => {
    const [, input, output = input] = row;
    const before = structuredClone(input);
    const parsed = schema.parse(input);
    expect(parsed).toStrictEqual(output);
    expect(schema.parse(parsed)).toStrictEqual(output);
    expect(input).toStrictEqual(before);
  });
}

export function itRefuses(schema: z.ZodType, rows: readonly RefusedRow[]): void {
  it.each(rows)("refuses %s", (_title, input, path) => {
    const reading = schema.safeParse(input);
    expect(reading.success).toBe(false);
    expect(reading.error?.issues[0]?.path).toEqual(path);
    expect(reading.error?.issues[0]?.message).not.toBe("");
  });
}

/** A copy of an object with other values at some keys. */
export function changed(record: object, changes: object): object {
  return { ...record, ...changes };
}

/** A copy of an object without one of its keys. */
export function without(record: object, key: string): object {
  return Object.fromEntries(Object.entries(record).filter(([name]) => name !== key));
}
