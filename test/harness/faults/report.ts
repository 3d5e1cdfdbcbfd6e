import type { Anomaly } from "./judge.ts";

/* The text of an anomaly, with the evidence that explains it. */

const MAX_LINES = 60;
/** How many entries of other runs are printed. */
const MAX_OF_RELATIVE = 6;
const MAX_WIDTH = 260;

export function describe(anomaly: Anomaly, seed: string): string {
  const { kind, what, run_id, plan, log, lines, place, relatives, told } = anomaly;
  const shown = lines.map((line) => `${line.place === place ? "→" : " "} ${short(line)}`);
  return [
    `${kind.toUpperCase()}: run ${run_id} ${what}`,
    `  seed ${seed}`,
    `  plan ${cut(plan)}`,
    `  the client ${told}`,
    "  log:",
    ...around(log.map(short), undefined).map((line) => `    ${line}`),
    "  the lines of its agents:",
    ...around(
      shown,
      shown.findIndex((line) => line.startsWith("→")),
    ).map((line) => `    ${line}`),
    ...relatives.flatMap((relative) => [
      `  the end of the log of ${relative.run_id}:`,
      ...relative.log.slice(-MAX_OF_RELATIVE).map((entry) => `    ${short(entry)}`),
    ]),
  ].join("\n");
}

/** How many anomalies there are of each kind. */
export function kindsOf(anomalies: readonly Anomaly[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of anomalies) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** The lines around one, or the last ones. */
function around(lines: readonly string[], index: number | undefined): readonly string[] {
  if (lines.length <= MAX_LINES) return lines;
  const middle = index === undefined || index < 0 ? lines.length : index;
  const from = Math.max(0, Math.min(middle - MAX_LINES / 2, lines.length - MAX_LINES));
  return [`… ${from} before`, ...lines.slice(from, from + MAX_LINES), `… ${lines.length - from - MAX_LINES} after`];
}

function short(value: object): string {
  return cut(JSON.stringify(value));
}

function cut(text: string): string {
  return text.length <= MAX_WIDTH ? text : `${text.slice(0, MAX_WIDTH)}…`;
}
