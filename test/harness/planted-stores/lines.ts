import { MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Query = Parameters<Store["lines"]>[0];
type Lines = ReturnType<MemoryStore["lines"]>;

const counted = "lines: how many runs hold a slot and wait for it, and which is next";
const left = "lines: a run that gets its permit, is looked at or ends waits for none";
const pages = "lines: in pages, in the order of the keys";

/** Faults in `lines`. */
export const linesFaults: readonly BrokenStore[] = [
  withLines("lines counts the runs that hold the slot as waiting", counted, (lines) =>
    lines.map((line) => ({ ...line, waiting: line.waiting + line.held })),
  ),
  withLines("lines gives the runs of one tenant", counted, (lines) =>
    lines.filter(({ first }) => first.key.tenant === "acme"),
  ),
  withLines("lines gives no version", counted, (lines) =>
    lines.map((line) => ({ ...line, first: { ...line.first, version: null } })),
  ),
  withLines("lines gives a slot that no run waits for any more", left, (lines, before) =>
    lines.length === 0 ? before : lines,
  ),
  withLines("lines gives the run that was next before", left, (lines, before) =>
    lines.map((line) => ({ ...line, first: before[0]?.first ?? line.first })),
  ),
  withQuery("lines begins with the last key of the page before", pages, ({ after, limit }) => ({
    after: after?.slice(0, -1),
    limit,
  })),
  withQuery("lines ignores the limit", pages, ({ after }) => ({ after, limit: 9 })),
  withLines("lines gives the keys in the opposite order", pages, (lines) => lines.toReversed()),
  withLines("lines gives a key as JSON", "lines: a key may be any text", (lines) =>
    lines.map((line) => ({ ...line, key: JSON.stringify(line.key) })),
  ),
  withLines("lines counts a thousand runs", "lines: waiting runs are counted up to a thousand and one", (lines) =>
    lines.map((line) => ({ ...line, waiting: Math.min(line.waiting, 1_000) })),
  ),
];

/** A store whose `lines` answers something else, which may depend on the answer before. */
function withLines(fault: string, caughtBy: string, twist: (lines: Lines, before: Lines) => Lines): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      #before: Lines = [];
      override lines(query: Query): Lines {
        const lines = super.lines(query);
        const answer = twist(lines, this.#before);
        this.#before = lines;
        return answer;
      }
    },
  );
}

/** A store that is asked for other lines. */
function withQuery(fault: string, caughtBy: string, twist: (query: Query) => Query): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override lines(query: Query): Lines {
        return super.lines(twist(query));
      }
    },
  );
}
