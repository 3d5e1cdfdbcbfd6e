import { createServer } from "node:http";
import { AgentRuntime, awaitMessage } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { Client } from "./client.ts";
import { inProcess, listen, nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

describe("a client that disconnects", () => {
  it("does not cancel its run", async () => {
    const runtime = makeWorld();
    const place = await nodeHttp.open(runtime);
    const client = new Client(place);
    for (const mode of ["sync", "stream"]) {
      const controller = new AbortController();
      const session_id = crypto.randomUUID();
      const input = [{ parts: [] }];
      const sending = client.open("POST", "/runs", {
        body: { agent_name: "waiter", input, mode, session_id },
        signal: controller.signal,
      });
      const id = await untilLive(client, session_id);
      controller.abort();
      await sending.then(({ body }) => body?.cancel()).catch(() => undefined);
      expect((await client.get(`/runs/${id}`)).json["status"]).toBe("in-progress");
      await runtime.cancel(id);
    }
    await place.close();
  });

  it("is not waited for any longer", async () => {
    const runtime = makeWorld();
    const client = new Client(await inProcess.open(runtime));
    const controller = new AbortController();
    const body = { agent_name: "waiter", input: [], session_id: crypto.randomUUID() };
    const answer = client.open("POST", "/runs", { body, signal: controller.signal });
    const id = await untilLive(client, body.session_id);
    controller.abort();
    expect(await (await answer).json()).toMatchObject({ data: { reason: "client_left" } });
    await runtime.cancel(id);
  });

  it("cancels its run if the host has set that", async () => {
    const runtime = makeWorld();
    const place = await nodeHttp.open(runtime, { onDisconnect: "cancel" });
    const client = new Client(place);
    expect((await client.run("echo", "x")).json["status"]).toBe("completed");
    const asked = await client.run("asker", "x");
    expect(asked.json["status"]).toBe("awaiting");
    // The response is complete: the client has not disconnected.
    expect((await client.get(`/runs/${asked.json["run_id"]}`)).json["status"]).toBe("awaiting");
    for (const mode of ["sync", "stream"]) {
      const controller = new AbortController();
      const session_id = crypto.randomUUID();
      const body = { agent_name: "waiter", input: [], mode, session_id };
      const sending = client.open("POST", "/runs", { body, signal: controller.signal });
      const id = await untilLive(client, session_id);
      if (mode === "stream") await sending;
      controller.abort();
      await sending.catch(() => undefined);
      expect((await client.follow(id)).at(-1)?.event).toBe("run.cancelled");
    }
    await place.close();
  });

  it.each(["sync", "stream"])("after its answer (%s) cancels nothing", async (mode) => {
    const clock = new FakeClock();
    const runtime = makeWorld({ clock });
    const client = new Client(await inProcess.open(runtime, { onDisconnect: "cancel" }));
    const controller = new AbortController();
    const body = { agent_name: "asker", input: [], mode };
    const response = await client.open("POST", "/runs", { body, signal: controller.signal });
    expect(await response.text()).toContain("awaiting");
    // Deno aborts the signal after each answer, and so does a signal with a timeout.
    controller.abort();
    await clock.settle();
    const id = response.headers.get("run-id") ?? "";
    expect(await runtime.getRun(id)).toMatchObject({ status: "awaiting" });
    await runtime.resume({ run_id: id, await_resume: { message: { parts: [] } } });
  });

  it("after it has read the question, and before the end of the stream, cancels nothing", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({ clock });
    runtime.register("asker", async function* (input) {
      yield "x".repeat(Number(input[0]?.parts[0]?.content));
      yield awaitMessage("Go on?");
    });
    const client = new Client(await inProcess.open(runtime, { onDisconnect: "cancel" }));
    // The question may be at the end of a chunk or not.
    for (let length = 9_000; length < 17_000; length += 50) {
      const input = [{ parts: [{ content: String(length) }] }];
      const response = await client.open("POST", "/runs", { body: { agent_name: "asker", input, mode: "stream" } });
      const reader = response.body?.getReader();
      const decoder = new TextDecoder();
      let text = "";
      while (!/event: run.awaiting\n.*\n\n$/.test(text))
        text += decoder.decode((await reader?.read())?.value, { stream: true });
      await reader?.cancel();
      await clock.settle();
      expect(await runtime.getRun(response.headers.get("run-id") ?? "")).toMatchObject({ status: "awaiting" });
    }
  });

  describe("for longer than cancelAfterMs", () => {
    /** A run at work, whose client of this mode can leave, and the events of other clients. */
    async function atWork(mode: "sync" | "stream", agent_name = "waiter", cancelAfterMs = 1_000) {
      const clock = new FakeClock();
      const runtime = makeWorld({ clock });
      const client = new Client(await inProcess.open(runtime, { onDisconnect: { cancelAfterMs } }));
      const controller = new AbortController();
      const body = { agent_name, input: [], mode, session_id: crypto.randomUUID() };
      const sending = client.open("POST", "/runs", { body, signal: controller.signal });
      sending.catch(() => undefined);
      await clock.settle();
      const [run] = await runtime.listRuns();
      const run_id = run?.run_id ?? "";
      const leave = async (): Promise<void> => {
        controller.abort();
        await sending.then(({ body }) => body?.cancel()).catch(() => undefined);
        await clock.settle();
      };
      const follow = async (): Promise<() => Promise<void>> => {
        const headers = { accept: "text/event-stream" };
        const { body } = await client.open("GET", `/runs/${run_id}/events?until=end`, { headers });
        await clock.settle();
        return async () => {
          await body?.cancel();
          await clock.settle();
        };
      };
      const statusAfter = async (ms: number): Promise<string> => {
        await clock.advance(ms);
        await clock.settle();
        return (await runtime.getRun(run_id)).status;
      };
      return { clock, runtime, run_id, leave, follow, statusAfter };
    }

    it.each(["sync", "stream"] as const)("loses its run (%s) then, and not before", async (mode) => {
      const { leave, statusAfter } = await atWork(mode);
      expect(await statusAfter(5_000)).toBe("in-progress");
      await leave();
      expect(await statusAfter(999)).toBe("in-progress");
      expect(await statusAfter(1)).toBe("cancelled");
    });

    it.each(["sync", "stream"] as const)("keeps its run (%s) if it follows the events in time", async (mode) => {
      const { leave, follow, statusAfter } = await atWork(mode);
      await leave();
      expect(await statusAfter(900)).toBe("in-progress");
      const leaveAgain = await follow();
      const other = await follow();
      expect(await statusAfter(10_000)).toBe("in-progress");
      await leaveAgain();
      expect(await statusAfter(10_000)).toBe("in-progress");
      // When the last one has left, the time begins again.
      await other();
      expect(await statusAfter(999)).toBe("in-progress");
      expect(await statusAfter(1)).toBe("cancelled");
    });

    it("keeps its run while another reader is there that came before it left", async () => {
      const { leave, follow, statusAfter } = await atWork("stream");
      const other = await follow();
      await leave();
      expect(await statusAfter(10_000)).toBe("in-progress");
      await other();
      expect(await statusAfter(1_000)).toBe("cancelled");
    });

    it("keeps a run that waits for an answer by then, and one that has ended", async () => {
      const { runtime, run_id, leave, statusAfter } = await atWork("stream", "asker");
      await leave();
      expect(await statusAfter(10_000)).toBe("awaiting");
      const answer = { message: { parts: [] } };
      await runtime.resume({ run_id, await_resume: answer });
      await runtime.resume({ run_id, await_resume: answer });
      expect(await statusAfter(10_000)).toBe("completed");
      const ended = await atWork("sync", "echo");
      await ended.leave();
      expect(await ended.statusAfter(10_000)).toBe("completed");
    });

    it("loses nothing if it only follows a run in mode async", async () => {
      const clock = new FakeClock();
      const runtime = makeWorld({ clock });
      const client = new Client(await inProcess.open(runtime, { onDisconnect: { cancelAfterMs: 1_000 } }));
      const { json } = await client.run("waiter", "x", { mode: "async" });
      const headers = { accept: "text/event-stream" };
      const { body } = await client.open("GET", `/runs/${json["run_id"]}/events`, { headers });
      await clock.settle();
      await body?.cancel();
      await clock.advance(10_000);
      expect(await runtime.getRun(String(json["run_id"]))).toMatchObject({ status: "in-progress" });
    });

    it("with Infinity loses nothing", async () => {
      const { leave, statusAfter } = await atWork("stream", "waiter", Number.POSITIVE_INFINITY);
      await leave();
      expect(await statusAfter(1_000_000)).toBe("in-progress");
    });
  });

  it("leaves no listener on its signal", async () => {
    const runtime = makeWorld();
    const { signal } = new AbortController();
    let listeners = 0;
    const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
    for (const onDisconnect of ["continue", "cancel", { cancelAfterMs: 1 }] as const) {
      const place = await inProcess.open(runtime, { onDisconnect });
      for (const mode of ["sync", "stream", "async"]) {
        const body = JSON.stringify({ agent_name: "asker", input: [], mode });
        const headers = { "content-type": "application/json" };
        const request = new Request(`${place.base}/runs`, { method: "POST", headers, body });
        const watched: Pick<AbortSignal, "aborted" | "addEventListener" | "removeEventListener"> = {
          aborted: false,
          addEventListener: (...parameters: Parameters<typeof add>) => {
            listeners += 1;
            add(...parameters);
          },
          removeEventListener: (...parameters: Parameters<typeof remove>) => {
            listeners -= 1;
            remove(...parameters);
          },
        };
        Object.defineProperty(request, "signal", { value: watched });
        await (await place.fetch(request)).text();
        expect(listeners, `${onDisconnect}, ${mode}`).toBe(0);
      }
    }
  });

  it("leaves no listener on its response, but for the one for errors", async () => {
    const left: unknown[] = [];
    for (const onDisconnect of ["continue", "cancel"] as const) {
      const listener = createAcpNodeListener(makeWorld(), { onDisconnect });
      const server = createServer((request, response) => {
        const before = response.listenerCount("close");
        response.on("finish", () =>
          left.push([response.listenerCount("close") - before, response.listenerCount("drain")]),
        );
        listener(request, response);
      });
      const place = await listen(server);
      for (const mode of ["sync", "stream", "async"]) await new Client(place).run("asker", "x", { mode });
      await place.close();
    }
    expect(left).toEqual(Array.from({ length: 6 }, () => [0, 0]));
  });
});

async function untilLive(client: Client, sessionId: string): Promise<string> {
  for (;;) {
    const { json } = await client.get(`/runs?session_id=${sessionId}&status=in-progress`);
    const [run] = json["runs"] as unknown as { run_id: string }[];
    if (run !== undefined) return run.run_id;
  }
}
