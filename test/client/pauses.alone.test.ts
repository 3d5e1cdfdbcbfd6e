import type { ConnectionOptions } from "cadenza/client";
import { chatOptions, createClient } from "cadenza/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

/* In a process of its own: it replaces the timers. */

/* When the client tries again, and when it gives up. Time passes only when a test lets it. */

const RUN = "00000000-0000-4000-8000-000000000000";
const record = { run_id: RUN, status: "completed", output: [], finished_at: "2026-01-01T00:00:00Z" };
const end = `id: 7\ndata: ${JSON.stringify({ type: "run.completed", run: record })}\n\n`;
const stream = { "content-type": "text/event-stream" };

/** The times of the requests, in milliseconds since the first one. */
let times: number[];
let aborted: number;
const events = new EventTarget();
const page = new EventTarget();

beforeEach(() => {
  times = [];
  aborted = 0;
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"], now: Date.parse("2026-01-01T00:00:00Z") });
  vi.spyOn(Math, "random").mockReturnValue(1);
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** A run of a server that answers as it is told, and as the last answer says in the end. */
function runOf(answers: readonly (() => Response | Promise<Response>)[], options: ConnectionOptions = {}) {
  const from = Date.now();
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    init?.signal?.addEventListener("abort", () => {
      aborted += 1;
    });
    times.push(Date.now() - from);
    return (answers[times.length - 1] ?? answers.at(-1) ?? expect.fail("no answer"))();
  };
  return createClient({ url: "http://localhost", fetch, ...options }).attach("agent", RUN);
}

const ok = (): Response => Response.json(record);
const lost = (): Promise<Response> => Promise.reject(new TypeError("fetch failed"));
const whole = (text: string) => (): Response => new Response(text, { headers: stream });
const busy =
  (headers: Record<string, string>, status = 503) =>
  (): Response =>
    new Response("", { status, headers });
const repeated = <T>(count: number, one: T): T[] => Array.from({ length: count }, () => one);

/** Lets time pass until a promise has settled. */
async function passes<T>(promise: Promise<T>, stepMs = 50): Promise<T> {
  let isSettled = false;
  const settled = (): void => {
    isSettled = true;
  };
  promise.then(settled, settled);
  while (!isSettled) await vi.advanceTimersByTimeAsync(stepMs);
  return promise;
}

async function read(source: AsyncIterable<unknown>): Promise<unknown[]> {
  const all: unknown[] = [];
  for await (const one of source) all.push(one);
  return all;
}

it("the pauses double, and a request that a caller awaits is sent five times", async () => {
  await expect(passes(runOf([lost]).record())).rejects.toMatchObject({ code: "unreachable" });
  expect(times).toEqual([0, 250, 750, 1_750, 3_750]);
});

it("the pauses lie between half of that and the whole", async () => {
  vi.spyOn(Math, "random").mockReturnValue(0);
  await expect(passes(runOf([lost], { backoffMs: 200 }).record())).rejects.toMatchObject({ code: "unreachable" });
  expect(times).toEqual([0, 100, 300, 700, 1_500]);
});

it.each(["events", "result", "watch"] as const)("%s follow a run for as long as the server is away", async (what) => {
  const retries: [string, number][] = [];
  const onRetry = (error: { readonly code: string }, pauseMs: number): void => {
    retries.push([error.code, pauseMs]);
  };
  const run = runOf([...repeated(60, lost), whole(end), ok], { onRetry });
  const done = {
    events: () => read(run.events()),
    result: () => run.result(),
    watch: () => new Promise((resolve) => run.watch(() => resolve(run.view.status))),
  };
  await passes(done[what]());
  expect(times.slice(0, 9)).toEqual([0, 250, 750, 1_750, 3_750, 7_750, 15_750, 25_750, 35_750]);
  expect(times[60]).toBeGreaterThan(9 * 60_000);
  expect(retries).toHaveLength(60);
  expect(retries[0]).toEqual(["unreachable", 250]);
});

it("a server that refuses for now is asked again without end by readers alone", async () => {
  const refusal = (): Response =>
    Response.json({ code: "server_error", message: "Full.", data: { reason: "limit_reached" } }, { status: 503 });
  expect(await passes(read(runOf([...repeated(20, refusal), whole(end)]).events()))).toHaveLength(1);
  const answers = repeated(20, refusal);
  const fetch: typeof globalThis.fetch = async () => (answers.pop() ?? refusal)();
  const { transport } = chatOptions({ api: "http://localhost/chat/desk", id: "c", fetch });
  const sending = {
    chatId: "c",
    messages: [],
    trigger: "submit-message",
    messageId: undefined,
    abortSignal: undefined,
  };
  await expect(passes(transport.sendMessages(sending))).rejects.toMatchObject({
    code: "limit_reached",
    message: "Full.",
  });
  expect(answers).toHaveLength(15);
});

it("an answer that is none of the server ends also a patient reader", async () => {
  const html = (): Response => new Response("<p>Welcome", { headers: { "content-type": "text/html" } });
  await expect(passes(read(runOf([html]).events()))).rejects.toMatchObject({
    code: "bad_response",
    message: expect.stringContaining("text/html"),
  });
  expect(times).toHaveLength(5);
});

it("heartbeats count: a run that waits is followed for ever, also with a limit on attempts", async () => {
  const run = runOf([...repeated(100, whole(":\n")), whole(end)], { attempts: 2 });
  expect(await passes(read(run.events()))).toHaveLength(1);
  expect(times).toHaveLength(101);
  expect(times[100]).toBe(100 * 250);
});

it("without any byte the limit on attempts holds for a stream", async () => {
  await expect(passes(read(runOf([whole("")], { attempts: 3 }).events()))).rejects.toMatchObject({
    code: "unreachable",
  });
  expect(times).toEqual([0, 250, 750]);
});

const later = (ms: number): string => new Date(Date.parse("2026-01-01T00:00:00Z") + ms).toUTCString();

it.each([
  ["seconds", { "retry-after": "7" }, 7_000 * 1.25],
  ["a date", { "retry-after": later(8_000) }, 8_000 * 1.25],
  ["a date, by the clock of the server", { "retry-after": later(99_000), date: later(90_000) }, 9_000 * 1.25],
  ["more than a minute", { "retry-after": "86400" }, 60_000 * 1.25],
  ["a date that is past", { "retry-after": later(-8_000) }, 250],
  ["nonsense", { "retry-after": "soon" }, 250],
  ["nothing", {}, 250],
] as const)("a request is made again when the server's Retry-After says so: %s", async (_what, headers, pauseMs) => {
  expect(await passes(runOf([busy(headers), ok]).record())).toEqual(record);
  // The steps of the test are 50 ms long.
  expect(times).toEqual([0, Math.ceil(pauseMs / 50) * 50]);
});

it("Retry-After holds for 429 and for streams too", async () => {
  const run = runOf([busy({ "retry-after": "4" }, 429), busy({ "retry-after": "2" }), whole(end)]);
  expect(await passes(read(run.events()))).toHaveLength(1);
  expect(times).toEqual([0, 5_000, 7_500]);
});

it("a stream that says when to come back is left alone for so long", async () => {
  const closing = `retry: 3000\nevent: error\ndata: {"type":"error","error":{"code":"server_error","message":"Closing."}}\n\n`;
  expect(await passes(read(runOf([whole(closing), whole(end)]).events()))).toHaveLength(1);
  expect(times).toEqual([0, 3_750]);
});

it.each([
  ["online", (): unknown => events.dispatchEvent(new Event("online"))],
  ["visibilitychange", (): unknown => page.dispatchEvent(new Event("visibilitychange"))],
] as const)("the event %s ends the pause before the next attempt", async (_what, happens) => {
  vi.stubGlobal("self", events);
  vi.stubGlobal("document", page);
  const done = read(runOf([...repeated(8, lost), whole(end)]).events());
  await vi.advanceTimersByTimeAsync(26_000);
  expect(times).toHaveLength(8);
  happens();
  await vi.advanceTimersByTimeAsync(1);
  expect(times).toEqual([0, 250, 750, 1_750, 3_750, 7_750, 15_750, 25_750, 26_000]);
  expect(await done).toHaveLength(1);
});

it("a signal ends a pause, and leaves nothing behind", async () => {
  const stop = new AbortController();
  const removed = vi.spyOn(stop.signal, "removeEventListener");
  const added = vi.spyOn(stop.signal, "addEventListener");
  const done = read(runOf([lost]).events({ signal: stop.signal }));
  await vi.advanceTimersByTimeAsync(60_000);
  stop.abort(new Error("enough"));
  await expect(done).rejects.toThrow("enough");
  expect(times).toHaveLength(11);
  expect(removed.mock.calls.length).toBe(added.mock.calls.length);
});

/** A body of which nothing more comes after a text. */
function stalls(text: string, headers: Record<string, string> = stream): () => Response {
  return () =>
    new Response(new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode(text)) }), {
      headers,
    });
}
const json = { "content-type": "application/json" };

