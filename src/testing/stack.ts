/** Deep enough for a timer that a library sets on behalf of the agent. */
const FRAMES = 50;

/** The lines of the stack below a function that is running, the innermost caller first. Nothing is known of the names of files: a bundler changes them. */
export function callersOf(callee: (...parameters: never[]) => unknown): readonly string[] {
  const holder: { stack?: unknown } = {};
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = FRAMES;
  Error.captureStackTrace(holder, callee);
  const { stack } = holder;
  Error.stackTraceLimit = limit;
  return typeof stack === "string" ? stack.split("\n").slice(1) : [];
}

/** The first of these lines that is the user's own, as `booking.ts:12:5`; else the first that is not Node's. */
export function placeOf(callers: readonly string[]): string | undefined {
  const outside = callers.filter((line) => !/\(?node:|<anonymous>|native/.test(line));
  const line = outside.find((text) => !/[/\\]node_modules[/\\]/.test(text)) ?? outside[0];
  return line === undefined ? undefined : /([^/\\(\s]+:\d+:\d+)\)?$/.exec(line)?.[1];
}
