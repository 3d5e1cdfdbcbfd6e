import type { Page } from "puppeteer-core";

/** A picture of a moving picture: a PNG, and how long it is shown, in milliseconds. */
export interface Frame {
  readonly png: Uint8Array;
  readonly ms: number;
}

/** The part of a frame that differs from the one before. */
interface Part {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  /** A WebP file, in base64. */
  readonly webp: string;
}

/**
 * Joins frames of one size to an animated WebP that repeats for ever. The browser of a page encodes what differs from frame
 * to frame, without loss. The container around it is simple enough to be written here, and the encoders that npm has bring
 * native programs of 20 MB to each installation. https://developers.google.com/speed/webp/docs/riff_container
 */
export async function animatedWebp(page: Page, frames: readonly Frame[]): Promise<Uint8Array> {
  const shown: (Part & { ms: number })[] = [];
  for (const { png, ms } of frames) {
    const part = await differing(page, png);
    const last = shown.at(-1);
    if (part !== null) shown.push({ ...part, ms });
    else if (last !== undefined) last.ms += ms;
  }
  const [first] = shown;
  if (first === undefined) throw new Error("There are no frames.");
  const size = [uint24(first.width - 1), uint24(first.height - 1)];
  const chunks = [
    chunk("VP8X", [2, 0, 0, 0], ...size),
    chunk("ANIM", [0, 0, 0, 0, 0, 0]),
    ...shown.map(({ x, y, width, height, ms, webp }) =>
      chunk(
        "ANMF",
        ...[x / 2, y / 2, width - 1, height - 1, Math.round(ms)].map(uint24),
        // Replaces what is below it, and stays.
        [2],
        imageIn(Buffer.from(webp, "base64")),
      ),
    ),
  ];
  return chunk("RIFF", Buffer.from("WEBP"), ...chunks);
}

/** What of a frame differs from the one that the page was given before; null if nothing does. */
function differing(page: Page, png: Uint8Array): Promise<Part | null> {
  return page.evaluate(`(async () => {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64,${Buffer.from(png).toString("base64")}")).blob());
    const { width, height } = image;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
    const before = globalThis.before;
    globalThis.before = pixels;
    let [left, top, right, bottom] = before === undefined ? [0, 0, width, height] : [width, height, 0, 0];
    for (let y = 0; before !== undefined && y < height; y++)
      for (let x = 0; x < width; x++)
        if (pixels[y * width + x] !== before[y * width + x]) {
          left = Math.min(left, x);
          right = Math.max(right, x + 1);
          top = Math.min(top, y);
          bottom = y + 1;
        }
    if (right <= left) return null;
    // The container has positions in steps of two.
    left -= left % 2;
    top -= top % 2;
    const part = new OffscreenCanvas(right - left, bottom - top);
    part.getContext("2d").drawImage(image, -left, -top);
    const bytes = new Uint8Array(await (await part.convertToBlob({ type: "image/webp", quality: 1 })).arrayBuffer());
    const webp = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    return { x: left, y: top, width: part.width, height: part.height, webp };
  })()`) as Promise<Part | null>;
}

/** The chunks of a WebP file that hold its image. */
function imageIn(file: Buffer): Uint8Array {
  const images: Buffer[] = [];
  for (let at = 12; at < file.length; ) {
    const end = at + 8 + file.readUInt32LE(at + 4);
    const next = end + (end % 2);
    if (["VP8 ", "VP8L", "ALPH"].includes(file.toString("latin1", at, at + 4))) images.push(file.subarray(at, next));
    at = next;
  }
  return Buffer.concat(images);
}

function chunk(name: string, ...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const data = Buffer.concat(parts.map((part) => Uint8Array.from(part)));
  const head = Buffer.alloc(8);
  head.write(name, "latin1");
  head.writeUInt32LE(data.length, 4);
  return Buffer.concat([head, data, Buffer.alloc(data.length % 2)]);
}

function uint24(value: number): readonly number[] {
  return [value & 255, (value >> 8) & 255, value >> 16];
}
