import type { StandardSchema } from "cadenza";
import { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import type { Deferred } from "../../harness/promises.ts";
import { deferred } from "../../harness/promises.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { setUp } from "../../harness/runtimes.ts";
import { begin, codeOf, outcome, shown } from "../../harness/waiting-agents.ts";

/* Receives whose schema answers later than it is asked. */

/** A schema that answers when a test lets it. It refuses what begins with "bad". */
class Judge {
  readonly #gates = new Map<unknown, Deferred<void>>();

  readonly schema: StandardSchema = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: async (value) => {
        await this.#gate(value).promise;
        return String(value).startsWith("bad") ? { issues: [{ message: `${value} is bad`, path: [] }] } : { value };
      },
    },
  };

  answer(value: unknown): void {
    this.#gate(value).resolve();
  }

  #gate(value: unknown): Deferred<void> {
    const gate = this.#gates.get(value) ?? deferred();
    this.#gates.set(value, gate);
    return gate;
  }
}

async function send({ runtime, clock }: Setup, run_id: string, ...list: unknown[]): Promise<void> {
  for (const data of list) await runtime.send({ to: run_id, name: "mail", data });
  await clock.settle();
}

/** The ends of the receives, as the details of the run tell them. */
async function endsIn({ runtime }: Setup, run_id: string): Promise<unknown[]> {
  const ends: unknown[] = [];
  for await (const event of runtime.events(run_id, { until: "now", detail: true }))
    if (event.type === "receive.ended") ends.push([event.key, event.how, event.issues?.map(({ message }) => message)]);
  return ends;
}

const number: StandardSchema = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) =>
      Promise.resolve(typeof value === "number" ? { value } : { issues: [{ message: "no number", path: [] }] }),
  },
};

describe("a receive whose schema answers with a promise", () => {
  it.each([
    ["zod", z.unknown().refine(async (value) => typeof value === "number", "no number")],
    ["Standard Schema", number],
  ])("rejects the first of two messages, and gets the second: %s", async (_library, schema) => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive, emit }) => {
      for (let left = 2; left > 0; left--) {
        const got: unknown = await receive("mail", { schema }).catch((error: unknown) => error);
        await emit(CadenzaError.is(got) ? `${got.code}: ${got.issues?.[0]?.message}` : `got ${got}`);
      }
    });
    await send(set, run_id, "five", 5);
    expect(await shown(set, run_id)).toBe("completed: message_rejected: no number|got 5");
    expect(await endsIn(set, run_id)).toEqual([
      ["receive:mail#1", "rejected", ["no number"]],
      ["receive:mail#2", "message", undefined],
    ]);
    const types: string[] = [];
    for await (const event of set.runtime.events(run_id, { until: "now", detail: true })) types.push(event.type);
    const [rejected, part] = [types.indexOf("receive.ended"), types.indexOf("message.part")];
    expect(rejected).toBeLessThan(part);
    expect(part).toBeLessThan(types.lastIndexOf("receive.ended"));
  });

  it("keeps its message while another receive gets the next one sooner", async () => {
    const set = setUp();
    const judge = new Judge();
    const run_id = await begin(set, async ({ receive }) => {
      const both = [receive("mail", { schema: judge.schema }), receive("mail", { schema: judge.schema })];
      return (await Promise.all(both.map(outcome))).join();
    });
    await send(set, run_id, "first", "second");
    judge.answer("second");
    await set.clock.settle();
    expect(await endsIn(set, run_id)).toEqual([["receive:mail#2", "message", undefined]]);
    judge.answer("first");
    expect(await shown(set, run_id)).toBe('completed: "first","second"');
  });

  it.each([0, 100])("takes a message that was there in time, with a timeoutMs of %i", async (timeoutMs) => {
    const set = setUp();
    const judge = new Judge();
    const run_id = await begin(set, async ({ receive }) => {
      await receive("begin");
      const options = { schema: judge.schema, timeoutMs, default: "nothing" };
      const got = [await outcome(receive("mail", options)), await outcome(receive("mail", options))];
      return got.join();
    });
    await send(set, run_id, "bad", "good");
    await set.runtime.send({ to: run_id, name: "begin", data: 1 });
    await set.clock.advance(1_000);
    expect(await shown(set, run_id)).toBe("in-progress");
    judge.answer("bad");
    judge.answer("good");
    expect(await shown(set, run_id)).toBe('completed: message_rejected,"good"');
  });

  it("leaves its message to the next one when it is aborted", async () => {
    const set = setUp();
    const judge = new Judge();
    const run_id = await begin(set, async ({ receive }) => {
      const stop = new AbortController();
      const first = receive("mail", { schema: judge.schema, signal: stop.signal });
      const second = receive("mail");
      await receive("stop");
      stop.abort(new Error("stopped"));
      return [await outcome(first), await outcome(second)].join();
    });
    await send(set, run_id, "one");
    expect(await shown(set, run_id)).toBe("in-progress");
    await set.runtime.send({ to: run_id, name: "stop", data: 1 });
    expect(await shown(set, run_id)).toBe('completed: Error: stopped,"one"');
    judge.answer("one");
    expect(await shown(set, run_id)).toBe('completed: Error: stopped,"one"');
    expect(await endsIn(set, run_id)).toEqual([
      ["receive:stop#1", "message", undefined],
      ["receive:mail#1", "withdrawn", undefined],
      ["receive:mail#2", "message", undefined],
    ]);
  });

  it("takes nothing any more when its run is cancelled", async () => {
    const set = setUp();
    const judge = new Judge();
    const run_id = await begin(set, async ({ receive, emit }) => {
      await emit(await receive("mail", { schema: judge.schema }).then(() => "got", codeOf));
    });
    await send(set, run_id, "one");
    await set.runtime.cancel(run_id);
    judge.answer("one");
    expect(await shown(set, run_id)).toBe("cancelled: run_cancelled");
    expect(await endsIn(set, run_id)).toEqual([["receive:mail#1", "withdrawn", undefined]]);
  });
});
