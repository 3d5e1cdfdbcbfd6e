/** Enough frames for a timer that a library sets on behalf of the agent. */
const FRAMES = 50;
/** The place in a line of a stack, in brackets or not. Frames of the language have none, such as `at new Promise (<anonymous>)`. */
const PLACE = /^ *at (?:async )?(?:[^(]* \((?:file:\/\/)?(.+:\d+:\d+)\)|(?:file:\/\/)?(.+:\d+:\d+))$/;

/**
 * The lines of the stack below a running function, the innermost caller first. Does not rely on file names: a bundler
 * changes them.
 */
export function callersOf(callee: (...parameters: never[]) => unknown): readonly string[] {
  const holder: { stack?: unknown } = {};
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = FRAMES;
  Error.captureStackTrace(holder, callee);
  const { stack } = holder;
  Error.stackTraceLimit = limit;
  return typeof stack === "string" ? stack.split("\n").slice(1) : [];
}

/** The first of these lines in the user's own code, as `booking.ts:12:5`; else the first outside of Node. */
export function placeOf(callers: readonly string[]): string | undefined {
  return /[^/\\]+$/.exec(userPlaceOf(callers) ?? "")?.[0];
}

/** The same with the whole path of the file. */
export function userPlaceOf(callers: readonly string[]): string | undefined {
  const outside = callers.map(placeIn).filter((place) => place !== undefined && !place.startsWith("node:"));
  return outside.find((place) => !/[/\\]node_modules[/\\]/.test(place ?? "")) ?? outside[0];
}

function placeIn(line: string): string | undefined {
  const found = PLACE.exec(line);
  return found?.[1] ?? found?.[2];
}
