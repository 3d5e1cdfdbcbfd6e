import { inspect } from "node:util";

/**
 * The world outside as text, to compare two states of it. Each value has a line. Properties and entries of maps and
 * sets are sorted by name. Items of lists are sorted too, since parallel work may end in another order after a crash.
 */
export function describeOutside(value: unknown): string {
  return linesOf(value, new Set()).join("\n");
}

function linesOf(value: unknown, above: ReadonlySet<object>): readonly string[] {
  if (typeof value !== "object" || value === null) return inspect(value).split("\n");
  if (above.has(value)) return ["(itself)"];
  const within = new Set([...above, value]);
  const items = itemsOf(value);
  if (items === undefined) return inspect(value, { depth: null, sorted: true }).split("\n");
  if (items.entries.length === 0) return [items.open + items.close];
  const blocks = items.entries.map(([name, item]) => {
    const [first = "", ...rest] = linesOf(item, within);
    return [`  ${name === undefined ? "" : `${name}: `}${first}`, ...rest.map((line) => `  ${line}`)].join("\n");
  });
  return [items.open, ...blocks.sort().flatMap((block) => block.split("\n")), items.close];
}

interface Items {
  readonly open: string;
  readonly entries: readonly (readonly [name: string | undefined, item: unknown])[];
  readonly close: string;
}

/** What a value holds; undefined for a value without items, such as a date. */
function itemsOf(value: object): Items | undefined {
  if (Array.isArray(value)) return { open: "[", entries: value.map((item) => [undefined, item]), close: "]" };
  if (value instanceof Set) return { open: "Set {", entries: [...value].map((item) => [undefined, item]), close: "}" };
  if (value instanceof Map) {
    const entries = [...value].map(([key, item]) => [inspect(key), item] as const);
    return { open: "Map {", entries, close: "}" };
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return undefined;
  return { open: "{", entries: Object.entries(value), close: "}" };
}
