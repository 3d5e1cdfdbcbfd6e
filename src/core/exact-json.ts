import type { JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import { setKey } from "./json.ts";

/** A value that JSON would lose or change. */
export interface Loss {
  /** The keys and indexes that lead to it. */
  readonly path: readonly (string | number)[];
  readonly value: unknown;
  /**
   * `value`: JSON cannot express it. `cycle`: it is one of the objects that contain it. `depth`: it is nested too
   * deeply.
   */
  readonly reason: "value" | "cycle" | "depth";
}

/** Deeper nesting is taken for a mistake. The call stack overflows at a few thousand levels. */
const MAX_DEPTH = 1_000;

/**
 * An exact copy of the value as JSON carries it. What JSON would lose or change is refused with the error that `refuse`
 * makes: a date, a map, an instance of any class, a function, NaN, undefined in a list, a cycle and the like. Keys
 * whose value is undefined are left out.
 */
export function exactJson(value: unknown, refuse: (loss: Loss) => Error): JsonValue | undefined {
  if (value === undefined || value === null || typeof value === "string" || typeof value === "boolean") return value;
  return new Copier(refuse).copy(value);
}

class Copier {
  readonly #refuse: (loss: Loss) => Error;
  readonly #path: (string | number)[] = [];
  /** The objects that contain the value which is being copied. */
  readonly #above: object[] = [];

  constructor(refuse: (loss: Loss) => Error) {
    this.#refuse = refuse;
  }

  copy(value: unknown): JsonValue {
    switch (typeof value) {
      case "string":
      case "boolean":
        return value;
      case "number":
        // JSON has no negative zero.
        return Number.isFinite(value) ? value + 0 : this.#lose(value);
      case "object": {
        if (value === null) return null;
        if (this.#above.includes(value)) return this.#lose(value, "cycle");
        if (this.#above.length === MAX_DEPTH) return this.#lose(value, "depth");
        this.#above.push(value);
        const copy = Array.isArray(value) ? this.#copyList(value) : this.#copyObject(value);
        this.#above.pop();
        return copy;
      }
      default:
        return this.#lose(value);
    }
  }

  #copyList(list: readonly unknown[]): JsonValue {
    const copy: JsonValue[] = [];
    for (const [index, item] of list.entries()) copy.push(this.#copyAt(index, item));
    // An array may have keys besides its items, for example the matches of a regular expression.
    const further = Object.keys(list)[list.length];
    if (further !== undefined) this.#copyAt(further, undefined);
    return copy;
  }

  #copyObject(object: object): JsonValue {
    if (!isJsonObject(object)) return this.#lose(object);
    for (const symbol of Object.getOwnPropertySymbols(object))
      if (Object.prototype.propertyIsEnumerable.call(object, symbol)) this.#copyAt(String(symbol), symbol);
    const copy: Record<string, JsonValue> = {};
    for (const [key, value] of Object.entries(object)) {
      if (value !== undefined) setKey(copy, key, this.#copyAt(key, value));
    }
    return copy;
  }

  #copyAt(key: string | number, value: unknown): JsonValue {
    this.#path.push(key);
    const copy = this.copy(value);
    this.#path.pop();
    return copy;
  }

  #lose(value: unknown, reason: Loss["reason"] = "value"): never {
    // A path of a thousand keys is left out of the error.
    throw this.#refuse({ path: reason === "depth" ? [] : [...this.#path], value, reason });
  }
}
