/**
 * About how many characters are written at once. Longer texts are sent in pieces: a slow client holds one piece at
 * most, and each piece that it takes shows that it reads.
 */
export const PIECE_LENGTH = 32 * 1024;

/** A value with more characters than this is written in pieces. Escapes may make its text six times as long. */
const LONG = PIECE_LENGTH / 2;

/** Characters of a long string that are escaped at once. */
const SLICE_LENGTH = LONG / 2;

/** About how many characters a number, a boolean or null takes at most. */
const SCALAR_LENGTH = 8;

/** Whether a value of plain data is too long for one JSON text. Stops counting once it is. */
export function isLong(value: unknown): boolean {
  return roomAfter(value, LONG) < 0;
}

/** The JSON of a value of plain data in pieces. Joined, they equal the output of `JSON.stringify`. */
export function* jsonPieces(value: unknown): Generator<string, undefined> {
  if (!isLong(value)) yield JSON.stringify(value);
  else if (typeof value === "string") yield* stringPieces(value);
  else if (Array.isArray(value)) yield* listPieces(value);
  else yield* objectPieces(value as Readonly<Record<string, unknown>>);
  return undefined;
}

/** The JSON text of a long value, generated while it is taken. */
export class JsonText {
  readonly #pieces: Generator<string, undefined>;

  constructor(value: unknown) {
    this.#pieces = jsonPieces(value);
  }

  async next(): Promise<IteratorResult<string, undefined>> {
    let text = "";
    while (text.length < PIECE_LENGTH) {
      const piece = this.#pieces.next();
      if (piece.done === true) return text === "" ? piece : { done: false, value: text };
      text += piece.value;
    }
    return { done: false, value: text };
  }

  return(): void {
    this.#pieces.return(undefined);
  }
}

function* stringPieces(text: string): Generator<string, undefined> {
  yield '"';
  for (let from = 0; from < text.length; ) {
    let to = from + SLICE_LENGTH;
    // A surrogate pair stays together: each half alone would be escaped.
    if (isHighSurrogate(text.charCodeAt(to - 1))) to += 1;
    yield JSON.stringify(text.slice(from, to)).slice(1, -1);
    from = to;
  }
  yield '"';
  return undefined;
}

function* listPieces(list: readonly unknown[]): Generator<string, undefined> {
  let begin = "[";
  for (let from = 0; from < list.length; begin = ",") {
    const to = endOfSlice(list, from);
    yield begin;
    // Short items next to each other share a piece.
    if (to > from) yield JSON.stringify(list.slice(from, to)).slice(1, -1);
    else yield* jsonPieces(list[from]);
    from = Math.max(to, from + 1);
  }
  yield list.length === 0 ? "[]" : "]";
  return undefined;
}

/** Up to which item a list fits into one piece, from an item on. */
function endOfSlice(list: readonly unknown[], from: number): number {
  let room = SLICE_LENGTH;
  let to = from;
  while (to < list.length && room >= 0) room = roomAfter(list[to++], room);
  return room < 0 ? to - 1 : to;
}

function* objectPieces(object: Readonly<Record<string, unknown>>): Generator<string, undefined> {
  let text = "{";
  let isFirst = true;
  for (const key in object) {
    const value = object[key];
    if (value === undefined) continue;
    text += `${isFirst ? "" : ","}${JSON.stringify(key)}:`;
    isFirst = false;
    const short = shortJson(value);
    if (short !== undefined) text += short;
    if (short !== undefined && text.length < SLICE_LENGTH) continue;
    yield text;
    text = "";
    if (short === undefined) yield* jsonPieces(value);
  }
  yield `${text}}`;
  return undefined;
}

function shortJson(value: unknown): string | undefined {
  return isLong(value) ? undefined : JSON.stringify(value);
}

/** How many of `room` characters are left after a value; negative if they do not suffice. */
function roomAfter(value: unknown, room: number): number {
  if (typeof value === "string") return room - value.length;
  if (typeof value !== "object" || value === null) return room - SCALAR_LENGTH;
  let left = room;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && left >= 0; index++) left = roomAfter(value[index], left - 1);
    return left;
  }
  for (const key in value) {
    left = roomAfter((value as Readonly<Record<string, unknown>>)[key], left - key.length);
    if (left < 0) break;
  }
  return left;
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
