import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Result } from "./figures.ts";
import { measureInstalled } from "./installed.ts";
import type { Turn } from "./plan.ts";

const WORKER = fileURLToPath(new URL("measure/worker.mjs", import.meta.url));
const LIMIT_MS = 300_000;
const HEAP_MB = 12_288;
/** Importing takes little time, and varies more than the rest. */
const MORE_OFTEN: Readonly<Record<string, number>> = { imports: 3 };
/** The size of an installation is the same each time. The others take long, and count or have a median of their own. */
const ONCE: readonly string[] = ["installed", "looking", "log"];

/** How to measure. */
export interface TurnOptions {
  readonly rounds: number;
  /** Tiny counts, for a test of the benchmark itself. Default: false. */
  readonly quick?: boolean;
  /** The Node that runs the measurements. Default: this one. */
  readonly node?: string | undefined;
  /** The path or URL of the module to measure as the library. Default: `dist/index.js`. */
  readonly library?: string | undefined;
  /** Called after each measurement. */
  readonly onMeasured?: (turn: string) => void;
}

type Measured = Readonly<Record<string, number>>;

/**
 * Measures each case with its subjects in turn (A B C, A B C, …), every time in a fresh process, so that a busy minute
 * of the machine affects all of them. Throws if a subject gives a wrong answer.
 */
export async function takeTurns(plan: readonly Turn[], options: TurnOptions): Promise<Result[]> {
  const results = new Map<string, Result & { readonly values: number[] }>();
  for (const [name, subjects] of gathered(plan)) {
    const rounds = ONCE.includes(name) ? 1 : options.rounds * (MORE_OFTEN[name] ?? 1);
    for (let round = 1; round <= rounds; round++) {
      for (const subject of subjects) {
        const measured = name === "installed" ? measureInstalled(subject) : await measure(name, subject, options);
        for (const [figure, value] of Object.entries(measured)) {
          const key = JSON.stringify([name, subject, figure]);
          const result = results.get(key) ?? { case: name, subject, figure, values: [] };
          result.values.push(value);
          results.set(key, result);
        }
        options.onMeasured?.(`${name}, ${subject}, round ${round} of ${rounds}`);
      }
    }
  }
  return [...results.values()];
}

/** The subjects of each case: those that are named for the same case take turns with each other. */
function gathered(plan: readonly Turn[]): ReadonlyMap<string, readonly string[]> {
  const cases = new Map<string, readonly string[]>();
  for (const turn of plan) cases.set(turn.case, [...(cases.get(turn.case) ?? []), ...turn.subjects]);
  return cases;
}

/** Takes one measurement in a process of its own. */
async function measure(name: string, subject: string, options: TurnOptions): Promise<Measured> {
  const { quick = false, node = process.execPath, library } = options;
  const flags = ["--expose-gc", `--max-old-space-size=${HEAP_MB}`];
  const child = spawn(node, [...flags, WORKER, name, subject, quick ? "quick" : "full"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, NODE_ENV: "production", ...(library !== undefined && { CADENZA_ENTRY: library }) },
    timeout: LIMIT_MS,
  });
  let said = "";
  let complaint = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint += text;
  });
  const code = await new Promise<number | null>((resolve, reject) =>
    child.once("error", reject).once("close", resolve),
  );
  if (code !== 0) throw new Error(`${name}, ${subject}: ended with ${code}\n${complaint}`);
  return JSON.parse(said.trimEnd().split("\n").at(-1) ?? "") as Measured;
}
