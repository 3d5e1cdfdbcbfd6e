import { AgentRuntime } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { createParser } from "eventsource-parser";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import type { Random } from "../harness/random.ts";
import { countingStore } from "../harness/store-proxy.ts";
import { Client, parseEvents } from "./client.ts";
import { runOf } from "./facts/fact.ts";
import { inProcess, nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

/* In a process of its own: it takes long, and should begin first. */

const STREAM = { accept: "text/event-stream" };

describe("a stream of events", () => {
  it(
    "that is cut at any position goes on without a gap and without repetition",
    async () => {
      const random = seededRandom();
      const runtime = makeWorld({ retention: { maxRuns: 100 } });
      // Pauses of a paced agent may contain keep-alive comments.
      const [direct, socket] = [
        await inProcess.open(runtime, { heartbeatMs: 1 }),
        await nodeHttp.open(runtime, { heartbeatMs: 1 }),
      ];
      for (let i = 0; i < amount(5_000, 60); i++) {
        const agent_name = random.pick(["words", "paced", "paced", "notes", "asker", "failing"]);
        const content = random.pick(["1", "7", "\u2028", "90"]);
        const body = { agent_name, mode: "stream", input: [{ parts: [{ content }] }] };
        const client = new Client(random.chance(0.9) ? direct : socket);
        const first = await client.open("POST", "/runs", { body });
        const id = first.headers.get("run-id");
        let seen = await readUpTo(first, random.below(6_000));
        for (let more = true; more; ) {
          const lastId = seen.at(-1)?.id ?? "0";
          const headers = { ...STREAM, "last-event-id": lastId };
          const again = await client.open("GET", `/runs/${id}/events`, { headers });
          const rest = await readUpTo(again, random.chance(0.5) ? random.below(6_000) : Number.POSITIVE_INFINITY);
          seen = [...seen, ...rest];
          more = !/^run\.(awaiting|completed|failed)$/.test(seen.at(-1)?.event ?? "");
        }
        const log = await client.get(`/runs/${id}/events`);
        expect(seen.map(({ data }) => data)).toEqual(log.json["events"]);
        expect(seen.map((event) => event.id)).toEqual(seen.map((_, index) => String(index + 1)));
        await runtime.cancel(String(id)).catch(() => undefined);
      }
      await Promise.all([direct, socket].map((place) => place.close()));
      await runtime.close({ drainMs: 0 });
    },
    LONG_MS,
  );

  it(
    "has one frame for each event, whatever the text contains",
    async () => {
      const random = seededRandom();
      const runtime = makeWorld({ retention: { maxRuns: 10 } });
      const handler = createAcpHandler(runtime);
      const perRun = 200;
      for (let i = 0; i < amount(200_000, 4_000); i += perRun) {
        const contents = Array.from({ length: perRun }, () => hostileText(random));
        const input = [{ parts: contents.map((content) => ({ content })) }];
        const response = await handler(post("/runs", JSON.stringify({ agent_name: "hostile", mode: "stream", input })));
        const text = await response.text();
        const known = JSON.parse(JSON.stringify(contents)) as string[];
        const events = parseEvents(text);
        const parts = events.filter(({ event }) => event === "message.part").map(({ data }) => data["part"]);
        expect(parts.map((part) => part?.["content"])).toEqual(known);
        expect(parts.map((part) => part?.["name"])).toEqual(known);
        expect(events.find(({ event }) => event === "generic")?.data["generic"]).toEqual({ contents: known });
        // A reader that splits at every line break of Unicode gets the same lines.
        const lines = text.split(/\r\n|[\n\r\v\f\u0085\u2028\u2029]/);
        expect(lines).toEqual(text.split("\n"));
        expect(lines.filter((line) => line !== "" && !/^(id: \d+|event: [a-z.-]+|data: \{.*\})$/.test(line))).toEqual(
          [],
        );
      }
      await runtime.close({ drainMs: 0 });
    },
    LONG_MS,
  );

  it("sends keep-alive comments in a pause, which no client takes for an event", async () => {
    const clock = new FakeClock();
    const runtime = makeWorld({ clock });
    const response = await createAcpHandler(runtime, { heartbeatMs: 1_000 })(
      post("/runs", JSON.stringify({ agent_name: "waiter", mode: "stream", input: [] })),
    );
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader?.read())?.value ?? "";
    while (!text.includes("message.part")) text += (await reader?.read())?.value ?? "";
    const events: string[] = [];
    const comments: string[] = [];
    const parser = createParser({
      onEvent: ({ event }) => events.push(String(event)),
      onComment: (comment) => comments.push(comment),
      onError: (error) => expect(error).toBeUndefined(),
    });
    parser.feed(text);
    const before = events.length;
    for (let beats = 1; beats <= 3; beats++) {
      const piece = reader?.read();
      await clock.advance(1_000);
      expect((await piece)?.value).toBe(":\n");
      parser.feed(":\n");
      expect([events.length, comments.length]).toEqual([before, beats]);
    }
    const piece = reader?.read();
    const id = response.headers.get("run-id") ?? "";
    await runtime.cancel(id);
    await clock.settle();
    parser.feed((await piece)?.value ?? "");
    expect(events.at(-1)).toBe("run.cancelled");
    await reader?.cancel();
  });

  it("without a reader does not keep its run from completing", async () => {
    const runtime = makeWorld();
    const response = await createAcpHandler(runtime)(
      post("/runs", JSON.stringify({ agent_name: "words", mode: "stream", input: [{ parts: [{ content: "50" }] }] })),
    );
    const id = response.headers.get("run-id") ?? "";
    for await (const _ of runtime.events(id)) {
      // Waits for the end of the stream.
    }
    expect(await runtime.getRun(id)).toMatchObject({ status: "completed" });
    // A late reader gets all of it.
    expect(parseEvents(await response.text()).at(-1)?.event).toBe("run.completed");
  });

  it("that is read late has all events of a resumed run, and ends", async () => {
    const runtime = makeWorld();
    const client = new Client(await inProcess.open(runtime));
    const { json } = await client.run("asker", "x");
    const await_resume = { type: "message", message: { parts: [{ content: "a" }] } };
    const response = await client.open("POST", `/runs/${json["run_id"]}`, {
      body: { await_resume, mode: "stream" },
    });
    await client.post(`/runs/${json["run_id"]}`, { await_resume });
    const events = parseEvents(await response.text());
    expect(events.map(({ event }) => event)).toEqual([
      ...["run.in-progress", "message.created", "message.part", "message.completed", "run.awaiting"],
    ]);
  });

  it("reaches each of several readers to its end, however slow one is", async () => {
    const runtime = makeWorld();
    const client = new Client(await inProcess.open(runtime));
    const slow = await client.open("POST", "/runs", {
      body: { agent_name: "words", mode: "stream", input: [{ parts: [{ content: "2000" }] }] },
    });
    const id = slow.headers.get("run-id");
    const fast = await Promise.all([client.follow(id), client.follow(id), client.follow(id)]);
    for (const events of fast) expect(events.at(-1)?.event).toBe("run.completed");
    expect(parseEvents(await slow.text())).toEqual(fast[0]);
  });

  it("tells a reader whose events have been removed that there is a gap", async () => {
    const runtime = makeWorld({ retention: { maxRuns: 0 } });
    const client = new Client(await inProcess.open(runtime));
    const stream = await client.open("POST", "/runs", {
      body: { agent_name: "words", mode: "stream", input: [{ parts: [{ content: "3000" }] }] },
    });
    const id = stream.headers.get("run-id") ?? "";
    for await (const _ of runtime.events(id)) {
      // Waits for the end of the stream.
    }
    await client.run("echo", "x");
    const last = parseEvents(await stream.text()).at(-1);
    expect(last).toMatchObject({ event: "error", data: { error: { code: "server_error" } } });
    expect((await client.get(`/runs/${id}/events`)).status).toBe(404);
  });

  it("reads each entry once, and sends each event once", async () => {
    const PARTS = 20_000;
    const { store, entries } = countingStore();
    const runtime = new AgentRuntime({ store });
    runtime.register("words", async function* () {
      for (let i = 0; i < PARTS; i++) yield "word ";
    });
    const client = new Client(await inProcess.open(runtime));
    const response = await client.open("POST", "/runs", { body: { agent_name: "words", mode: "stream", input: [] } });
    const text = await response.text();
    expect(text.match(/^event: message\.part$/gm)).toHaveLength(PARTS);
    expect(entries.written).toBe(PARTS + 3);
    expect(entries.read).toBeLessThanOrEqual(PARTS + 3);
    // Beside the parts there are five events.
    expect(text.match(/^id: /gm)).toHaveLength(PARTS + 5);
  });

  it("over a socket ends where the run rests, and the connection can be used again", async () => {
    const runtime = makeWorld();
    const place = await nodeHttp.open(runtime);
    const client = new Client(place);
    for (let i = 0; i < 3; i++) {
      const { events } = await client.run("asker", "x", { mode: "stream" });
      expect(events.at(-1)?.event).toBe("run.awaiting");
      expect(runOf(events.at(-1))["status"]).toBe("awaiting");
    }
    await place.close();
    await runtime.close({ drainMs: 0 });
  });
});

function post(path: string, body: string): Request {
  return new Request(`http://service.test${path}`, {
    method: "POST",
    body,
    headers: { "content-type": "application/json" },
  });
}

/** The complete events in the first bytes; then the reader disconnects. */
async function readUpTo(response: Response, bytes: number): Promise<ReturnType<typeof parseEvents>> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let left = bytes;
  for (let read = await reader?.read(); read?.done === false && left > 0; read = await reader?.read()) {
    text += decoder.decode(read.value.subarray(0, left), { stream: true });
    left -= read.value.length;
  }
  await reader?.cancel();
  return parseEvents(text);
}

const nasty = [
  ...[
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\u2028",
    "\u2029",
    "\u0085",
    "\v",
    "\f",
    "\u001c",
    "\u0000",
    "\ufeff",
    "\ud800",
    "\udfff",
  ],
  ...["data: ", "id: 9\n", "event: error\n\n", ":", '"', "\\", "\\n", "\\u2028", "💥", "</script>", "{}", "x"],
] as const satisfies readonly string[];

function hostileText(random: Random): string {
  let text = "";
  for (let i = random.below(8); i >= 0; i--) text += nasty[random.below(nasty.length)];
  return text;
}
