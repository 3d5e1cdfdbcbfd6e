import { CadenzaError } from "../core/errors.ts";
import type { FeedOptions } from "../core/feed.ts";
import type { FeedItem, FeedQuery } from "../core/ports.ts";

/** Throws `invalid_argument` unless these are the options of a feed, or false. */
export function checkFeed(feed: FeedOptions | false | undefined): void {
  if (feed === undefined || feed === false || (typeof feed?.keepMs === "number" && feed.keepMs >= 0)) return;
  throw new CadenzaError("invalid_argument", "feed: expected { keepMs }, a number of milliseconds from 0 to Infinity.");
}

/** Whether a query asks for an event. */
export function isWanted({ key, event }: FeedItem, { tenant, types }: Pick<FeedQuery, "tenant" | "types">): boolean {
  return (tenant === undefined || key.tenant === tenant) && (types === undefined || types.includes(event.type));
}
