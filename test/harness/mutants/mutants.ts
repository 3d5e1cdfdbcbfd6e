/* Small changes of the sources, each of which some test has to notice. */

export interface Mutant {
  readonly name: string;
  readonly edits: readonly Edit[];
  /** The tests that have to fail, as Vitest takes them. */
  readonly tests: readonly string[];
}

/** A text of a file, which is there once, and what takes its place. */
export interface Edit {
  readonly file: string;
  readonly find: string;
  readonly put: string;
}

/** A mutant that changes one place. */
export function mutant(file: string, find: string, put: string, tests: readonly string[]): Mutant {
  return { name: `${file}: ${firstLine(find)}`, edits: [{ file, find, put }], tests };
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0] ?? "";
}
