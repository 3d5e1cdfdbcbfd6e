import type { Block, Emission, NamedProgram, Program, Statement, Wait } from "./program.ts";
import { bodiesOf, CHILD, MAIL } from "./program.ts";
import { Random } from "./random.ts";

/** What programs are made for. */
export interface ProgramOptions {
  /** How deep blocks are nested. */
  readonly depth: number;
  /** How long a body and a question without an answer take at most, in milliseconds. */
  readonly stepMs: number;
  readonly deadlineMs: number;
  /** Whether no other run uses the session. */
  readonly isAlone: boolean;
  /**
   * How many of the programs continue as new: 1 for all. What generations say joins their session however the run ends, which the
   * judge of shared sessions does not expect.
   */
  readonly generations: number;
}

/** The programs of simulated worlds, where time costs nothing. */
export const SIMULATED: ProgramOptions = { depth: 3, stepMs: 40, deadlineMs: 30_000, isAlone: true, generations: 0.3 };

/** Those of processes that are killed. Their runs share sessions. */
export const KILLED: ProgramOptions = { depth: 3, stepMs: 8, deadlineMs: 25, isAlone: false, generations: 0 };

/** Makes a random program. */
export function makeProgram(random: Random, options: ProgramOptions): Program {
  return new Maker(random, options).program();
}

/**
 * The program that belongs to a name: always the same. Its first and last words tell the run and its total. The part of a
 * name after an `@` tells runs of one program apart.
 */
export function programNamed(name: string, options: ProgramOptions): NamedProgram {
  const [first = name] = name.split("@");
  const made = makeProgram(new Random(first), options);
  const word = (text: string) => ({ does: "emit", what: "part", text, by: "yield" }) as const;
  const [body = [], ...generations] = bodiesOf(made).map((block) => [word(`${name}:`), ...block, word("=")]);
  return { name, program: { ...made, body, ...(made.generations !== undefined && { generations }) } };
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
const PATCHES = ["p1", "p2", "p3"] as const;
const FIRST_LENGTH = 5;
const LENGTH = 3;

class Maker {
  readonly #random: Random;
  readonly #options: ProgramOptions;
  readonly #hasRaces: boolean;

  constructor(random: Random, options: ProgramOptions) {
    this.#random = random;
    this.#options = options;
    this.#hasRaces = random.chance(0.5);
  }

  program(): Program {
    return this.#programIn({ depth: this.#options.depth, isBeside: false, level: 0 }, FIRST_LENGTH);
  }

  #programIn(place: Place, most = LENGTH): Program {
    const random = this.#random;
    const body = this.#block(place, most);
    const fails = random.chance(0.06);
    const { generations: share } = this.#options;
    if (share === 0 || !random.chance(share)) return { body, fails };
    const generations = Array.from({ length: 1 + random.below(2) }, () => this.#block(place));
    return { body, generations, fails };
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
    const { stepMs, isAlone } = this.#options;
    const emission = (what: Emission["what"]) => (): Statement => ({
      does: "emit",
      what,
      text: random.pick(NAMES),
      by: isBeside || random.chance(0.5) ? "emit" : "yield",
    });
    return [
      [8, () => this.#step()],
      [3, emission("part")],
      [1, emission("message")],
      [1, emission("object")],
      [1, emission("close")],
      [1, () => ({ does: "fail", name: "fail", attempts: 1 + random.below(3) })],
      [1, () => ({ does: "once", name: "pay", ms: random.below(stepMs), tells: random.chance(0.5) })],
      [1.5, () => this.#ask()],
      [1, () => ({ does: "draw" })],
      [0.5, () => ({ does: "report", tokens: 1 + random.below(5) })],
      [3, () => ({ does: "stream", name: "model", tokens: 1 + random.below(6), ms: random.below(stepMs) })],
      [0.7, () => this.#askInVain()],
      [1, () => this.#sleep()],
      [1, () => this.#receive()],
      [1, () => this.#receiveInTime()],
      [1.5, () => this.#first()],
      [isBeside ? 0 : 1, () => ({ does: "await" })],
      [level < MAX_LEVEL ? 0.7 : 0, () => this.#run(place)],
      [isAlone && level === 0 ? 0.5 : 0, () => ({ does: "state" })],
      [isAlone ? 0.5 : 0, () => ({ does: "history" })],
    ];
  }

  #nested(place: Place): Choices {
    if (place.depth === 0) return [];
    const random = this.#random;
    const inner: Place = { ...place, depth: place.depth - 1 };
    return [
      [
        1.5,
        () => ({ does: "repeat", times: random.chance(0.5) ? "total" : random.below(4), body: this.#block(inner) }),
      ],
      [1, () => ({ does: "patched", id: random.pick(PATCHES), body: this.#block(inner) })],
      [2, () => this.#branch(inner)],
      [place.level === 0 ? 2.5 : 0, () => ({ does: "all", branches: this.#branches(inner) })],
      [this.#hasRaces && place.level === 0 ? 2 : 0, () => this.#race(inner)],
      [1, () => this.#try(inner)],
    ];
  }

  #step(): Statement {
    const random = this.#random;
    const failures = random.chance(0.1) ? 1 + random.below(2) : 0;
    return { does: "step", name: random.pick(NAMES), ms: random.below(this.#options.stepMs), failures };
  }

  #ask(): Wait {
    return { does: "ask", schema: this.#random.chance(0.5), details: this.#random.chance(0.3) };
  }

  #askInVain(): Wait {
    return { does: "ask in vain", ms: this.#deadline, details: this.#random.chance(0.3) };
  }

  #sleep(): Wait {
    const name = this.#random.chance(0.3) ? "nap" : null;
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
    const program = this.#programIn({ depth: Math.min(depth, 2), isBeside: false, level: level + 1 });
    return { does: "run", agent: CHILD, program, show: this.#random.chance(0.5) };
  }

  #branch(inner: Place): Statement {
    const ways = Array.from({ length: 2 + this.#random.below(2) }, () =>
      this.#random.chance(0.3) ? [] : this.#block(inner),
    );
    return { does: "branch", by: this.#random.chance(0.5) ? "decide" : null, ways };
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
}

type Choices = readonly (readonly [weight: number, make: () => Statement])[];
