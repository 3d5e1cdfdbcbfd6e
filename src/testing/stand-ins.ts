/**
 * Finds the stand-in of a step or of a sub-agent: by its name, else by the longest pattern that matches. In a pattern
 * `*` stands for any characters.
 */
export class StandIns<T> {
  readonly #exact: ReadonlyMap<string, T>;
  readonly #patterns: readonly { readonly pattern: string; readonly expression: RegExp; readonly value: T }[];

  constructor(table: Readonly<Record<string, T>>) {
    const entries = Object.entries(table);
    this.#exact = new Map(entries.filter(([name]) => !name.includes("*")));
    this.#patterns = entries
      .filter(([name]) => name.includes("*"))
      .map(([pattern, value]) => ({ pattern, expression: expressionOf(pattern), value }))
      .sort((a, b) => b.pattern.length - a.pattern.length);
  }

  /** The stand-in of the first of these names that has one; undefined if none has. */
  find(...names: readonly string[]): { readonly value: T } | undefined {
    for (const name of names) {
      if (this.#exact.has(name)) return { value: this.#exact.get(name) as T };
      const fitting = this.#patterns.find(({ expression }) => expression.test(name));
      if (fitting !== undefined) return fitting;
    }
    return undefined;
  }

  /** Every name and pattern, for messages. */
  get names(): readonly string[] {
    return [...this.#exact.keys(), ...this.#patterns.map(({ pattern }) => pattern)];
  }
}

function expressionOf(pattern: string): RegExp {
  const literal = pattern.split("*").map((text) => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${literal.join(".*")}$`);
}
