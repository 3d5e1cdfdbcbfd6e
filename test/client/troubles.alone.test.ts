import { ClientError } from "cadenza/client";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { calls, plain, World } from "./calls.ts";

/* In a process of its own: it replaces the timers. */

/* Each way in which a response may break, in each request of each call. */

/** A world with a network that does something else with some requests. */
function troubled(trouble: (request: number, send: () => Promise<Response>) => Promise<Response>, attempts?: number) {
  const made = { count: 0 };
  const world = new World((world) => ({
    url: "http://localhost",
    attempts,
    fetch: (url, init) => {
      const request = new Request(url, init);
      return trouble(made.count++, () => world.handle(request));
    },
  }));
  return { world, made };
}

const html = new Headers({ "content-type": "text/html; charset=utf-8" });
const asJson = new Headers({ "content-type": "application/json" });
const page = "<!doctype html><title>Welcome</title><p>You are in the wrong place.";

/** A response whose body ends, or breaks off, after so many bytes. */
async function cut(response: Response, at: number, breaks: boolean): Promise<Response> {
  const bytes = new Uint8Array(await response.arrayBuffer());
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(bytes.slice(0, Math.min(at, bytes.length)));
      if (!breaks) controller.close();
    },
    pull: (controller) => controller.error(new TypeError("terminated")),
  });
  return new Response(body, response);
}

type Trouble = (send: () => Promise<Response>) => Promise<Response>;

/** What passes: the call has the same result as without it, and the same effects. */
const passing: Readonly<Record<string, Trouble>> = {
  "no connection": () => Promise.reject(new TypeError("fetch failed")),
  "an answer that is lost": async (send) => {
    await (await send()).text();
    throw new TypeError("socket hang up");
  },
  "a request that throws at once": () => {
    throw new TypeError("Load failed");
  },
  "an empty 200": async () => new Response(""),
  "an empty 200 that says it is JSON": async () => new Response("", { headers: asJson }),
  "an answer that is lost behind an empty 200": async (send) => {
    await (await send()).text();
    return new Response("");
  },
  "a 200 without a body": async () => new Response(null),
  "a 200 with a page": async () => new Response(page, { headers: html }),
  "a 200 with a page that says it is JSON": async () => new Response(page, { headers: asJson }),
  "a 200 with a page that says it is a stream": async () =>
    new Response(page, { headers: { "content-type": "text/event-stream" } }),
  "the right body with the wrong type": async (send) => new Response(await (await send()).text(), { headers: html }),
  "the right body without a type": async (send) => {
    const response = await send();
    const headers = new Headers(response.headers);
    headers.delete("content-type");
    return new Response(await response.arrayBuffer(), { headers });
  },
  ...Object.fromEntries(
    ["null", "[]", "{}", '"x"', "7", '{"run_id":7}', '{"messages":[null]}'].map((text) => [
      `a 200 with ${text}`,
      async () => new Response(text, { headers: asJson }),
    ]),
  ),
  ...Object.fromEntries(
    ["nothing", "null", "{}", '{"type":7}', '{"type":"message.part"}', '{"type":"run.completed"}'].map((text) => [
      `an event with ${text}`,
      async () => new Response(`id: 1\ndata: ${text}\n\n`, { headers: { "content-type": "text/event-stream" } }),
    ]),
  ),
  ...Object.fromEntries(
    [408, 425, 429, 502, 503, 504, 520, 521, 522, 523, 524].map((status) => [
      `${status} of a proxy`,
      async () => new Response(page, { status, headers: html }),
    ]),
  ),
  "503 of the server": async () =>
    Response.json({ code: "server_error", message: "Full.", data: { reason: "limit_reached" } }, { status: 503 }),
};

/** What does not: the error says so. */
const lasting: Readonly<Record<string, readonly [Trouble, object]>> = {
  ...Object.fromEntries(
    [301, 302, 303, 307, 308].map((status) => [
      `${status}`,
      [
        async () => new Response(null, { status, headers: { location: "https://elsewhere.example/" } }),
        { code: "redirected", status, message: expect.stringContaining("https://elsewhere.example/") },
      ],
    ]),
  ),
  "a redirect as a browser tells it": [
    async () => Object.defineProperties(new Response(""), { status: { value: 0 }, type: { value: "opaqueredirect" } }),
    { code: "redirected" },
  ],
  "500": [
    async () => new Response(page, { status: 500, headers: html }),
    { code: "refused", status: 500, message: "The server answered with 500." },
  ],
  "403 with a text": [
    async () => new Response("Not you.", { status: 403 }),
    { code: "refused", status: 403, message: "Not you." },
  ],
  "404 whose message is no text": [
    async () => Response.json({ code: 7, message: { no: "text" }, data: "x" }, { status: 404 }),
    { code: "refused", status: 404, message: "The server answered with 404." },
  ],
  "422 whose body breaks off": [
    async () => cut(new Response('{"code":"x"', { status: 422 }), 5, true),
    { code: "refused", status: 422 },
  ],
};

