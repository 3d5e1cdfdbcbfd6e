/** Whether a text holds another, or fits a pattern. A pattern with `g` or `y` would remember where it was. */
export function matches(text: string, pattern: string | RegExp): boolean {
  return typeof pattern === "string"
    ? text.includes(pattern)
    : new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")).test(text);
}
