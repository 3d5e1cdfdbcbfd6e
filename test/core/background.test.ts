import { EventEmitter } from "node:events";
import type { Logger } from "cadenza";
import { describe, expect, it } from "vitest";
import { containedLogger, endOf, inBackground, listen, newController, onceAborted } from "../../src/core/background.ts";
import { guardedClock, machineClock } from "../../src/runtime/log/system.ts";
import { FakeClock } from "../harness/clock.ts";
import { withMembers } from "../harness/port-proxy.ts";
import { nextTurn } from "../harness/promises.ts";

const failed = new Error("the callback failed");
const fail = (): never => {
  throw failed;
};
const failLater = (): Promise<never> => Promise.reject(failed);

/** A logger, and what it was given. */
function listening(): { readonly logger: Logger; readonly said: unknown[] } {
  const said: unknown[] = [];
  const take = (message: string, fields: object = {}): void => {
    said.push([message, (fields as { error?: unknown }).error]);
  };
  return { logger: { debug: take, info: take, warn: take, error: take }, said };
}

const told = [["Work in the background failed.", failed]];

describe("what no caller waits for goes to the logger", () => {
  it.each<[title: string, work: () => unknown]>([
    ["a function that throws", fail],
    ["a function that rejects", failLater],
    ["a thenable whose `then` throws", () => new Proxy({}, { get: () => fail })],
  ])("%s", async (_title, work) => {
    const { logger, said } = listening();
    inBackground(logger, work);
    await nextTurn();
    expect(said).toEqual(told);
  });

  it("a promise that rejects, with the caller's message and fields", async () => {
    const given: unknown[] = [];
    const { logger } = listening();
    inBackground(withMembers(logger, { error: (...line) => given.push(line) }), failLater(), "It failed.", { run: 1 });
    await endOf(logger, Promise.resolve());
    expect(given).toEqual([["It failed.", { run: 1, error: failed }]]);
  });

  it("the end of work does not reject", async () => {
    const { logger, said } = listening();
    await endOf(logger, failLater());
    expect(said).toEqual(told);
  });

  it("listeners of an emitter, which can be removed", () => {
    const { logger, said } = listening();
    const emitter = new EventEmitter();
    const stop = listen(logger, emitter, "event", fail);
    emitter.emit("event");
    stop();
    emitter.emit("event");
    expect([said, emitter.listenerCount("event")]).toEqual([told, 0]);
  });

  it("what is to happen when a signal is aborted", () => {
    const { logger, said } = listening();
    const { signal, abort } = controllerOf(new AbortController());
    onceAborted(logger, signal, fail);
    onceAborted(logger, signal, () => said.push("removed"))();
    abort();
    expect(said).toEqual(told);
  });

  it("the listeners of a signal, however they are added", async () => {
    const { logger, said } = listening();
    const { signal, abort } = controllerOf(newController(logger));
    const removed = (): never => fail();
    signal.addEventListener("abort", fail);
    signal.addEventListener("abort", failLater, { once: true });
    signal.addEventListener("abort", { handleEvent: fail });
    signal.onabort = fail;
    signal.addEventListener("abort", removed);
    signal.removeEventListener("abort", removed);
    // What adds twice is called once, as ever.
    signal.addEventListener("abort", fail);
    abort();
    await nextTurn();
    expect(said).toEqual([...told, ...told, ...told, ...told]);
  });

  it("a listener has the signal as `this` and gets the event", () => {
    const { signal, abort } = controllerOf(newController(listening().logger));
    const seen: unknown[] = [];
    signal.addEventListener("abort", function (this: unknown, event) {
      seen.push(this, event.type);
    });
    abort();
    expect(seen).toEqual([signal, "abort"]);
  });
});

it.each<[title: string, log: () => unknown]>([
  ["throws", fail],
  ["rejects", failLater],
])("a logger that %s has no effect", async (_title, log) => {
  const broken = { debug: log, info: log, warn: log, error: log } as Logger;
  const logger = containedLogger(broken);
  for (const level of ["debug", "info", "warn", "error"] as const) expect(logger[level]("Said.")).toBeUndefined();
  inBackground(logger, fail);
  inBackground(logger, failLater);
  await nextTurn();
  expect(containedLogger(logger)).toBe(logger);
});

describe("a clock", () => {
  it("of the machine gives what a callback throws to the logger", async () => {
    const { logger, said } = listening();
    const clock = machineClock(logger);
    clock.setTimeout(fail, 0);
    await new Promise<void>((resolve) => clock.setTimeout(resolve, 1));
    expect(said).toEqual(told);
  });

  it("of the host gives what a callback throws to the logger", async () => {
    const { logger, said } = listening();
    const host = new FakeClock();
    const clock = guardedClock(host, logger);
    clock.setTimeout(fail, 5);
    clock.setTimeout(() => said.push("cleared"), 5)();
    await host.advance(10);
    expect(said).toEqual(told);
  });

  it.each<[title: string, give: () => never]>([
    ["throws", fail],
    ["gives nothing of use", () => undefined as never],
  ])("of the host that %s is replaced by the machine's", async (_title, give) => {
    const { logger, said } = listening();
    const clock = guardedClock({ now: give, setTimeout: give, turn: give, hold: give }, logger);
    expect(Math.abs(clock.now() - Date.now())).toBeLessThan(60_000);
    await clock.turn();
    await new Promise<void>((resolve) => clock.setTimeout(resolve, 0));
    clock.hold?.()();
    expect(new Set(said.map((line) => (line as [string])[0]))).toEqual(
      new Set(["The clock failed. The machine's clock is used instead."]),
    );
  });

  it("whose turn rejects is replaced by the machine's", async () => {
    const { logger, said } = listening();
    await guardedClock(withMembers(new FakeClock(), { turn: failLater }), logger).turn();
    expect(said).toEqual([["The clock failed. The machine's clock is used instead.", failed]]);
  });

  it("that sets a timer and fails calls back once", async () => {
    const host = new FakeClock();
    const { logger } = listening();
    let calls = 0;
    const broken = withMembers(host, {
      setTimeout: (callback, delayMs) => {
        host.setTimeout(callback, delayMs);
        return fail();
      },
    });
    await new Promise<void>((resolve) =>
      guardedClock(broken, logger).setTimeout(() => {
        calls += 1;
        resolve();
      }, 0),
    );
    await host.advance(1);
    expect(calls).toBe(1);
  });
});

function controllerOf(controller: AbortController): { readonly signal: AbortSignal; readonly abort: () => void } {
  return { signal: controller.signal, abort: () => controller.abort() };
}
