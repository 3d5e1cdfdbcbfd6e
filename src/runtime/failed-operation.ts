import { inBackground } from "../core/background.ts";
import { isSubRun } from "../core/operation-keys.ts";
import type { Logger } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";

/** The operations that have rejected with an error, or have resolved with the record of a run, by that object. */
const operations = new WeakMap<object, string>();

/** Notes what an operation gives to its agent, before the agent has it. The promise is observed. */
export function noteOperation(key: string, given: Promise<unknown>, logger: Logger): void {
  const note = (one: unknown): void => {
    if (isObject(one)) operations.set(one, key);
  };
  inBackground(logger, given.then(isSubRun(key) ? note : ignore, note));
}

/**
 * The operation that an error came from: itself, its cause, or the run that it tells of. Undefined: from none. Never
 * throws: an agent may throw a proxy, or an error whose fields throw.
 */
export function operationBehind(error: unknown): string | undefined {
  try {
    return findBehind(error);
  } catch {
    return undefined;
  }
}

function findBehind(error: unknown): string | undefined {
  const seen = new Set<unknown>();
  for (let at = error; isObject(at) && !seen.has(at); at = (at as { cause?: unknown }).cause) {
    seen.add(at);
    const { run } = at as { run?: unknown };
    const key = operations.get(at) ?? (isObject(run) ? operations.get(run) : undefined);
    if (key !== undefined) return key;
  }
  return undefined;
}

/** Whether an error is that of an operation itself, so that the log has it there. */
export function isOfOperation(error: unknown): boolean {
  return isObject(error) && operations.has(error);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
