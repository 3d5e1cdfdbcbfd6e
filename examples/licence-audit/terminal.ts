import type { Interface } from "node:readline";
import { createInterface } from "node:readline";
import type { JsonObject } from "cadenza";

/** Who answers the questions of the run. */
export interface Answers {
  /** The answer to one question. Rejects when the signal aborts. */
  next(question: string, signal: AbortSignal): Promise<JsonObject>;
  close(): void;
}

/** How long a pipe may take for a line. Whoever runs this in the background is not left waiting for ever. */
const PIPE_WAIT_MS = 5_000;

/** Gives the same answer to every question. */
export function fixedAnswers(allow: boolean, print: (text: string) => void): Answers {
  return {
    next: async (question) => {
      print(`${question} ${allow ? "yes (--yes)" : "no (--no)"}\n`);
      return { allow };
    },
    close: () => undefined,
  };
}

/** Asks the person at the terminal, or reads a line for each question from a pipe. When the pipe has no more, the answer is no. */
export class TypedAnswers implements Answers {
  readonly #input: NodeJS.ReadStream;
  readonly #print: (text: string) => void;
  readonly #onInterrupt: () => void;
  #readline: Interface | undefined;
  #lines: AsyncIterator<string> | undefined;
  #isDry = false;

  constructor(input: NodeJS.ReadStream, print: (text: string) => void, onInterrupt: () => void) {
    this.#input = input;
    this.#print = print;
    this.#onInterrupt = onInterrupt;
  }

  async next(question: string, signal: AbortSignal): Promise<JsonObject> {
    const line = await this.#read(`${question} [y/n] `, signal);
    this.#isDry = line === undefined;
    if (line === undefined) this.#print("no (nobody answered)\n");
    else if (!this.#input.isTTY) this.#print(`${line}\n`);
    return { allow: readAnswer(line) };
  }

  close(): void {
    this.#readline?.close();
  }

  async #read(prompt: string, signal: AbortSignal): Promise<string | undefined> {
    const lines = this.#open();
    if (this.#isDry || !this.#input.isTTY) {
      this.#print(prompt);
      return this.#isDry ? undefined : nextLine(lines, PIPE_WAIT_MS, signal);
    }
    this.#readline?.setPrompt(prompt);
    this.#readline?.prompt();
    return nextLine(lines, Number.POSITIVE_INFINITY, signal);
  }

  /** Begins to read when there is something to ask. From then on lines are kept until they are asked for. */
  #open(): AsyncIterator<string> {
    if (this.#lines !== undefined) return this.#lines;
    const input = this.#input;
    this.#readline = createInterface(input.isTTY ? { input, output: process.stdout } : { input });
    this.#readline.on("SIGINT", this.#onInterrupt);
    this.#lines = this.#readline[Symbol.asyncIterator]();
    return this.#lines;
  }
}

/** Yes or no. Anything else goes to the run as it was typed: it is the question's schema that refuses it. */
function readAnswer(line = "no"): boolean | string {
  if (/^no?$/i.test(line.trim())) return false;
  return /^y(es)?$/i.test(line.trim()) || line;
}

/** The next line; undefined when there is none, or none in time. */
async function nextLine(
  lines: AsyncIterator<string>,
  waitMs: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  signal.throwIfAborted();
  let timer: NodeJS.Timeout | undefined;
  let stop: (() => void) | undefined;
  const givenUp = new Promise<undefined>((resolve, reject) => {
    if (waitMs < Number.POSITIVE_INFINITY) timer = setTimeout(resolve, waitMs, undefined);
    stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop);
  });
  try {
    const line = await Promise.race([lines.next(), givenUp]);
    return line?.done === true ? undefined : line?.value;
  } finally {
    clearTimeout(timer);
    if (stop !== undefined) signal.removeEventListener("abort", stop);
  }
}
