import type { Interface } from "node:readline";
import { createInterface } from "node:readline";
import type { JsonObject } from "cadenza";

/** Answers the questions of the run. */
export interface Answers {
  /** The answer to one question. Rejects when the signal aborts. */
  next(question: string, signal: AbortSignal): Promise<JsonObject>;
  close(): void;
}

/** How long to wait for a line from a pipe. Without a limit a process in the background would never end. */
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

/** Asks the user at the terminal, or reads a line per question from a pipe. At the end of the pipe the answer is no. */
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
    if (line === undefined) this.#print("no (no answer)\n");
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

  /** Begins to read at the first question. Lines that come later are kept until they are needed. */
  #open(): AsyncIterator<string> {
    if (this.#lines !== undefined) return this.#lines;
    const input = this.#input;
    this.#readline = createInterface(input.isTTY ? { input, output: process.stdout } : { input });
    this.#readline.on("SIGINT", this.#onInterrupt);
    this.#lines = this.#readline[Symbol.asyncIterator]();
    return this.#lines;
  }
}

/** Reads yes or no. Any other text is sent as it is, and the question's schema refuses it. */
function readAnswer(line = "no"): boolean | string {
  if (/^no?$/i.test(line.trim())) return false;
  return /^y(es)?$/i.test(line.trim()) || line;
}

/** The next line; undefined at the end of the input, or when `waitMs` has passed. */
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
