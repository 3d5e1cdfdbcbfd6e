import { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* What waits to be received by a run is limited, whichever process a message is sent at. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };
const limits = { maxWaitingMessages: 32, maxWaitingBytes: 32_000 };

/** How many messages of a kind fit, and how many a process may send before it looks at what waits already. */
const kinds = [
  { limit: "maxWaitingMessages", data: "x", room: 32, unseen: 2 },
  { limit: "maxWaitingBytes", data: "x".repeat(1_598), room: 20, unseen: 1 },
] as const;
type Kind = (typeof kinds)[number];

async function open(replicas: Replicas) {
  const worker = replicas.start({ durability, limits });
  worker.runtime.register("takes", { durable: true }, async (_input, { ask, receive }) => {
    for (;;) {
      const { take } = (await ask("How many?")) as { take: number };
      for (let taken = 0; taken < take; taken++) await receive("mail");
    }
  });
  const { run_id } = await worker.runtime.createRun({ agent_name: "takes", input: "" });
  await replicas.clock.advance(1_000);
  const web = (hook?: Hook): Replica => replicas.start({ durability, limits, work: false }, hook);
  const take = async (count: number): Promise<void> => {
    await worker.runtime.resume({ run_id, await_resume: { take: count } });
    await replicas.clock.advance(1_000);
  };
  /** Sends at these processes in turn until a message is refused, and returns how many were not. */
  const fill = async (at: readonly Replica[], { data, limit }: Kind, isKeyed = false): Promise<number> => {
    for (let sent = 0; ; sent++) {
      const { runtime } = at[sent % at.length] as Replica;
      const options = isKeyed ? { idempotencyKey: crypto.randomUUID() } : {};
      try {
        await runtime.send({ to: run_id, name: "mail", data }, options);
      } catch (error) {
        if (!CadenzaError.is(error)) throw error;
        expect(error).toMatchObject({ code: "limit_reached", limit, run_id });
        return sent;
      }
    }
  };
  /** Sends so many messages at once, and returns how many were not refused. */
  const sendAtOnce = async ({ runtime }: Replica, count: number, { data, limit }: Kind, isKeyed = false) => {
    const sending = Array.from({ length: count }, () => {
      const options = isKeyed ? { idempotencyKey: crypto.randomUUID() } : {};
      return runtime.send({ to: run_id, name: "mail", data }, options);
    });
    const outcomes = await Promise.allSettled(sending);
    const refused = outcomes.filter((outcome) => outcome.status === "rejected");
    for (const { reason } of refused) expect(reason).toMatchObject({ code: "limit_reached", limit, run_id });
    return count - refused.length;
  };
  return { worker, web, take, fill, sendAtOnce };
}

