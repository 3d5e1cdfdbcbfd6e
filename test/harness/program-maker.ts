import type { Block, Certainty, Emission, Program, Statement, Wait } from "./program.ts";
import { CHILD, contains, MAIL } from "./program.ts";
import type { Random } from "./random.ts";

/** What programs are made for. */
export interface ProgramOptions {
  readonly certainty: Certainty;
  /** How deep blocks are nested. */
  readonly depth: number;
  /** How long a body and a question without an answer take at most, in milliseconds. */
  readonly stepMs: number;
  readonly deadlineMs: number;
  /** Whether no other run uses the session. */
  readonly isAlone: boolean;
}

/** Makes a random program. */
export function makeProgram(random: Random, options: ProgramOptions): Program {
  return new Maker(random, options).program();
}

/**
 * Whether the position of a question, and with it the end of the message that it completes, depends on time: it is
 * asked beside other branches, or beside one that has lost a race and goes on; or a sub-run asks it that is shown, or
 * with a deadline that may pass before its parent has heard of it.
 */
export function questionsFallAnywhere({ body }: Program): boolean {
  return contains(body, (one) => {
    if (one.does === "race") return true;
    if (one.does === "run") {
      const isShown = one.show === true;
      return isSomewhere(one.program, (inner) => mayComeBetween(inner) || (isShown && isQuestion(inner)));
    }
    return one.does === "all" && contains(one.branches.flat(), ({ does }) => does === "ask");
  });
}

function isQuestion({ does }: Statement): boolean {
  return does === "ask" || does === "ask in vain" || does === "await";
}

/** Whether what comes next depends on what is in time. */
function mayComeBetween({ does }: Statement): boolean {
  return does === "ask in vain" || does === "first";
}

/** Whether the output depends on which of two things is in time, also where the log holds both. */
export function isRaceWithTime(program: Program): boolean {
  return isSomewhere(program, ({ does }) => does === "first" || does === "receive in time");
}

/** Whether a program or one of its sub-runs has such a statement. */
function isSomewhere({ body }: Program, isSuch: (statement: Statement) => boolean): boolean {
  return contains(body, (one) => isSuch(one) || (one.does === "run" && isSomewhere(one.program, isSuch)));
}

interface Place {
  /** How many blocks may be nested in it. */
  readonly depth: number;
  /** Whether statements run side by side. */
  readonly isBeside: boolean;
  /** How many runs are above it. Sub-runs do one thing after the other. */
  readonly level: number;
}

/** How many runs may be above a sub-run. */
const MAX_LEVEL = 2;
const NAMES = ["fetch", "plan", "call", "look up"] as const;
const FIRST_LENGTH = 5;
const LENGTH = 3;

class Maker {
  readonly #random: Random;
  readonly #options: ProgramOptions;
  /**
   * Whether there are races. The losers of a race go on at their own pace, so that the output of such programs follows
   * from the log only if they emit nothing in steps and await no deadline.
   */
  readonly #hasRaces: boolean;
  #serial = 0;

  constructor(random: Random, options: ProgramOptions) {
    this.#random = random;
    this.#options = options;
    this.#hasRaces = options.certainty !== "fixed" && random.chance(0.5);
  }

