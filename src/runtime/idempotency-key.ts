/**
 * The idempotency key of a step. `seed` is the id of the run. It has the form of a UUID of version 5 and is made of the
 * SHA-1 hash of both texts, each with its length in front. A step may be tried by several versions of the library, so
 * the key of a seed and a step never changes.
 */
export function idempotencyKeyOf(seed: string, stepKey: string): string {
  const hash = sha1(new TextEncoder().encode(`${seed.length}:${seed}${stepKey.length}:${stepKey}`));
  const digits = [...hash].map((word) => word.toString(16).padStart(8, "0")).join("");
  const variant = ((Number.parseInt(digits.charAt(16), 16) & 3) | 8).toString(16);
  return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-5${digits.slice(13, 16)}-${variant}${digits.slice(17, 20)}-${digits.slice(20, 32)}`;
}

const BLOCK_BYTES = 64;
/** The rounds of a block are in four groups of 20, with a constant each. */
const constants = [0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6];

/** The SHA-1 hash (RFC 3174), as five words. The one of `crypto.subtle` is asynchronous. */
function sha1(message: Uint8Array): Uint32Array {
  const padded = new DataView(new ArrayBuffer(Math.ceil((message.length + 9) / BLOCK_BYTES) * BLOCK_BYTES));
  new Uint8Array(padded.buffer).set(message);
  padded.setUint8(message.length, 0x80);
  padded.setUint32(padded.byteLength - 8, Math.floor(message.length / 2 ** 29));
  padded.setUint32(padded.byteLength - 4, message.length << 3);
  const hash = new Uint32Array([0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0]);
  for (let start = 0; start < padded.byteLength; start += BLOCK_BYTES) addBlock(hash, padded, start);
  return hash;
}

function addBlock(hash: Uint32Array, message: DataView, start: number): void {
  const words = new Uint32Array(80);
  const word = (index: number): number => words[index] ?? 0;
  for (let i = 0; i < 80; i++)
    words[i] =
      i < 16 ? message.getUint32(start + 4 * i) : rotate(word(i - 3) ^ word(i - 8) ^ word(i - 14) ^ word(i - 16), 1);
  let [a = 0, b = 0, c = 0, d = 0, e = 0] = hash;
  for (let i = 0; i < 80; i++) {
    const group = Math.floor(i / 20);
    const mixed = group === 0 ? (b & c) | (~b & d) : group === 2 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
    const next = (rotate(a, 5) + mixed + e + word(i) + (constants[group] ?? 0)) | 0;
    [a, b, c, d, e] = [next, a, rotate(b, 30), c, d];
  }
  for (const [i, value] of [a, b, c, d, e].entries()) hash[i] = (hash[i] ?? 0) + value;
}

function rotate(value: number, by: number): number {
  return (value << by) | (value >>> (32 - by));
}
