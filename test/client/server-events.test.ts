import { expect, it } from "vitest";
import type { ServerEvent } from "../../src/client/server-events.ts";
import { serverEvents } from "../../src/client/server-events.ts";

async function* chunksOf(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function eventsIn(text: string | Uint8Array, size = 65_536, hear = (): void => {}): Promise<ServerEvent[]> {
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  const events: ServerEvent[] = [];
  for await (const event of serverEvents(chunksOf(bytes, size), hear)) events.push(event);
  return events;
}

const text = [
  "\uFEFFdata: one\n\n",
  ":\n: a comment\nid: 7\nevent: x\ndata:two\ndata: and 🚂 more\n\n",
  "retry: 3000\r\ndata: three\r\n\r\n",
  "retry: soon\nid\nunknown: field\ndata:  \u2028four\n\n",
  "id: 8\n\n",
  "data: five\n\ndata: not whole",
].join("");
const events = [
  { id: undefined, data: "one", retryMs: undefined },
  { id: "7", data: "two\nand 🚂 more", retryMs: undefined },
  { id: "7", data: "three", retryMs: 3_000 },
  { id: "7", data: " \u2028four", retryMs: undefined },
  { id: "8", data: "five", retryMs: undefined },
];

it.each([1, 2, 3, 5, 7, 64, 1_000])("events come whole, in chunks of %i bytes", async (size) => {
  expect(await eventsIn(text, size)).toEqual(events);
});

it("only lines of a stream of events are heard", async () => {
  let heard = 0;
  const hear = (): void => {
    heard += 1;
  };
  await eventsIn("<!doctype html>\n<p>data: x\n\nnot: it\n", 10, hear);
  expect(heard).toBe(0);
  await eventsIn(":\n:\ndata: x\n\n", 10, hear);
  expect(heard).toBe(3);
});

it("an event of 20 MB costs no more than its bytes", async () => {
  const bytes = new Uint8Array(20 * 1024 * 1024).fill(0x78);
  bytes.set(new TextEncoder().encode("data: "));
  bytes.set(new TextEncoder().encode("\n\n"), bytes.length - 2);
  const before = process.cpuUsage();
  const [event] = await eventsIn(bytes);
  const { user, system } = process.cpuUsage(before);
  expect(event?.data).toHaveLength(bytes.length - 8);
  // A look at each byte again for each chunk costs eight seconds.
  expect((user + system) / 1_000).toBeLessThan(2_000);
});
