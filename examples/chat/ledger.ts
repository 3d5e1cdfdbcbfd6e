/** What has happened outside of the agent, in a file that outlives the process. A payment with the same key is one. */
import { appendFileSync, existsSync, readFileSync } from "node:fs";

interface Line {
  readonly what: string;
  readonly of: string;
}

export class Ledger {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  add(what: string, of: string): void {
    appendFileSync(this.#file, `${JSON.stringify({ what, of })}\n`);
  }

  pay(key: string, euros: number): void {
    const of = `${euros} € ${key}`;
    if (!this.#lines.some((line) => line.what === "refund" && line.of === of)) this.add("refund", of);
  }

  /** How often the model was called, how many of these calls were begun again, and how many refunds there are. */
  get facts(): { readonly modelCalls: number; readonly again: number; readonly refunds: number } {
    const calls = this.#lines.filter(({ what }) => what === "model call");
    const refunds = this.#lines.filter(({ what }) => what === "refund").length;
    return { modelCalls: calls.length, again: calls.length - new Set(calls.map(({ of }) => of)).size, refunds };
  }

  get #lines(): readonly Line[] {
    if (!existsSync(this.#file)) return [];
    const lines = readFileSync(this.#file, "utf8").trim().split("\n");
    return lines.filter(Boolean).map((line) => JSON.parse(line) as Line);
  }
}
