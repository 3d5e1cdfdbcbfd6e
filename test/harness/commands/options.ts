import { parseArgs } from "node:util";
import { anySeed } from "../random.ts";

/** An option of a command. The type of its values is that of its default. */
export interface Option {
  /** What it does, in one sentence. */
  readonly about: string;
  /** A function makes a new one each time. A list is given with commas between its items. */
  readonly default: string | number | boolean | readonly string[] | (() => number);
  /** What it may be; for a list: what each of its items may be. Otherwise any text. */
  readonly oneOf?: readonly string[];
}

export type Options = Readonly<Record<string, Option>>;

type Name<O extends Option> = O extends { readonly oneOf: readonly (infer One extends string)[] } ? One : string;
type Value<O extends Option> = O["default"] extends () => number
  ? number
  : O["default"] extends readonly string[]
    ? readonly Name<O>[]
    : O["default"] extends string
      ? Name<O> | O["default"]
      : O["default"] extends number
        ? number
        : boolean;

/** The values that a command gets, by the names of its options. On the command line `atOnce` is `--at-once`. */
export type Values<O extends Options> = { readonly [Key in keyof O]: Value<O[Key]> };

/** For commands that draw random numbers. */
export const seed = {
  about: "What the random numbers begin with: the same seed gives the same ones.",
  default: () => Number(anySeed()),
} as const satisfies Option;

/** What is wrong with the command line. */
export class UsageError extends Error {}

/** Reads the options of a command. Throws a `UsageError` for what it does not know. */
export function readOptions<O extends Options>(options: O, given: readonly string[]): Values<O> {
  const byFlag = new Map(Object.entries(options).map(([key, option]) => [flagOf(key), { key, option }]));
  const known = `The options are ${[...byFlag.keys(), "help"].map((flag) => `--${flag}`).join(", ")}.`;
  const { values, positionals } = parseArgs({
    args: [...given],
    strict: false,
    options: Object.fromEntries(
      [...byFlag].map(([flag, { option }]) => [
        flag,
        { type: typeof option.default === "boolean" ? "boolean" : "string" },
      ]),
    ),
  });
  for (const flag of Object.keys(values))
    if (!byFlag.has(flag)) throw new UsageError(`There is no option --${flag}. ${known}`);
  for (const text of positionals) throw new UsageError(`There is no option ${text}. ${known}`);
  const read: Record<string, unknown> = {};
  for (const [flag, { key, option }] of byFlag) read[key] = readValue(flag, option, values[flag]);
  return read as Values<O>;
}

function readValue(flag: string, option: Option, given: unknown): unknown {
  const { default: byDefault, oneOf } = option;
  if (given === undefined) return typeof byDefault === "function" ? byDefault() : byDefault;
  if (typeof byDefault === "boolean") {
    if (given !== true) throw new UsageError(`--${flag} takes no value.`);
    return true;
  }
  if (typeof given !== "string") throw new UsageError(`--${flag} needs a value: ${kindOf(option)}.`);
  if (typeof byDefault === "string") return checked(given);
  if (typeof byDefault === "object") return given.split(",").map(checked);
  const number = given.trim() === "" ? Number.NaN : Number(given);
  const isFit = typeof byDefault === "function" ? Number.isSafeInteger(number) : number >= 0;
  if (!isFit) throw new UsageError(`--${flag} has to be ${kindOf(option)}, and is ${given}.`);
  return number;

  function checked(text: string): string {
    if (oneOf?.includes(text) === false)
      throw new UsageError(`--${flag} has to be ${kindOf(option)}, and is ${given}.`);
    return text;
  }
}

/** What an option takes, in words. */
function kindOf({ default: byDefault, oneOf }: Option): string {
  if (typeof byDefault === "function") return "a whole number";
  if (typeof byDefault === "number") return "a number";
  if (typeof byDefault === "object") return oneOf === undefined ? "texts with commas" : `of ${oneOf.join(", ")}`;
  return oneOf === undefined ? "a text" : `one of ${oneOf.join(", ")}`;
}

/** The lines of the help page about options. */
export function describeOptions(options: Options): readonly string[] {
  return Object.entries(options).flatMap(([key, option]) => {
    const { about, default: byDefault } = option;
    if (typeof byDefault === "boolean") return [`  --${flagOf(key)}`, `      ${about}`];
    const usual = typeof byDefault === "function" ? "a new one" : String(byDefault);
    return [`  --${flagOf(key)} <${kindOf(option)}>${usual === "" ? "" : `, by default ${usual}`}`, `      ${about}`];
  });
}

/** The values that differ from the defaults, as they are given on the command line; `seed` in any case. */
export function flagsOf(options: Options, values: Readonly<Record<string, unknown>>): string {
  const flags = Object.entries(options).flatMap(([key, { default: byDefault }]) => {
    const value = values[key];
    if (value === undefined || String(value) === String(byDefault)) return [];
    if (value === true) return [`--${flagOf(key)}`];
    const text = String(value);
    return [`--${flagOf(key)} ${/^[\w.,-]+$/.test(text) ? text : JSON.stringify(text)}`];
  });
  return flags.join(" ");
}

function flagOf(key: string): string {
  return key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
