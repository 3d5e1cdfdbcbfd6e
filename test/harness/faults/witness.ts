import { closeSync, openSync, readFileSync, writeSync } from "node:fs";

/*
 * The world outside of the processes: one file, to which all of them append the effects of their agents, a line at a
 * time. The lines outlive their process, and are in the order in which they were written.
 */

/** An effect of an agent, or something that the harness did or saw. */
export type Happening =
  | ByAgent
  /** A process found that its event loop was blocked for so long, or that a write took so long. */
  | { readonly is: "stalled"; readonly ms: number }
  /** The answer of the store to a write was lost. */
  | { readonly is: "swallowed"; readonly method: string; readonly how: string }
  | { readonly is: "closing" }
  /** What the harness did to a process. */
  | { readonly is: "started" | "killed" | "frozen" | "thawed" | "told to close" | "gone"; readonly process: string }
  /** A reader got the end of a run. */
  | { readonly is: "seen to end"; readonly run: string };

/** An effect of an agent. `incarnation`: the call of the agent function. */
export type ByAgent = { readonly run: string; readonly incarnation: string } & (
  | { readonly is: "called"; readonly plan: string; readonly durable: boolean }
  | BodyBegan
  | { readonly is: "ended"; readonly key: string; readonly body: string }
  /** The agent got the result of a step: the body that it came from. */
  | { readonly is: "got"; readonly key: string; readonly body: string }
  /** The agent begins to wait: it asks, sleeps or receives. `ms`: how long it sleeps, or until the deadline. */
  | { readonly is: "waiting"; readonly key: string; readonly ms: number | null }
  /** A line after a wait, and the `finally` around it, with the name of what the agent got. */
  | { readonly is: "after" | "finally"; readonly key: string; readonly nonce: string }
  | { readonly is: "child"; readonly key: string; readonly child: string }
  | { readonly is: "left" }
);

/** The body of a step has begun. */
export interface BodyBegan {
  readonly is: "began";
  readonly key: string;
  readonly attempt: number;
  readonly body: string;
  /** How long ago the runtime last read the clock, and how many bodies it has begun since then. */
  readonly lookedMs: number;
  readonly begunSince: number;
}

/** A happening, when it happened, and in which process. */
export type Line = Happening & {
  readonly at: number;
  readonly by: string;
  /** By how much a line before it is later: the process froze between the happening and the write. In milliseconds. */
  readonly lateMs?: number;
};

/** Writes lines in the name of a process. */
export class Witness {
  readonly #file: number;
  readonly #by: string;

  constructor(path: string, by: string) {
    this.#file = openSync(path, "a");
    this.#by = by;
  }

  note(happening: Happening): void {
    const line = { at: Date.now(), by: this.#by, ...happening };
    writeSync(this.#file, `${JSON.stringify(line)}\n`);
  }

  close(): void {
    closeSync(this.#file);
  }
}

/** All lines, in the order in which they were written. */
export function readWitness(path: string): Line[] {
  const lines = readFileSync(path, "utf8").split("\n");
  let latest = 0;
  return lines
    .filter((line) => line !== "")
    .map((text) => {
      const line = JSON.parse(text) as Line;
      latest = Math.max(latest, line.at);
      return { ...line, lateMs: latest - line.at };
    });
}