describe.each(Object.entries(calls))("%s", (_name, call) => {
  // A pause of 0 ms ends in the next turn of the event loop. A timer of Node would take a millisecond.
  beforeEach(() => {
    const later = setTimeout;
    vi.stubGlobal("setTimeout", (act: () => void, ms: number) => (ms === 0 ? setImmediate(act) : later(act, ms)));
  });
  afterEach(() => void vi.unstubAllGlobals());

  /** The call with a trouble in one request. */
  async function outcome(trouble: Trouble, at: number) {
    const { world, made } = troubled((request, send) => (request === at ? trouble(send) : send()));
    const value = plain(await call(await world.begin()));
    return { value, effects: await world.effects(), count: made.count };
  }

  const untroubled: Trouble = (send) => send();

  it("has its result and its effects, whatever befalls a request", async () => {
    const expected = await outcome(untroubled, -1);
    for (let at = 0; at < expected.count; at++) {
      for (const [what, trouble] of Object.entries(passing)) {
        const { value, effects, count } = await outcome(trouble, at);
        expect({ what, at, value, effects }).toEqual({ what, at, value: expected.value, effects: expected.effects });
        expect({ what, at, isRepeated: count > expected.count }).toEqual({ what, at, isRepeated: true });
      }
    }
  });

  it("has its result and its effects, wherever a body breaks off", async () => {
    const expected = await outcome(untroubled, -1);
    let bytes = 0;
    for (let at = 0; at < expected.count; at++) {
      await outcome(async (send) => {
        const response = await send();
        const whole = await response.arrayBuffer();
        bytes = whole.byteLength;
        return new Response(whole, response);
      }, at);
      // Some of the places are tried here, and all of them over a socket.
      for (let length = 0; length < bytes; length += 1 + Math.floor(bytes / 20)) {
        for (const breaks of [true, false]) {
          const { value, effects } = await outcome(async (send) => cut(await send(), length, breaks), at);
          expect({ at, length, breaks, value, effects }).toEqual({
            ...{ at, length, breaks },
            value: expected.value,
            effects: expected.effects,
          });
        }
      }
    }
  });

  it("rejects with a ClientError if it does not pass", async () => {
    const { count } = await outcome(untroubled, -1);
    for (let at = 0; at < count; at++) {
      for (const [what, [trouble, error]] of Object.entries(lasting)) {
        const failure: unknown = await outcome(trouble, at).catch((thrown: unknown) => thrown);
        expect(failure, what).toBeInstanceOf(ClientError);
        expect({ what, at, failure }).toMatchObject({ what, at, failure: error });
      }
    }
  });

  it("rejects with a ClientError after the last attempt", async () => {
    for (const [what, trouble] of Object.entries(passing)) {
      const { world, made } = troubled((_, send) => trouble(send), 3);
      const failure: unknown = await call(await world.begin()).catch((thrown: unknown) => thrown);
      expect(failure, what).toBeInstanceOf(ClientError);
      expect({ what, count: made.count }).toEqual({ what, count: 3 });
    }
  });
});

describe.each(Object.entries(calls))("in its own time, %s", (_name, call) => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] }));
  afterEach(() => {
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  /** The call with a trouble in one request, and when its requests were sent, in milliseconds since the first. */
  async function outcome(trouble: Trouble, at: number) {
    const times: number[] = [];
    const { world } = troubled((request, send) => {
      times.push(Date.now());
      return request === at ? trouble(send) : send();
    });
    await world.begin();
    let isSettled = false;
    const called = call(world).finally(() => {
      isSettled = true;
    });
    called.catch(() => undefined);
    while (!isSettled) await vi.advanceTimersToNextTimerAsync();
    return {
      value: plain(await called),
      effects: await world.effects(),
      times: times.map((ms) => ms - (times[0] ?? 0)),
    };
  }

  const untroubled: Trouble = (send) => send();

  it.each([429, 503])("comes back when Retry-After of %i says so, and not before", async (status) => {
    const busy = async () => new Response("", { status, headers: { "retry-after": "7" } });
    const expected = await outcome(untroubled, -1);
    for (let at = 0; at < expected.times.length; at++) {
      const { times, ...rest } = await outcome(busy, at);
      expect({ at, ...rest }).toEqual({ at, value: expected.value, effects: expected.effects });
      const pause = (times[at + 1] ?? 0) - (times[at] ?? 0);
      // Clients that were told the same time spread over the quarter after it.
      expect({ at, pause, isRight: pause >= 7_000 && pause <= 8_750 }).toMatchObject({ at, isRight: true });
    }
  });

  it("has its result when the server is slow to begin, and sends its body in drops", async () => {
    const slow: Trouble = async (send) => {
      const response = await send();
      await new Promise((resolve) => setTimeout(resolve, 20_000));
      const bytes = new Uint8Array(await response.arrayBuffer());
      const size = Math.ceil(bytes.length / 20);
      let from = 0;
      const body = new ReadableStream<Uint8Array>({
        async pull(controller) {
          await new Promise((resolve) => setTimeout(resolve, 5_000));
          controller.enqueue(bytes.slice(from, from + size));
          from += size;
          if (from >= bytes.length) controller.close();
        },
      });
      return new Response(body, response);
    };
    const expected = await outcome(untroubled, -1);
    for (let at = 0; at < expected.times.length; at++) {
      const { times, ...rest } = await outcome(slow, at);
      expect({ at, ...rest }).toEqual({ at, value: expected.value, effects: expected.effects });
      expect({ at, requests: times.length }).toEqual({ at, requests: expected.times.length });
    }
  });
});
