import { badArgument, checkWithin } from "../agent/check.ts";

/** How many items a page has, if the caller does not say it. */
const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 500;

/** The place where a page begins, as a text. */
export function cursorOf(place: number | string | readonly string[]): string {
  return btoa(encodeURIComponent(JSON.stringify(place)));
}

/** The opposite of `cursorOf`, for places that are numbers. Throws `invalid_argument`. */
export function readPlace(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  const place = parse(cursor);
  if (typeof place === "number") return place;
  throw invalidCursor(cursor);
}

/** The same for places that are a text. */
export function readText(cursor: string | undefined): string | undefined {
  if (cursor === undefined) return undefined;
  const place = parse(cursor);
  if (typeof place === "string") return place;
  throw invalidCursor(cursor);
}

/** The same for places that are two texts. */
export function readPair(cursor: string | undefined): readonly [string, string] | undefined {
  if (cursor === undefined) return undefined;
  const place = parse(cursor);
  const [one, other] = Array.isArray(place) ? (place as unknown[]) : [];
  if (typeof one === "string" && typeof other === "string") return [one, other];
  throw invalidCursor(cursor);
}

function parse(cursor: string): unknown {
  try {
    return JSON.parse(decodeURIComponent(atob(cursor)));
  } catch {
    throw invalidCursor(cursor);
  }
}

function invalidCursor(cursor: unknown): Error {
  return badArgument("cursor", "the `next` of a page of the same call", cursor);
}

/** How many items a page is to have. Throws `invalid_argument`. */
export function readLimit(limit: number | undefined): number {
  if (limit === undefined) return DEFAULT_LIMIT;
  return checkWithin("limit", limit, 1, MAX_LIMIT);
}
