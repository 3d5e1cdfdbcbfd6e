import { encode } from "./codec.ts";

/** The longest text of a prompt that is recorded, in characters. Files are longer, and are known by their place. */
const MAX_TEXT = 65_536;

/** What is recorded of a prompt. */
export interface PromptRecord {
  /** Of all messages of the prompt. */
  readonly hash: string;
  /** How many messages it has. */
  readonly messages: number;
  /** How many of them, from the first one on, are those of the call before. */
  readonly known?: number;
  /** The others. */
  readonly new?: readonly unknown[];
}

/** The prompts of a run's model calls. Of each only what is new is recorded. */
export class Prompts {
  readonly #keepsMessages: boolean;
  #before: readonly string[] = [];

  constructor(keepsMessages: boolean) {
    this.#keepsMessages = keepsMessages;
  }

  next(prompt: readonly unknown[]): PromptRecord {
    const messages = prompt.map((message) => encode(message));
    const texts = messages.map((message) => hashOf(JSON.stringify(message)));
    const other = texts.findIndex((text, index) => text !== this.#before[index]);
    const known = other === -1 ? texts.length : other;
    this.#before = texts;
    const record = { hash: hashOf(texts.join()), messages: texts.length };
    return this.#keepsMessages ? { ...record, known, new: messages.slice(known).map(shortened) } : record;
  }
}

/** A copy in which long texts, such as files, are replaced by their length. */
function shortened(value: unknown): unknown {
  if (typeof value === "string") return value.length > MAX_TEXT ? { left_out: value.length } : value;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(shortened);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, shortened(item)]));
}

/**
 * 64 bits that tell texts apart, as hexadecimal text. Two mixes of 32 bits, by FNV-1a with different primes. They need not
 * withstand an attacker: the prompts of one run are compared with themselves.
 */
function hashOf(text: string): string {
  let low = 0x811c9dc5;
  let high = 0xcbf29ce4;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    low = Math.imul(low ^ code, 0x01000193);
    high = Math.imul(high ^ code, 0x85ebca6b);
  }
  return [low, high].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
}
