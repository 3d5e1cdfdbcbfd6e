/** As many values as a body may hold, with some room for what is around them. */
const VALUES = 45_000;
/** A text of about so many characters. */
export type Shape = (length: number) => string;

/** A text again and again. */
const fill =
  (text: string, separator = "", before = "", after = ""): Shape =>
  (length) =>
    before +
    Array.from({ length: Math.floor(length / (text.length + separator.length)) }, () => text).join(separator) +
    after;
/** So many items, which are all as long as it takes. */
const items =
  (many: number, item: (length: number, index: number) => string, before = "[", after = "]"): Shape =>
  (length) =>
    before + Array.from({ length: many }, (_, index) => item(Math.floor(length / many) - 1, index)).join(",") + after;

/** JSON values. */
export const shapes: Readonly<Record<string, Shape>> = {
  "open lists": fill("["),
  "nested lists": (length) => `${"[".repeat(length / 2)}${"]".repeat(length / 2)}`,
  "nested objects": (length) => `${'{"a":'.repeat(length / 6)}1${"}".repeat(length / 6)}`,
  "empty lists": fill("[]", ",", "[", "]"),
  "empty objects": fill("{}", ",", "[", "]"),
  "one-digit numbers": fill("1", ",", "[", "]"),
  nulls: fill("null", ",", "[", "]"),
  "empty strings": fill('""', ",", "[", "]"),
  "keys of one object": (length) => items(length / 12, (_, index) => `"k${index}":0`, "{", "}")(length),
  "a few long keys": items(10, (length, index) => `"${index}${"k".repeat(length - 6)}":0`, "{", "}"),
  "45,000 keys": items(VALUES, (length, index) => `"${String(index).padStart(length - 4, "k")}":0`, "{", "}"),
  "45,000 keys that are numbers": items(
    VALUES,
    (length, index) => `"${index * 40_000}":${" ".repeat(Math.max(length - 14, 0))}0`,
    "{",
    "}",
  ),
  "one string": (length) => `"${"x".repeat(length - 2)}"`,
  "one string of escapes": fill("\\u00e4", "", '"', '"'),
  "one string of backslashes": fill("\\\\", "", '"', '"'),
  "one string of quotes": fill('\\"', "", '"', '"'),
  "one string of lone surrogates": fill("\\ud800", "", '"', '"'),
  "one string of two-byte characters": (length) => `"${"ä".repeat(length / 2)}"`,
  "45,000 strings": items(VALUES, (length) => `"${"x".repeat(length - 2)}"`),
  "45,000 escaped strings": items(VALUES, (length) => `"${"\\n".repeat(length / 2 - 1)}"`),
  spaces: (length) => `[${" ".repeat(length)}]`,
  "one number": (length) => "1".repeat(length),
  "one fraction": (length) => `0.${"1".repeat(length)}`,
  "one exponent": (length) => `1e${"1".repeat(length)}`,
  "one small exponent": (length) => `1e-${"1".repeat(length)}`,
  "45,000 numbers of 15 digits": items(VALUES, (length) => `${" ".repeat(Math.max(length - 15, 0))}999999999999999`),
  "45,000 long fractions": items(VALUES, (length) => `0.${"9".repeat(length - 2)}`),
  "45,000 long exponents": items(VALUES, (length) => `${"9".repeat(length - 6)}.5e-9`),
  "45,000 empty lists": items(9, () => items(4_998, () => "[]")(0)),
  "1,500 lists at the limit": items(
    1_500,
    (length) => `${"[".repeat(58)}"${"x".repeat(Math.max(length - 118, 0))}"${"]".repeat(58)}`,
  ),
  "no JSON, but quotes": fill('"a" '),
  "no JSON, but an open string": fill('\\"', "", '"'),
};

const image = (length: number): string =>
  `{"content_type":"image/png","content_encoding":"base64","content":"${"A".repeat(4 * Math.floor((length - 80) / 4))}"}`;

/** The parts of a message. */
export const parts: Readonly<Record<string, Shape>> = {
  "9,999 parts": items(9_999, (length) => `{"content":"${"x".repeat(length - 14)}"}`),
  "12,000 parts": items(12_000, (length) => `{"content":"${"x".repeat(length - 14)}"}`),
  "9,000 parts with metadata": items(
    9_000,
    (length) => `{"content":"","metadata":{"kind":"citation","url":"${"x".repeat(length - 60)}"}}`,
  ),
  "16,000 parts that are none": items(16_000, (length) => `{"content":5,"y":"${"x".repeat(length - 20)}"}`),
  "45,000 strings in place of parts": items(45_000, (length) => `"${"x".repeat(length - 2)}"`),
  "9,000 images": items(9_000, image),
  "one image": items(1, image),
};
