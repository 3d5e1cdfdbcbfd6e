import fc from "fast-check";

const SURROGATES = { first: 0xd800, count: 0x800 };
const LAST = 0x10ffff;

/**
 * Any code point but surrogates, as a text: what `fc.string({ unit: "binary" })` and `fc.webUrl()` draw from. They first
 * make a table of all 1.1 million, which takes a second of each process and 100 MB.
 */
export const codePoint = fc.nat({ max: LAST - SURROGATES.count }).map(
  (n) => String.fromCodePoint(n < SURROGATES.first ? n : n + SURROGATES.count),
  (text) => {
    const [only, ...others] = typeof text === "string" ? [...text] : [];
    const code = only?.codePointAt(0);
    if (code === undefined || others.length > 0) throw new Error("This is not one code point.");
    return code < SURROGATES.first ? code : code - SURROGATES.count;
  },
);
