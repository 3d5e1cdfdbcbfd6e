/** How often a command may tell how far it is. */
const PROGRESS_MS = 10_000;
/** How much of what is wrong is printed. */
const SHOWN = 20;

/** Prints what a command finds. `Values`: those of its options. */
export class Report<Values extends object = object> {
  readonly #print: (line: string) => void;
  readonly #again: (values: Partial<Values>) => string;
  readonly #began = performance.now();
  #progressAt = performance.now();
  #wrong = 0;
  #lastAgain = "";

  /** @param again The command line that tries a case with these values in place of the given ones. */
  constructor(print: (line: string) => void, again: (values: Partial<Values>) => string) {
    this.#print = print;
    this.#again = again;
  }

  /** Prints a line, or figures. */
  say(what: string | object): void {
    this.#print(typeof what === "string" ? what : JSON.stringify(what));
  }

  /** Prints how far the command is, every ten seconds at most. */
  progress(what: string | object): void {
    if (performance.now() - this.#progressAt < PROGRESS_MS) return;
    this.#progressAt = performance.now();
    this.say(`${this.seconds} s: ${typeof what === "string" ? what : JSON.stringify(what)}`);
  }

  /** Notes and prints what is wrong. `again`: the values of the options with which that case is tried alone. */
  wrong(what: string, again: Partial<Values> = {}): void {
    this.#wrong += 1;
    if (this.#wrong > SHOWN) return;
    this.say(`WRONG ${what}`);
    const line = this.#again(again);
    if (line !== this.#lastAgain) this.say(`  again: ${line}`);
    this.#lastAgain = line;
  }

  /** Prints a figure, which is wrong if it does not hold. */
  check(holds: boolean, what: string): void {
    if (holds) this.say(`ok    ${what}`);
    else this.wrong(what);
  }

  /** How many times something was wrong. */
  get wrongs(): number {
    return this.#wrong;
  }

  /** How long the command has taken. */
  get seconds(): number {
    return Math.round((performance.now() - this.#began) / 1_000);
  }
}