describe.each([
  { on: "in memory", place: () => inMemory() },
  { on: "on a file", place: () => onFile() },
])("$on", ({ place }) => {
  describe.each(kinds)("$limit", (kind) => {
    it.each([true, false])("holds at a process that does not execute the run, with keys: %s", async (isKeyed) => {
      const { web, take, fill } = await open(place());
      const process = web();
      expect(await fill([process], kind, isKeyed)).toBe(kind.room);
      await take(5);
      expect(await fill([process], kind, isKeyed)).toBe(5);
    });

    it("holds at the process that loads the run", async () => {
      const { worker, take, fill } = await open(place());
      await take(0);
      expect(await fill([worker], kind)).toBe(kind.room);
      await take(5);
      expect(await fill([worker], kind)).toBe(5);
    });

    it.each([true, false])("holds for messages that a process sends at once, with keys: %s", async (isKeyed) => {
      const { web, sendAtOnce } = await open(place());
      const process = web();
      expect(await sendAtOnce(process, 3 * kind.room, kind, isKeyed)).toBe(kind.room);
      expect(await sendAtOnce(process, 3, kind, isKeyed)).toBe(0);
    });

    it("holds for processes that follow one another", async () => {
      const { web, sendAtOnce } = await open(place());
      let sent = 0;
      for (let n = 0; n < 10; n++) sent += await sendAtOnce(web(), Math.ceil(kind.room / 4), kind);
      expect(sent).toBe(kind.room);
    });

    it("may be exceeded a little where several processes send at once", async () => {
      const { worker, web, fill } = await open(place());
      const sent = await fill([web(), web(), web(), worker], kind);
      expect(sent).toBeGreaterThanOrEqual(kind.room);
      expect(sent).toBeLessThanOrEqual(kind.room + 3 * kind.unseen);
      expect(await fill([web()], kind)).toBeLessThanOrEqual(kind.unseen);
    });
  });

  it("a process reads each entry once, and nothing for a message that it refuses again", async () => {
    const { web, take, fill } = await open(place());
    let read = 0;
    const process = web((call, method, [, , limit]) => {
      if (method === "read") read += Number(limit);
      return call();
    });
    const [kind] = kinds;
    await fill([process], kind);
    expect(read).toBeLessThanOrEqual(40);
    const before = read;
    for (let times = 0; times < 10; times++) expect(await fill([process], kind)).toBe(0);
    expect(read).toBe(before);
    await take(1);
    expect(await fill([process], kind)).toBe(1);
    expect(read - before).toBeLessThanOrEqual(10);
  });

  it.each([true, false])(
    "a log takes no more than its limit of messages that are sent at once, with keys: %s",
    async (isKeyed) => {
      const replicas = place();
      const few = { maxLogEntries: 20 };
      const worker = replicas.start({ durability, limits: few });
      worker.runtime.register("waits", { durable: true }, async (_input, { receive }) => {
        await receive("never");
      });
      const { run_id } = await worker.runtime.createRun({ agent_name: "waits", input: "", mode: "async" });
      await replicas.clock.advance(1_000);
      const { runtime } = replicas.start({ durability, limits: few, work: false });
      const options = () => (isKeyed ? { idempotencyKey: crypto.randomUUID() } : {});
      const sending = Array.from({ length: 40 }, () => runtime.send({ to: run_id, name: "mail", data: 1 }, options()));
      const outcomes = await Promise.allSettled(sending);
      const sent = outcomes.filter(({ status }) => status === "fulfilled").length;

      const before = 3;
      expect(sent).toBe(few.maxLogEntries - before);
    },
  );

  it("a message behind another one costs one call, and a run that is cancelled or has ended refuses it", async () => {
    const replicas = place();
    const worker = replicas.start({ durability });
    worker.runtime.register("works", { durable: true }, async (_input, { step }) => {
      await step("works on", () => new Promise<never>(() => {}));
    });
    const { run_id } = await worker.runtime.createRun({ agent_name: "works", input: "", mode: "async" });
    await replicas.clock.advance(1_000);
    const calls: string[] = [];
    const { runtime } = replicas.start({ durability, work: false }, (call, method) => {
      calls.push(method);
      return call();
    });
    const send = () => runtime.send({ to: run_id, name: "mail", data: 1 });
    await send();
    calls.length = 0;
    await send();
    expect(calls).toEqual(["post"]);

    await runtime.cancel(run_id);
    await expect(send()).rejects.toMatchObject({ code: "run_cancelling", run_id });
    await replicas.clock.advance(60_000);
    expect((await runtime.getRun(run_id)).status).toBe("cancelled");
    await expect(send()).rejects.toMatchObject({ code: "run_finished", run_id });
  });

  it("one message to a run costs no read of its log", async () => {
    const { web } = await open(place());
    const read: string[] = [];
    const { runtime } = web((call, method) => {
      read.push(method);
      return call();
    });
    const [run] = await runtime.listRuns({ agent_name: "takes" });
    read.length = 0;
    await runtime.send({ to: run?.run_id ?? "", name: "mail", data: "x" });
    expect(read).toContain("post");
    expect(read).not.toContain("read");
  });
});
