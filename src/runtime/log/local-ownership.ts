import { ignore } from "../../core/promises.ts";
import type { Ownership } from "./ownership.ts";

const nothing = (): undefined => undefined;

/** The ownership of all runs in a store that only this process uses. It has no state. */
export const localOwnership: Ownership = {
  told: nothing,
  sync: nothing,
  slotOf: nothing,
  prepare: ignore,
  operations: nothing,
  mismatch: undefined,
  isCatchingUp: false,
  whenAnswerable: nothing,
  onCommit: ignore,
  onGone: ignore,
  setSubRun: ignore,
  settle: ignore,
  mayLeave: false,
  release: nothing,
};
