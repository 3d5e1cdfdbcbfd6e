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
  return { worker, web, take, fill };
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
