import type { Entry } from "./log.ts";

/* Where entries are in a log of which earlier generations may be deleted: behind these a `continued` entry says where it is. */

/** The position behind an entry that is read at a position, or at the next one that the log has. */
export function behind(position: number, entry: Entry): number {
  return (entry.type === "continued" ? entry.position : position) + 1;
}

/** The position of an entry among those that are read from a position on. */
export function positionIn(entries: readonly Entry[], index: number, from = 0): number {
  const begin = entries.findLastIndex(({ type }, at) => at <= index && type === "continued");
  const generation = entries[begin];
  return generation?.type === "continued" ? generation.position + index - begin : from + index;
}
