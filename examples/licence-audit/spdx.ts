/** An SPDX licence expression as a tree; a licence is a leaf, `WITH` and its exception included. */
export type Expression = string | { readonly operator: "AND" | "OR"; readonly terms: readonly Expression[] };

/**
 * Reads expressions such as `(MIT OR Apache-2.0) AND GPL-2.0-only WITH Classpath-exception-2.0`. AND binds closer than OR.
 * Other text, such as "SEE LICENSE IN …", is one licence of that name.
 */
export function parseExpression(text: string): Expression {
  const tokens = text.match(/[()]|[^\s()]+/g) ?? [];
  const parser = new Parser(tokens);
  const expression = parser.alternatives();
  return expression === undefined || !parser.isAtEnd ? text : expression;
}

/**
 * Whether an expression is satisfied, given the licences that are allowed (true) or refused (false). If the result
 * depends on another licence, the name of that licence.
 */
export function verdictOn(expression: Expression, known: ReadonlyMap<string, boolean>): boolean | string {
  if (typeof expression === "string") return known.get(expression) ?? expression;
  const verdicts = expression.terms.map((term) => verdictOn(term, known));
  const decisive = expression.operator === "OR";
  if (verdicts.includes(decisive)) return decisive;
  return verdicts.find((verdict) => typeof verdict === "string") ?? !decisive;
}

/** Reads tokens from left to right. A missing token is undefined. */
class Parser {
  readonly #tokens: readonly string[];
  #next = 0;

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  get isAtEnd(): boolean {
    return this.#next === this.#tokens.length;
  }

  alternatives(): Expression | undefined {
    return this.#list("OR", () => this.#list("AND", () => this.#operand()));
  }

  #list(operator: "AND" | "OR", read: () => Expression | undefined): Expression | undefined {
    const terms: Expression[] = [];
    do {
      const term = read();
      if (term === undefined) return undefined;
      terms.push(term);
    } while (this.#take(operator));
    return terms.length === 1 ? terms[0] : { operator, terms };
  }

  #operand(): Expression | undefined {
    if (this.#take("(")) {
      const inner = this.alternatives();
      return this.#take(")") ? inner : undefined;
    }
    const licence = this.#name();
    if (licence === undefined || !this.#take("WITH")) return licence;
    const exception = this.#name();
    return exception && `${licence} WITH ${exception}`;
  }

  #name(): string | undefined {
    const token = this.#tokens[this.#next];
    if (token === undefined || /^([()]|AND|OR|WITH)$/i.test(token)) return undefined;
    this.#next += 1;
    return token;
  }

  #take(token: string): boolean {
    if (this.#tokens[this.#next]?.toUpperCase() !== token) return false;
    this.#next += 1;
    return true;
  }
}
