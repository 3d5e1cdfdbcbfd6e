import { CadenzaError } from "./errors.ts";
import type { EmittedEntry, Entry } from "./log.ts";
import type { Mismatch, RunKey } from "./ports.ts";

/**
 * The format of the logs that this version of the library writes. It goes up when an older version would misread what a
 * newer one writes: where an old kind of entry gets another meaning. Format 1 is left out in the log. A new kind of entry
 * leaves the format as it is. A version that knows formats refuses the kinds that it does not know, and executes the
 * runs that have none of them. Format 2 came with `attempt-failed`.
 */
export const LOG_FORMAT = 2;

/** Each kind of entry that this version knows. The compiler compares the table with the type. */
export const kinds: Readonly<Record<Entry["type"], true>> = {
  created: true,
  forked: true,
  started: true,
  emitted: true,
  torn: true,
  intent: true,
  "attempt-failed": true,
  step: true,
  awaited: true,
  resumed: true,
  declined: true,
  withdrawn: true,
  "timed-out": true,
  exceeded: true,
  settled: true,
  offered: true,
  refused: true,
  received: true,
  taken: true,
  patched: true,
  moved: true,
  "cancel-requested": true,
  continued: true,
  ended: true,
};
const emittedKinds: Readonly<Record<EmittedEntry["kind"], true>> = {
  part: true,
  message: true,
  generic: true,
  close: true,
};

/**
 * Refuses what this version would misread: entries of a kind that it does not know, and entries that say a newer format.
 * `created` says the format of the version that has created the run. A newer version that goes on with an older log says
 * its format in the first entry that an older one would misread. Throws `newer_format`. `from` is the position of the
 * first of the entries.
 */
export function checkFormat(key: RunKey, from: number, entries: readonly Entry[]): void {
  for (let index = 0; index < entries.length; index++) {
    const entry = entries[index];
    if (entry !== undefined && !isKnown(entry)) throw newerError(key, from + index, entry);
  }
}

function isKnown(entry: Entry): boolean {
  if (!Object.hasOwn(kinds, entry.type)) return false;
  if (entry.type === "emitted" && !Object.hasOwn(emittedKinds, entry.kind)) return false;
  return !("format" in entry) || entry.format === undefined || Number(entry.format) <= LOG_FORMAT;
}

/** What a newer version of the library has written, and this one cannot read. */
class NewerEntry extends Error {
  override readonly name = "NewerEntry";
  readonly mismatch: Mismatch;

  constructor(mismatch: Mismatch) {
    super(`${mismatch.expected}; ${mismatch.asked}`);
    this.mismatch = mismatch;
  }
}

function newerError({ run_id }: RunKey, position: number, entry: Entry): CadenzaError {
  const { type, kind, format }: { readonly type: string; readonly kind?: unknown; readonly format?: unknown } = entry;
  const name = kind === undefined || type !== "emitted" ? type : `${type} (${String(kind)})`;
  const expected = `${name}${format === undefined ? "" : ` of format ${String(format)}`}`;
  const asked = `this version of cadenza, which knows formats up to ${LOG_FORMAT}, cannot read it`;
  return newerFormatError(run_id, { position, expected, asked, newer: true });
}

/** The error for a run that a newer version of the library has written to. */
export function newerFormatError(runId: string, mismatch: Mismatch): CadenzaError {
  const message =
    `Run ${runId} was written by a newer version of cadenza: position ${mismatch.position} of its log holds ${mismatch.expected}, ` +
    `and ${mismatch.asked}. The run is left to processes that can read it. Update cadenza in this one.`;
  return new CadenzaError("newer_format", message, { run_id: runId, cause: new NewerEntry(mismatch) });
}

/** Where the log of a run begins to be unreadable for this version. Undefined: the error is about something else. */
export function newerPart(error: unknown): Mismatch | undefined {
  const cause = CadenzaError.is(error) && error.code === "newer_format" ? error.cause : undefined;
  return cause instanceof NewerEntry ? cause.mismatch : undefined;
}
