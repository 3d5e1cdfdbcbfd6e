/** The two hexadecimal character codes of each byte. */
const hex = Array.from({ length: 512 }, (_, i) => ((i >> (i & 1 ? 1 : 5)) & 15).toString(16).charCodeAt(0));
const dash = "-".charCodeAt(0);
const characters: number[] = new Array<number>(36).fill(dash);

/** Sixteen bytes as a UUID of a version. */
export function writeUuid(bytes: Uint8Array, from: number, version: number): string {
  let at = 0;
  for (let i = 0; i < 16; i++) {
    let byte = bytes[from + i] ?? 0;
    if (i === 6) byte = (byte & 15) | (version << 4);
    else if (i === 8) byte = (byte & 63) | 128;
    if (i === 4 || i === 6 || i === 8 || i === 10) at += 1;
    characters[at++] = hex[2 * byte] ?? dash;
    characters[at++] = hex[2 * byte + 1] ?? dash;
  }
  return String.fromCharCode.apply(null, characters);
}

/** The version 5 UUID of a name: made of the SHA-1 hash of a namespace, which is a UUID too, and the name in UTF-8. */
export function namedUuid(namespace: string, name: string): string {
  const text = new TextEncoder().encode(name);
  const bytes = new Uint8Array(16 + text.length);
  const digits = namespace.replaceAll("-", "");
  for (let i = 0; i < 16; i++) bytes[i] = Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  bytes.set(text, 16);
  return hashedUuid(bytes);
}

/** The version 5 UUID that the SHA-1 hash of some bytes begins with. */
export function hashedUuid(bytes: Uint8Array): string {
  return writeUuid(sha1(bytes), 0, 5);
}

const BLOCK_BYTES = 64;
/** The rounds of a block are in four groups of 20, with a constant each. */
const constants = [0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6];

/** The SHA-1 hash (RFC 3174). The one of `crypto.subtle` is asynchronous. */
function sha1(message: Uint8Array): Uint8Array {
  const padded = new DataView(new ArrayBuffer(Math.ceil((message.length + 9) / BLOCK_BYTES) * BLOCK_BYTES));
  new Uint8Array(padded.buffer).set(message);
  padded.setUint8(message.length, 0x80);
  padded.setUint32(padded.byteLength - 8, Math.floor(message.length / 2 ** 29));
  padded.setUint32(padded.byteLength - 4, message.length << 3);
  const hash = new Uint32Array([0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0]);
  for (let start = 0; start < padded.byteLength; start += BLOCK_BYTES) addBlock(hash, padded, start);
  const bytes = new DataView(new ArrayBuffer(4 * hash.length));
  for (const [i, word] of hash.entries()) bytes.setUint32(4 * i, word);
  return new Uint8Array(bytes.buffer);
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
