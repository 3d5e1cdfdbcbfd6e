/** Whether a text contains another, or matches a pattern. The `lastIndex` of a `g` or `y` pattern is ignored. */
export function matches(text: string, pattern: string | RegExp): boolean {
  return typeof pattern === "string"
    ? text.includes(pattern)
    : new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")).test(text);
}