it.each([
  ["no response", () => new Promise<never>(() => {}), ok],
  ["half of a body", stalls('{"run_id":', json), ok],
  ["no byte of a body", stalls("", json), ok],
  ["half of a refusal", () => new Response(stalls("Not")().body, { status: 503 }), ok],
] as const)("silence counts as a broken response: %s", async (_what, silent, good) => {
  expect(await passes(runOf([silent, good], { silenceMs: 1_000 }).record())).toEqual(record);
  // It is looked twice in a second, and the pause is as for any failure.
  expect(times[1]).toBeGreaterThanOrEqual(1_000);
  expect(times[1]).toBeLessThanOrEqual(1_750);
  expect(aborted).toBeGreaterThanOrEqual(1);
});

it("silence breaks a stream, and heartbeats keep it", async () => {
  let beat = (): void => {};
  const beating = (): Response =>
    new Response(
      new ReadableStream({
        start: (controller) => {
          beat = () => controller.enqueue(new TextEncoder().encode(":\n"));
        },
      }),
      { headers: stream },
    );
  const done = read(runOf([beating, whole(end)], { silenceMs: 1_000 }).events());
  for (let beats = 0; beats < 20; beats++) {
    await vi.advanceTimersByTimeAsync(900);
    beat();
  }
  expect(times).toHaveLength(1);
  expect(await passes(done)).toHaveLength(1);
  expect(times).toHaveLength(2);
});

