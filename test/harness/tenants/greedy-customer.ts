import assert from "node:assert/strict";
import type { Customer } from "./customers.ts";
import { refused } from "./customers.ts";

/** A customer that uses as much as its tenant may, and asks for more. */
export class GreedyCustomer {
  readonly customer: Customer;
  /** How often it was refused, by the limit that was named. */
  readonly refusals = new Map<string, number>();
  /** The runs that wait for an answer, or for a slot. */
  readonly #live: unknown[] = [];
  readonly #streams: ReadableStreamDefaultReader<Uint8Array>[] = [];

  constructor(customer: Customer) {
    this.customer = customer;
  }

  /**
   * Leaves as many ended runs, each in a session of its own, and fills each of its limits, with some requests at a time.
   * `queued`: how many runs it makes wait for a slot at most, since those that wait in a store count for no limit.
   */
  async fill({ ended, queued, atOnce }: Record<"ended" | "queued" | "atOnce", number>): Promise<void> {
    let [endedLeft, queuedLeft, streams] = [ended, queued, 0];
    await repeat(atOnce, async () => {
      if (endedLeft-- <= 0) return false;
      await this.#end();
      return true;
    });
    await repeat(atOnce, async () => queuedLeft-- > 0 && this.#begin("works"));
    await repeat(atOnce, () => this.#begin("asks"));
    await repeat(atOnce, () => this.#follow(streams++));
  }

  /** Asks for more of everything, some times each, and goes on to fill what has become free. */
  async press(times: number): Promise<void> {
    for (let time = 0; time < times; time++) {
      await this.#begin("works");
      await this.#begin("asks");
      await this.#follow(time);
      await this.#stop(this.#live.pop());
      for (let count = 0; count < 5; count++) await this.#end();
      while (await this.#begin("asks"));
    }
  }

  /** Gives back what it uses. */
  async leave(): Promise<void> {
    await Promise.all(this.#streams.splice(0).map((stream) => stream.cancel().catch(() => undefined)));
    await Promise.all(this.#live.splice(0).map((run_id) => this.#stop(run_id)));
  }

  /** A run that ends at once, in a new session. */
  async #end(): Promise<void> {
    const response = await this.customer.create("echo", { session_id: crypto.randomUUID() });
    // Another client of the tenant may have been faster.
    if (response.ok) await response.text();
    else await this.#note(response);
  }

  async #stop(run_id: unknown): Promise<void> {
    const response = await this.customer.send("acp", `/runs/${run_id}/cancel`, {});
    await response.text();
    assert.equal(response.status, 202, "a cancel");
  }

  /** Begins a run that stays, and returns whether it was accepted. */
  async #begin(agent: "asks" | "works"): Promise<boolean> {
    const response = await this.customer.create(agent, agent === "works" ? { mode: "async" } : {});
    if (!response.ok) return this.#note(response);
    this.#live.push(((await response.json()) as { run_id: string }).run_id);
    return true;
  }

  /** Opens a stream that stays, and that is read. */
  async #follow(index: number): Promise<boolean> {
    const response = await this.customer.send(
      "acp",
      `/runs/${this.#live[index % this.#live.length]}/events?until=end`,
      undefined,
      { accept: "text/event-stream" },
    );
    if (!response.ok) return this.#note(response);
    const stream = response.body?.getReader();
    if (stream === undefined) throw new Error("A stream has no body.");
    this.#streams.push(stream);
    void readAll(stream).catch(() => undefined);
    return true;
  }

  async #note(response: Response): Promise<false> {
    const { status, limit } = await refused(response);
    assert.equal(status, 503, `refused by ${limit}`);
    this.refusals.set(String(limit), (this.refusals.get(String(limit)) ?? 0) + 1);
    return false;
  }
}

async function readAll(stream: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  while (!(await stream.read()).done);
}

/** Calls again and again, some at a time, each until the call says that it was the last one. */
async function repeat(atOnce: number, call: () => Promise<boolean>): Promise<void> {
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (await call());
    }),
  );
}
