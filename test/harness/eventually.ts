import { vi } from "vitest";

/** Less than the time of a test, so that the message says what was expected and never came. */
const MOST_MS = 50_000;

/** Resolves when what is expected holds. How long that takes depends on the machine, and is nothing that a test may judge. */
export function eventually<T>(expected: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(expected, MOST_MS);
}