it("an application that takes its time with an event breaks no stream", async () => {
  const part = `id: 1\ndata: {"type":"message.part","part":{}}\n\n`;
  const run = runOf([whole(part + end)], { silenceMs: 1_000 });
  for await (const event of run.events()) {
    if (event.type === "message.part") await vi.advanceTimersByTimeAsync(60_000);
  }
  expect(times).toEqual([0]);
});

it("headers that cannot be made are asked for again", async () => {
  let isAway = true;
  const headers = async () => {
    if (!isAway) return { authorization: "Bearer new" };
    isAway = false;
    throw new TypeError("the identity provider is away");
  };
  expect(await passes(runOf([ok], { headers }).record())).toEqual(record);
  expect(times).toEqual([250]);
});

it.each([{ "no name": "x" }, { authorization: "two\nlines" }])(
  "the option headers is refused if it gives no headers: %o",
  async (headers) => {
    await expect(runOf([ok], { headers: headers as never }).record()).rejects.toMatchObject({
      code: "invalid_argument",
    });
    expect(times).toEqual([]);
  },
);

it("an address that is none is refused, and not tried again", async () => {
  const run = createClient({ url: "/agents" }).attach("agent", RUN);
  await expect(read(run.events())).rejects.toMatchObject({ code: "invalid_argument" });
});

it("a request of the client follows no redirect", async () => {
  const fetch = vi.fn(async (..._request: Parameters<typeof globalThis.fetch>) => ok());
  await createClient({ url: "http://localhost", fetch }).attach("agent", RUN).record();
  expect(fetch.mock.calls[0]?.[1]).toMatchObject({ redirect: "manual" });
});

it.each([{ silenceMs: 0 }, { silenceMs: Number.NaN }, { attempts: -1 }])("attach refuses the option %o", (options) => {
  expect(() => runOf([ok], options)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
});
