import type { Ids } from "../core/ports.ts";

/**
 * Identifiers that are the same in every test: `00000000-0000-4000-8000-000000000001` and so on. `first` sets the first
 * one.
 */
export function sequentialIds(first?: string): Ids {
  let last = 0;
  let lastToken = 0;
  let given = first;
  const next = (): string => {
    const id = given ?? `00000000-0000-4000-8000-${String(++last).padStart(12, "0")}`;
    given = undefined;
    return id;
  };
  return {
    uuid: next,
    token: () => `token-${++lastToken}`,
  };
}