  program(): Program {
    const { certainty, depth } = this.#options;
    const body = this.#block({ depth, isBeside: false, level: 0 }, FIRST_LENGTH);
    return { certainty, body, fails: this.#random.chance(0.06) };
  }

  #block(place: Place, most = LENGTH): Block {
    return Array.from({ length: 1 + this.#random.below(most) }, () => this.#statement(place));
  }

  #statement(place: Place): Statement {
    return this.#random.weighted([...this.#single(place), ...this.#nested(place)])();
  }

  #single(place: Place): Choices {
    const { isBeside, level } = place;
    const random = this.#random;
    const { certainty, stepMs, isAlone } = this.#options;
    // Beside other branches the output of a fixed program must not change, and that of a logged one not with time.
    const isFree = !isBeside || certainty !== "fixed";
    const isUntimed = !isBeside || certainty === "loose";
    const mayWait = isUntimed && !(certainty === "logged" && this.#hasRaces && level === 0);
    const emission = (what: Emission["what"]) => (): Statement => ({
      does: "emit",
      what,
      text: this.#name(random.pick(NAMES)),
      by: isBeside || random.chance(0.5) ? "emit" : "yield",
    });
    return [
      [8, () => this.#step()],
      [isFree ? 3 : 0, emission("part")],
      [isUntimed ? 1 : 0, emission("message")],
      [isUntimed ? 1 : 0, emission("object")],
      [isUntimed ? 1 : 0, emission("close")],
      [isFree ? 1 : 0, () => ({ does: "fail", name: this.#name("fail"), attempts: 1 + random.below(3) })],
      [
        certainty === "fixed" ? 0 : 1,
        () => ({ does: "once", name: "pay", ms: random.below(stepMs), tells: this.#tells }),
      ],
      [isFree ? 1.5 : 0, () => this.#ask()],
      [isFree ? 1 : 0, () => ({ does: "draw" })],
      [isUntimed ? 0.5 : 0, () => ({ does: "report", tokens: 1 + random.below(5) })],
      [
        mayWait ? 3 : 0,
        () => ({ does: "stream", name: "model", tokens: 1 + random.below(6), ms: random.below(stepMs) }),
      ],
      [mayWait ? 0.7 : 0, () => this.#askInVain()],
      [mayWait || certainty === "fixed" ? 1 : 0, () => this.#sleep()],
      [isFree ? 1 : 0, () => this.#receive()],
      [mayWait && certainty !== "fixed" ? 1 : 0, () => this.#receiveInTime()],
      [mayWait && certainty !== "fixed" ? 1.5 : 0, () => this.#first()],
      [isBeside ? 0 : 1, () => ({ does: "await" })],
      [isUntimed && level < MAX_LEVEL ? 0.7 : 0, () => this.#run(place)],
      [isUntimed && isAlone && level === 0 ? 0.5 : 0, () => ({ does: "state" })],
      [isUntimed && isAlone ? 0.5 : 0, () => ({ does: "history" })],
    ];
  }

  #nested(place: Place): Choices {
    if (place.depth === 0) return [];
    const random = this.#random;
    const { certainty } = this.#options;
    const inner: Place = { ...place, depth: place.depth - 1 };
    const isFree = !place.isBeside || certainty !== "fixed";
    return [
      [
        1.5,
        () => ({ does: "repeat", times: random.chance(0.5) ? "total" : random.below(4), body: this.#block(inner) }),
      ],
      [2, () => this.#branch(inner)],
      [isFree && place.level === 0 ? 2.5 : 0, () => ({ does: "all", branches: this.#branches(inner) })],
      [this.#hasRaces && place.level === 0 ? 2 : 0, () => this.#race(inner)],
      [isFree ? 1 : 0, () => this.#try(inner)],
    ];
  }

  #step(): Statement {
    const random = this.#random;
    const failures = random.chance(0.1) ? 1 + random.below(2) : 0;
    return { does: "step", name: this.#name(random.pick(NAMES)), ms: random.below(this.#options.stepMs), failures };
  }

  #ask(): Wait {
    return { does: "ask", schema: this.#random.chance(0.5), details: this.#random.chance(0.3) };
  }

  #askInVain(): Wait {
    return { does: "ask in vain", ms: this.#deadline, details: this.#random.chance(0.3) };
  }

  #sleep(): Wait {
    const isFixed = this.#options.certainty === "fixed";
    const name = isFixed || this.#random.chance(0.3) ? this.#name("nap") : null;
    return { does: "sleep", ms: this.#random.chance(0.2) ? 0 : this.#deadline, name };
  }

  #receive(): Wait {
    return { does: "receive", name: this.#random.pick(MAIL), schema: this.#random.chance(0.5) };
  }

  #receiveInTime(): Wait {
    const random = this.#random;
    const ms = random.chance(0.3) ? 0 : this.#deadline;
    const [schema, otherwise] = [random.chance(0.5), random.chance(0.5)];
    return { does: "receive in time", name: random.pick(MAIL), schema, ms, otherwise };
  }

  /** Some waits side by side, the first of which has an end in any case. */
  #first(): Statement {
    const make = [() => this.#ask(), () => this.#askInVain(), () => this.#sleep(), () => this.#receive()];
    const others = Array.from({ length: 1 + this.#random.below(3) }, () =>
      this.#random.pick([...make, () => this.#receiveInTime()])(),
    );
    return { does: "first", waits: [this.#sleep(), ...others] };
  }

  /** How long a wait takes that has an end, in milliseconds. */
  get #deadline(): number {
    const { deadlineMs } = this.#options;
    return Math.ceil(deadlineMs / 4) + this.#random.below(deadlineMs / 2);
  }

  #run({ depth, level }: Place): Statement {
    const { certainty } = this.#options;
    const body = this.#block({ depth: Math.min(depth, 2), isBeside: false, level: level + 1 });
    const program = { certainty, body, fails: this.#random.chance(0.06) };
    return { does: "run", agent: CHILD, program, show: this.#mayShow(program) && this.#random.chance(0.5) };
  }

  /**
   * Whether a sub-run may be shown. A branch that has lost a race emits beside it. Its question may come before what it
   * has emitted, where another process executes it.
   */
  #mayShow(program: Program): boolean {
    if (this.#options.certainty === "fixed") return !isSomewhere(program, isQuestion);
    return this.#options.certainty === "loose" || !this.#hasRaces;
  }

  #branch(inner: Place): Statement {
    const ways = Array.from({ length: 2 + this.#random.below(2) }, () =>
      this.#random.chance(0.3) ? [] : this.#block(inner),
    );
    return { does: "branch", by: this.#random.chance(0.5) ? this.#name("decide") : null, ways };
  }

  #branches(inner: Place): readonly Block[] {
    return Array.from({ length: 2 + this.#random.below(2) }, () => this.#block({ ...inner, isBeside: true }));
  }

  #race(inner: Place): Statement {
    return { does: "race", branches: this.#branches(inner), leaves: this.#random.chance(0.5) };
  }

  #try(inner: Place): Statement {
    const body = this.#block(inner);
    const thrown: Block = this.#random.chance(0.5) ? [{ does: "throw" }] : [];
    return { does: "try", body: [...body, ...thrown], otherwise: this.#block(inner), last: this.#block(inner) };
  }

  /** Whether the output may tell that a step was interrupted: not where it is compared with that of another run. */
  get #tells(): boolean {
    return this.#options.certainty === "loose" && this.#random.chance(0.5);
  }

  /** The operations of fixed branches have names of their own, so that they are numbered the same each time. */
  #name(name: string): string {
    return this.#options.certainty === "fixed" ? `${name} ${++this.#serial}` : name;
  }
}

type Choices = readonly (readonly [weight: number, make: () => Statement])[];
