import type { Figures } from "./figures.ts";
import { medianOf } from "./figures.ts";
import { format } from "./rows.ts";

const panels = [
  { case: "runs", figure: "in turn", title: "Runs a second, one after the other" },
  { case: "awaits", figure: "in turn", title: "Runs a second that ask and are answered" },
  { case: "streams", figure: "1,000 parts", title: "Parts a second, in streams of 1,000" },
  { case: "waiting", figure: "bytes", title: "Bytes of heap for a run that waits (less is better)" },
];
const subjects = [
  ["cadenza", "Cadenza"],
  ["a2a", "A2A SDK"],
  ["langgraph", "LangGraph"],
  ["mastra", "Mastra"],
  ["xstate", "XState"],
  ["bare-duties", "by hand, same duties"],
] as const;

const BAR = 14;
const STEP = 20;
const PANEL = { width: 440, height: 34 + subjects.length * STEP, gap: 24 };
const LABEL_WIDTH = 140;
const BAR_WIDTH = 220;

/** The figures of the peers as bars, in SVG. Each panel has a scale of its own that begins at zero. */
export function chart(figures: Figures): string {
  const width = 2 * PANEL.width + PANEL.gap;
  const height = 2 * PANEL.height + PANEL.gap + 20;
  const drawn = panels.flatMap((panel, index) => {
    const x = (index % 2) * (PANEL.width + PANEL.gap);
    const y = Math.floor(index / 2) * (PANEL.height + PANEL.gap);
    return [`<g transform="translate(${x} ${y})">`, ...drawPanel(figures, panel), "</g>"];
  });
  const { date, node, machine, rounds } = figures;
  const note = `Medians of ${rounds} rounds, ${date}, Node ${node}, ${machine.processor}, ${machine.cores} cores`;
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    "<title>Cadenza beside its peers</title>",
    "<style>",
    "text { font: 12px system-ui, sans-serif; fill: #24292f }",
    ".title { font-weight: 600 } .note { font-size: 11px; fill: #57606a }",
    ".bar { fill: #8c959f } .cadenza { fill: #1f6feb }",
    "@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9198a1 } .bar { fill: #6e7681 } .cadenza { fill: #4493f8 } }",
    "</style>",
    ...drawn,
    `<text class="note" x="0" y="${height - 6}">${escaped(note)}</text>`,
    "</svg>",
  ].join("\n")}\n`;
}

function drawPanel(figures: Figures, panel: (typeof panels)[number]): string[] {
  const values = subjects.map(([subject]) => medianOf(figures, panel.case, subject, panel.figure) ?? 0);
  const largest = Math.max(...values, 1);
  const bars = subjects.flatMap(([subject, name], index) => {
    const y = 24 + index * STEP;
    const value = values[index] ?? 0;
    const length = Math.max(1, Math.round((value / largest) * BAR_WIDTH));
    const kind = subject === "cadenza" ? "cadenza" : "bar";
    return [
      `<text x="${LABEL_WIDTH - 8}" y="${y + BAR - 3}" text-anchor="end">${escaped(name)}</text>`,
      `<rect class="${kind}" x="${LABEL_WIDTH}" y="${y}" width="${length}" height="${BAR}" rx="2"/>`,
      `<text x="${LABEL_WIDTH + length + 6}" y="${y + BAR - 3}">${value === 0 ? "not measured" : format(value)}</text>`,
    ];
  });
  return [`<text class="title" x="0" y="12">${escaped(panel.title)}</text>`, ...bars];
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
