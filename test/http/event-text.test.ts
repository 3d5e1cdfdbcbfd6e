import { expect, it } from "vitest";
import { eventStreamFormat } from "../../src/faces/acp/event-formats.ts";
import { EventText } from "../../src/http/event-text.ts";
import { FakeClock } from "../harness/clock.ts";
import { silentLogger } from "../harness/internals.ts";

it.each([
  ["at once", () => raise()],
  ["later", () => Promise.resolve().then(raise)],
])("the failure of a source %s is told to the reader and to the host, and the source is closed", async (_, poll) => {
  const told: unknown[] = [];
  const source = { poll, return: () => told.push("returned") };
  const text = new EventText(source, eventStreamFormat, {
    clock: new FakeClock(),
    logger: silentLogger,
    heartbeatMs: Number.POSITIVE_INFINITY,
    onClose: (done) => told.push(done),
    onFailure: (error) => told.push(error),
  });
  expect((await text.next()).value).toMatch(/^event: error\ndata: .*server_error.*\n\n$/);
  expect((await text.next()).done).toBe(true);
  expect(told).toEqual(["returned", false, new Error("no log")]);
});

function raise(): never {
  throw new Error("no log");
}
