/** The least and the greatest value. */
export function rangeOf(values: readonly number[]): string {
  return values.length === 1 ? "" : `${format(Math.min(...values))} – ${format(Math.max(...values))}`;
}

/** A row of a table in Markdown. */
export function row(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`.replaceAll(/\| {2}(?=\|)/g, "| ");
}

/** Three significant digits, or all digits of a large number. */
export function format(value: number): string {
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(3)).toString();
}
