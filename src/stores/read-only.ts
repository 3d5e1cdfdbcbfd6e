import { CadenzaError } from "../core/errors.ts";

/* Stores that were opened with `readOnly`. */

/** The error with which a read-only store refuses a write. */
export function readOnlyError(): CadenzaError {
  return new CadenzaError(
    "store_failed",
    "The store was opened with `readOnly`: nothing is written to it. Open it without, to write.",
  );
}

/** The engine of a read-only store: no runtime can execute runs there. */
export function noEngine(): never {
  throw new CadenzaError(
    "invalid_argument",
    "store: expected a store that a runtime may write to, received one that was opened with `readOnly`. `createAdmin({ store })` reads it.",
  );
}
