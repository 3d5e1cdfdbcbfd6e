import { CadenzaError } from "../../core/errors.ts";
import type { Loss } from "../../core/exact-json.ts";
import { exactJson } from "../../core/exact-json.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { describe, pathOf, writePath } from "./check.ts";

/**
 * Copies the result of a durable step as JSON. Throws `invalid_argument` for a value that JSON would lose or change.
 */
export function recordedResult(key: string, result: unknown): JsonValue | undefined {
  return exactJson(result, (loss) =>
    refusal(`Step ${key}: `, "result", loss, "The result of a durable step is recorded as JSON."),
  );
}

/**
 * Copies a value as JSON; undefined stays undefined. Throws `invalid_argument` for a value that JSON would lose or
 * change.
 */
export function recordedValue(name: string, value: unknown): JsonValue | undefined {
  return exactJson(value, (loss) => refusal("", name, loss, "It is kept as JSON."));
}

function refusal(what: string, name: string, { path, value, reason }: Loss, why: string): CadenzaError {
  const whole = [...pathOf(name), ...path];
  const received = unseen[reason] ?? describe(value);
  const message =
    `${what}${writePath(whole)}: expected a JSON value, received ${received}. ${why} ` +
    "JSON has texts, finite numbers, true, false, null, lists and plain objects.";
  return new CadenzaError("invalid_argument", message, { issues: [{ path: whole, message }] });
}

const unseen: Partial<Record<Loss["reason"], string>> = {
  cycle: "an object that contains itself",
  depth: "an object that is nested more than 1,000 deep",
};
