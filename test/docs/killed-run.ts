import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as after } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/* The picture on the first screen of the README: a run whose process is killed, and that goes on in another one. */

const PROCESS = fileURLToPath(new URL("./killed-run-process.ts", import.meta.url));
/** How long the second step works before its process is killed, and how long the question waits, in milliseconds. */
const WORKED_MS = 550;
const WAITED_MS = 1_100;

/** What a process says of the run. */
export interface Said {
  readonly what: "runs" | "begins" | "ends" | "asks" | "answered";
  readonly name: string;
  /** In milliseconds since 1970. */
  readonly at: number;
}

/** What happened to the run. */
export interface KilledRun {
  readonly first: readonly Said[];
  readonly killedAt: number;
  readonly startedAt: number;
  readonly second: readonly Said[];
}

/** Runs an agent in a process, kills that during a step, and lets another one go on. */
export async function killRun(): Promise<KilledRun> {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-picture-"));
  try {
    const begun = start(join(folder, "runs.db"));
    const { name: run_id } = await begun.until("runs");
    await begun.until("begins", "hold a seat");
    await after(WORKED_MS);
    begun.child.kill("SIGKILL");
    await begun.gone;
    const killedAt = Date.now();
    const next = start(join(folder, "runs.db"), run_id);
    await next.until("asks");
    await after(WAITED_MS);
    next.child.send(run_id);
    await next.until("ends", "the run");
    await next.gone;
    const startedAt = (await next.until("runs")).at;
    return { first: begun.said, killedAt, startedAt, second: next.said };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Started {
  readonly child: ChildProcess;
  readonly said: readonly Said[];
  readonly gone: Promise<unknown>;
  /** Resolves with what the process says of this. */
  until(what: Said["what"], name?: string): Promise<Said>;
}

function start(...given: readonly string[]): Started {
  const child = fork(PROCESS, given, { execArgv: ["--import", "tsx", "--no-warnings"] });
  const said: Said[] = [];
  child.on("message", (one) => said.push(one as Said));
  const gone = once(child, "exit");
  return {
    child,
    said,
    gone,
    async until(what, name) {
      for (;;) {
        const found = said.find((one) => one.what === what && (name === undefined || one.name === name));
        if (found !== undefined) return found;
        await once(child, "message");
      }
    },
  };
}

const WIDTH = 860;
const LEFT = 92;
const LANES = { first: 26, second: 92 };
const BAR = 34;

/** The run in SVG, to the scale of its times. */
export function pictureOf({ first, killedAt, startedAt, second }: KilledRun): string {
  const from = first[0]?.at ?? 0;
  const to = second.at(-1)?.at ?? 0;
  const x = (at: number): number => Math.round(LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - 12));
  const bar = (y: number, kind: string, begin: number, end: number, text: string): string =>
    `<rect class="${kind}" x="${x(begin)}" y="${y}" width="${Math.max(2, x(end) - x(begin) - 2)}" height="${BAR}" rx="4"/>` +
    `<text class="in" x="${x(begin) + 8}" y="${y + 21}">${text}</text>`;
  const steps = (said: readonly Said[], y: number): string[] =>
    said.flatMap(({ what, name, at }) => {
      const end = said.find((one) => one.what === "ends" && one.name === name)?.at;
      return what === "begins" ? [bar(y, end === undefined ? "lost" : "step", at, end ?? killedAt, name)] : [];
    });
  const asked = second.find(({ what }) => what === "asks")?.at ?? to;
  const answered = second.find(({ what }) => what === "answered")?.at ?? to;
  const again = second.find(({ what }) => what === "begins")?.at ?? to;
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} 150" width="${WIDTH}" height="150" role="img">`,
    "<title>A run whose process is killed during its second step goes on in another process: the first step is not run again, the question waits for its answer, the last step is run</title>",
    "<style>",
    "text { font: 13px system-ui, sans-serif; fill: #24292f } .in { fill: #fff; font-weight: 600 } .note { font-size: 12px; fill: #57606a }",
    ".step { fill: #1f6feb } .lost { fill: #cf222e } .asks { fill: #8250df } .line { stroke: #d0d7de; stroke-width: 2 } .kill { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 4 3 }",
    "@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9198a1 } .line { stroke: #3d444d } .step { fill: #1158c7 } .lost { fill: #b62324 } .asks { fill: #6e40c9 } }",
    "</style>",
    `<text x="0" y="${LANES.first + 21}">process 1</text>`,
    `<text x="0" y="${LANES.second + 21}">process 2</text>`,
    `<line class="line" x1="${LEFT}" y1="${LANES.first + BAR + 6}" x2="${x(killedAt)}" y2="${LANES.first + BAR + 6}"/>`,
    `<line class="line" x1="${x(startedAt)}" y1="${LANES.second + BAR + 6}" x2="${x(to)}" y2="${LANES.second + BAR + 6}"/>`,
    ...steps(first, LANES.first),
    `<line class="kill" x1="${x(killedAt)}" y1="8" x2="${x(killedAt)}" y2="${LANES.first + BAR + 12}"/>`,
    `<text class="note" x="${x(killedAt) + 6}" y="18">kill -9</text>`,
    ...steps(second, LANES.second),
    `<text class="note" x="${x(again) - 6}" y="${LANES.second - 6}" text-anchor="end">“find a train” comes from the log</text>`,
    bar(LANES.second, "asks", asked, answered, "Book it?"),
    `<text class="note" x="${x(asked) + 2}" y="${LANES.second - 6}">waits for a person, needs no process</text>`,
    "</svg>",
  ].join("\n")}\n`;
}
