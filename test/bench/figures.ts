/** The figures of one command, as they are kept. */
export interface Figures {
  /** The name of the plan. */
  readonly plan: string;
  readonly date: string;
  readonly machine: Machine;
  /** The version of Node that ran the measurements. */
  readonly node: string;
  /** The measured packages, and their versions. */
  readonly packages: Readonly<Record<string, string>>;
  /** The commit of the library, with a `+` where the tree held changes. */
  readonly commit: string;
  readonly rounds: number;
  readonly results: readonly Result[];
}

export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly system: string;
  /** The load average of the last minute, before the first measurement. */
  readonly load: number;
}

/** One figure of one subject, with the value of each round. */
export interface Result {
  readonly case: string;
  readonly subject: string;
  readonly figure: string;
  readonly values: readonly number[];
}

/** The values of a figure; undefined where the subject has none. */
export function valuesOf(
  figures: Figures,
  name: string,
  subject: string,
  figure: string,
): readonly number[] | undefined {
  return figures.results.find(
    (result) => result.case === name && result.subject === subject && result.figure === figure,
  )?.values;
}

/** The median of a figure; undefined where the subject has none. */
export function medianOf(figures: Figures, name: string, subject: string, figure: string): number | undefined {
  const values = valuesOf(figures, name, subject, figure);
  return values === undefined ? undefined : median(values);
}

/** The middle value; for an even count, the mean of the two middle values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
}
