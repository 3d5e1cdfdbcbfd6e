import type { NewPlace } from "../crash/place.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import type { ProcessOrder, ProcessReport, ProcessSettings } from "./messages.ts";

/** How the processes of a trial are set up. */
export type Layout = "one process" | "front and worker" | "replayed";

/** A part of a trial. */
export interface HostilePart {
  readonly layout: Layout;
  /** Undefined: memory. */
  readonly place: NewPlace | undefined;
  readonly seed: string;
  /** Its cases: from this number, so many. */
  readonly from: number;
  readonly count: number;
  readonly atOnce?: number;
  readonly onProgress?: (done: number) => void;
}

/** A mistake, and the case in which it was found. */
export interface Wrong {
  readonly where: string;
  readonly what: string;
}

/** What a part has found. */
export interface HostileResult {
  /** By face and kind: how many cases there were, how many hostile values, and how many of them were refused. */
  readonly counts: ReadonlyMap<string, { readonly cases: number; readonly sent: number; readonly refused: number }>;
  /** Exceptions and rejections that would have ended a process, and ends of processes. */
  readonly deaths: readonly string[];
  readonly wrong: readonly Wrong[];
  readonly slow: readonly string[];
  /** Lines of the logger with errors, and how often. */
  readonly said: ReadonlyMap<string, number>;
}

let program: Promise<BuiltProgram> | undefined;

/** Removes the built program. */
export async function removeProgram(): Promise<void> {
  (await program)?.remove();
  program = undefined;
}

/** Plays hostile cases in processes of their own. */
export async function playHostile(part: HostilePart): Promise<HostileResult> {
  const { layout, place, seed, from, count, atOnce = 24, onProgress } = part;
  program ??= buildProgram(new URL("./process.ts", import.meta.url));
  const built = await program;
  const counts = new Map<string, { cases: number; sent: number; refused: number }>();
  const deaths: string[] = [];
  const wrong: Wrong[] = [];
  const slow: string[] = [];
  const said = new Map<string, number>();
  let done = 0;
  const start = (role: ProcessSettings["role"], cases: readonly number[]) => {
    let onReady = (): void => {};
    const ready = new Promise<void>((resolve) => {
      onReady = resolve;
    });
    let isDone = false;
    const hear = (report: ProcessReport): void => {
      if (report.is === "death")
        deaths.push(`${role}: ${report.what}\n  during ${report.at.slice(0, 30).join("\n  ")}`);
      if (report.is === "wrong") wrong.push({ where: report.where, what: report.what });
      if (report.is === "slow") slow.push(report.what);
      if (report.is === "said") said.set(report.message, (said.get(report.message) ?? 0) + 1);
      if (report.is === "case") {
        const { face, kind, sent, refused } = report.report;
        const name = `${face}/${kind}`;
        const before = counts.get(name) ?? { cases: 0, sent: 0, refused: 0 };
        counts.set(name, { cases: before.cases + 1, sent: before.sent + sent, refused: before.refused + refused });
        done += 1;
        onProgress?.(done);
      }
      if (report.is === "done") isDone = true;
      if (report.is === "ready" || report.is === "done") onReady();
    };
    const settings = {
      name: `${role} ${from}`,
      place: place?.place,
      role,
      replays: layout === "replayed",
      seed,
      cases,
      atOnce,
    };
    const started = new WorkerProcess<ProcessSettings, ProcessOrder, ProcessReport>(built, settings, hear);
    const gone = started.gone.then(() => {
      if (!isDone) deaths.push(`${role}: the process has ended before its time, ${done} cases after its start`);
    });
    return {
      started,
      ready: Promise.race([ready, gone]),
      gone,
      expectEnd: () => {
        isDone = true;
      },
    };
  };
  const cases = Array.from({ length: count }, (_, index) => from + index);
  const worker = layout === "front and worker" ? start("worker", []) : undefined;
  await worker?.ready;
  const front = start(worker === undefined ? "both" : "front", cases);
  await front.ready;
  for (const one of [front, worker]) {
    one?.expectEnd();
    one?.started.order({ do: "end" });
    await one?.gone;
  }
  return { counts, deaths, wrong, slow, said };
}

/** Mistakes that are alike, the most frequent ones first. */
export function alike(wrong: readonly Wrong[]): readonly string[] {
  const groups = new Map<string, Wrong[]>();
  for (const one of wrong) {
    const [first = ""] = one.what.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, "…").split("\n");
    const name = first.slice(0, 110);
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  return [...groups.values()]
    .sort((one, other) => other.length - one.length)
    .map(
      (group) =>
        `${group.length} × ${group[0]?.what}\n  ${group
          .slice(0, 3)
          .map(({ where }) => where)
          .join("\n  ")}`,
    );
}
