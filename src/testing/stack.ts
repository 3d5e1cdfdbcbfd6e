/** Enough frames for a timer that a library sets on behalf of the agent. */
const FRAMES = 50;

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
  const outside = callers.filter((line) => !/\(?node:|<anonymous>|native/.test(line));
  const line = outside.find((text) => !/[/\\]node_modules[/\\]/.test(text)) ?? outside[0];
  return line === undefined ? undefined : /(?:\(|at (?:async )?)(?:file:\/\/)?([^(]+:\d+:\d+)\)?$/.exec(line)?.[1];
}
