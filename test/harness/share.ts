/*
 * The long tests try a share of their cases in `npm test`. `npm run stress -- all` and `.ci/run` run the same tests with all of
 * them.
 */

const isAll = process.env["CADENZA_TESTS"] === "all";

/** How many cases a test tries: `all` in `npm run stress -- all`, else `share`. */
export function share(all: number, share: number): number {
  return isAll ? all : share;
}

/** One of `every` cases, from the second on; in `npm run stress -- all` each of them. */
export function oneOf<T>(every: number, cases: readonly T[]): readonly T[] {
  return isAll ? cases : cases.filter((_, index) => index % every === 1);
}
