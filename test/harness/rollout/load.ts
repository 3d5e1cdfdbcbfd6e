import type { Random } from "../random.ts";
import type { Fleet } from "./fleet.ts";
import type { Act } from "./messages.ts";

/** How many runs are made at a time, as long as so many are open at most, and how often that is looked at, in milliseconds. */
const AT_ONCE = 6;
const OPEN = 60;
const LOOK_MS = 100;
/** After how many milliseconds without an acknowledgement something is ordered again, of another process. */
const PATIENCE_MS = 4_000;

/** A run that was ordered. */
export interface OrderedRun {
  readonly label: string;
  readonly acts: readonly Act[];
  /** Undefined: no process has acknowledged it. */
  run_id: string | undefined;
  /** Its message is stored, or it receives none. */
  isSent: boolean;
  orderedAt: number;
}

/** Makes runs, and sends each the message that it receives, until all of that is acknowledged. */
export class Load {
  readonly runs = new Map<string, OrderedRun>();
  readonly #fleet: Fleet;
  readonly #random: Random;
  readonly #openRuns: () => Promise<number | undefined>;
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;

  /** `openRuns`: how many runs of the store have not ended. Undefined: the store does not tell. */
  constructor(fleet: Fleet, random: Random, openRuns: () => Promise<number | undefined>) {
    this.#fleet = fleet;
    this.#random = random;
    this.#openRuns = openRuns;
    fleet.onDone = ({ did, label, run_id }) => {
      const run = this.runs.get(label);
      if (run === undefined) return;
      run.run_id ??= run_id;
      if (run.run_id !== run_id) throw new Error(`Run ${label} was made twice: ${run.run_id} and ${run_id}.`);
      if (did === "send") run.isSent = true;
      else if (!run.isSent) this.#order(run);
    };
  }

  begin(): void {
    this.#timer = setInterval(() => {
      this.#look().catch((error) => {
        throw error;
      });
    }, LOOK_MS);
  }

  /** No more runs are made. What was ordered is ordered again until it is acknowledged. */
  stopMaking(): void {
    this.#isOver = true;
  }

  end(): void {
    clearInterval(this.#timer);
  }

  /** How many runs and messages are not acknowledged. */
  get pending(): number {
    return [...this.runs.values()].filter(({ run_id, isSent }) => run_id === undefined || !isSent).length;
  }

  async #look(): Promise<void> {
    const now = Date.now();
    for (const run of this.runs.values())
      if ((run.run_id === undefined || !run.isSent) && now - run.orderedAt > PATIENCE_MS) this.#order(run);
    if (this.#isOver || this.#fleet.working().length === 0) return;
    const open = await this.#openRuns();
    if (open === undefined || open >= OPEN || this.pending >= OPEN) return;
    for (let made = 0; made < AT_ONCE; made++) {
      const acts = randomActs(this.#random);
      const run: OrderedRun = {
        ...{ label: `run-${this.runs.size}`, acts, run_id: undefined },
        ...{ isSent: !acts.includes("receive"), orderedAt: 0 },
      };
      this.runs.set(run.label, run);
      this.#order(run);
    }
  }

  #order(run: OrderedRun): void {
    const { label, acts, run_id } = run;
    run.orderedAt = Date.now();
    this.#fleet.order(run_id === undefined ? { do: "create", label, acts } : { do: "send", label, run_id });
  }
}

/** Each run receives one message at most. */
function randomActs(random: Random): readonly Act[] {
  const acts = Array.from({ length: 2 + random.below(6) }, () =>
    random.weighted<Act>([
      [4, "step"],
      [1, "slow"],
      [2, "retry"],
      [2, "both"],
      [3, "ask"],
      [2, "receive"],
      [2, "sleep"],
      [1, "talk"],
      [1, "sub"],
      [2, "patch"],
    ]),
  );
  return acts.filter((act, index) => act !== "receive" || acts.indexOf(act) === index);
}
