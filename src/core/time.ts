/**
 * The time as the protocol writes it: ISO 8601 in UTC, ending in `Z`.
 * The last answer is kept, since the entries of a busy moment share their millisecond.
 */
export function isoTime(epochMs: number): string {
  if (epochMs !== lastMs) {
    lastIso = new Date(epochMs).toISOString();
    lastMs = epochMs;
  }
  return lastIso;
}

let lastMs = 0;
let lastIso = "1970-01-01T00:00:00.000Z";
