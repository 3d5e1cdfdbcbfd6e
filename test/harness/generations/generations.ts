import { setTimeout as pause } from "node:timers/promises";
import type { ProtocolError } from "cadenza";
import { AgentRuntime } from "cadenza";
import type { Report } from "../commands/report.ts";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import type { Random } from "../random.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import type { CountingReport, CountingSettings } from "./messages.ts";

/** After this time the lease of a process that was killed is over, in milliseconds. */
const DEAD_MS = 1_100;
/** How much more a later generation may cost. */
const FLAT = 1.2;
/** A reader goes away after one event of so many, and comes back: it finds its place from the beginning of the log. */
const LEAVES = 100;

export interface GenerationOptions {
  readonly turns: number;
  readonly each: number;
  readonly kills: number;
  /** How many generations are kept. Undefined: all. */
  readonly kept?: number;
}

/** What a generation has cost, or the way back to it. */
interface Cost {
  readonly generation: number;
  readonly ms: number;
  readonly mib?: number;
}

/** Lets a run count in many generations, and kills its process again and again. */
export async function tryGenerations(
  place: Place,
  { turns, each, kills, kept }: GenerationOptions,
  random: Random,
  report: Report,
): Promise<void> {
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  const web = new AgentRuntime({ store: await openPlace(place), work: false });
  web.register("counter", { durable: true }, () => "");
  const { run_id } = await web.createRun({ agent_name: "counter", input: "", mode: "async" });
  const reader = new Reader(web, run_id);
  const read = reader.read(random);
  const whole: Cost[] = [];
  const recoveries: Cost[] = [];
  let killed = 0;
  let taken = 0;
  for (let isOver = false; !isOver; killed += 1) {
    const isLast = killed >= kills;
    let left = isLast ? Number.POSITIVE_INFINITY : (2 * random.number() * (turns - taken)) / (kills - killed);
    let stop: (() => void) | undefined;
    const stopped = new Promise<void>((resolve) => {
      stop = resolve;
    });
    const settings: CountingSettings = { name: `worker ${killed}`, place, turns, each, kept: kept ?? null };
    const worker = new WorkerProcess<CountingSettings, object, CountingReport>(program, settings, (told) => {
      if (told.is === "generation") whole.push(told);
      if (told.is === "at work" && killed > 0) recoveries.push(told);
      if (told.is !== "turns") return;
      taken += told.count;
      left -= told.count;
      report.progress(`${taken} turns, ${killed} kills`);
      if (left <= 0) stop?.();
    });
    const ended = worker.gone.then(() => "gone" as const);
    const how = await Promise.race([stopped.then(() => "to be killed"), read.then(() => "over"), ended]);
    if (how === "gone") report.wrong(`worker ${killed} ended by itself`);
    isOver = how === "over";
    worker.kill();
    await worker.gone;
    if (!isOver) await pause(DEAD_MS);
  }
  program.remove();
  report.say(`${killed - 1} processes were killed at work`);
  const { status, output } = await web.getRun(run_id);
  const said = output.flatMap(({ parts }) => parts.map(({ content }) => content)).join("");
  report.check(
    status === "completed" && said.endsWith(`${turns}`),
    `the run is ${status}, and says: ${said.slice(-80)}`,
  );
  const { generation } = await web.details(run_id);
  report.check(generation === turns / each, `it has ${generation} generations`);
  reader.judge("a reader that came back again and again", turns / each, kept !== undefined, report);
  const late = new Reader(web, run_id);
  await late.read();
  late.judge("a reader from the first event on", turns / each, kept !== undefined, report);
  await web.close({ drainMs: 0 });
  judgeCosts("a turn", whole, "ms", report);
  judgeCosts("the memory of a process", whole, "mib", report);
  judgeCosts("the way back to the first new turn", recoveries, "ms", report);
}

/** Compares the last third with the first. */
function judgeCosts(what: string, costs: readonly Cost[], figure: "ms" | "mib", report: Report): void {
  const sorted = costs.toSorted((one, other) => one.generation - other.generation);
  const third = Math.floor(sorted.length / 3);
  const [first, last] = [sorted.slice(0, third), sorted.slice(-third)].map((part) => medianOf(part, figure));
  if (first === undefined || last === undefined) return;
  const said = `${what}: ${first.toFixed(3)} ${figure} in the first third, ${last.toFixed(3)} in the last`;
  report.check(last <= FLAT * first, said);
}

function medianOf(costs: readonly Cost[], figure: "ms" | "mib"): number {
  const figures = costs.map((cost) => cost[figure] ?? Number.NaN).sort((one, other) => one - other);
  return figures[figures.length >> 1] ?? Number.NaN;
}

function isLost({ data }: ProtocolError): boolean {
  return data !== null && typeof data === "object" && "reason" in data && data["reason"] === "events_lost";
}

/** Reads the events of a run, and notes what is missing. */
class Reader {
  readonly #runtime: AgentRuntime;
  readonly #run_id: string;
  #last = 0;
  /** Words of generations, in the order of their events. */
  readonly #words: number[] = [];
  readonly #wrong: string[] = [];
  /** How often events were deleted in front of it. */
  #lost = 0;

  constructor(runtime: AgentRuntime, run_id: string) {
    this.#runtime = runtime;
    this.#run_id = run_id;
  }

  /** Reads to the end of the run. With random numbers it goes away now and again. */
  async read(random?: Random): Promise<void> {
    for (let isOver = false; !isOver; ) {
      const after = this.#last;
      for await (const event of this.#runtime.events(this.#run_id, { after, until: "end" })) {
        if (event.type === "error" && isLost(event.error)) {
          this.#lost += 1;
          this.#last = event.id;
          break;
        }
        if (event.id !== this.#last + 1) this.#wrong.push(`event ${event.id} came after ${this.#last}`);
        this.#last = event.id;
        if (event.type === "message.part") this.#words.push(Number(event.part.content));
        isOver = event.type === "run.completed" || event.type === "run.failed";
        if (isOver || random?.chance(1 / LEAVES) === true) break;
      }
    }
  }

  judge(who: string, generations: number, mayLose: boolean, report: Report): void {
    for (const wrong of this.#wrong) report.wrong(`${who}: ${wrong}`);
    const words = this.#words.slice(0, -1);
    const isInOrder = words.every((word, index) => index === 0 || word === Number(words[index - 1]) + 1 || mayLose);
    const found = `${words.length} words of ${generations} generations, ${this.#last} events, ${this.#lost} times some were deleted`;
    report.check(isInOrder && (mayLose || (words.length === generations && this.#lost === 0)), `${who}: ${found}`);
  }
}
