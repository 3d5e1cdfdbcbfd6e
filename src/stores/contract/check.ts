import { sameJson } from "../../core/json.ts";
import type { Clock, RunKey, Store, StoreConflict, WrittenWithInbox } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";

/** A store under test, opened twice. */
export interface OpenedStores {
  readonly first: Store;
  /**
   * An instance on the same data as `first`. For a store that keeps everything in the instance, it is the same object.
   */
  readonly second: Store;
  /** For a store that persists: closes both and opens the same data again. */
  reopen?(): MaybePromise<OpenedStores>;
  /** For a store whose entries can become unreadable: makes one entry of a run unreadable, as a disk fault would. */
  damage?(key: RunKey, position: number): MaybePromise<void>;
  /** Closes both, and deletes the data. Called once, at the end, also if a check fails. */
  close(): MaybePromise<void>;
}

/** What a check passes to the function that opens the stores. */
export interface OpenStoresOptions {
  /** The clock by which both must measure leases and due times. The check sets it. */
  readonly clock: Pick<Clock, "now">;
  /**
   * For a store that can keep a feed: that both shall keep one, and for how long, in milliseconds. Left out: none. The checks
   * of the feed pass for stores without `readFeed`.
   */
  readonly feed?: { readonly keepMs: number } | undefined;
}

/** Opens a store under test, on empty data of its own. */
export type OpenStores = (options: OpenStoresOptions) => MaybePromise<OpenedStores>;

/** One requirement of the contract. */
export interface StoreCheck {
  readonly name: string;
  /** Rejects if the store does not meet it, with an error that says what was expected. */
  run(open: OpenStores): Promise<void>;
}

/** The stores of a check, and their clock. */
export interface StoresUnderCheck extends OpenedStores {
  readonly clock: CheckClock;
}

/** The body of a check. Throws if the stores do not meet the requirement. */
export type CheckBody = (stores: StoresUnderCheck) => Promise<void>;

/** A clock that stands still until a check sets it. */
export class CheckClock {
  #now: number;

  constructor(now: number) {
    this.#now = now;
  }

  now(): number {
    return this.#now;
  }

  set(now: number): void {
    this.#now = now;
  }
}

/** The time at which each check begins. */
export const NOW = 1_700_000_000_000;

/** Makes a check that opens the stores, and always closes them. */
export function check(name: string, body: CheckBody, feed?: OpenStoresOptions["feed"]): StoreCheck {
  return {
    name,
    async run(open) {
      const clock = new CheckClock(NOW);
      const opened = await open({ clock, feed });
      // A check that reopens the data has closed the first instances.
      let current = opened;
      const stores: StoresUnderCheck = {
        ...opened,
        clock,
        ...(opened.reopen !== undefined && {
          reopen: async () => {
            current = (await opened.reopen?.()) ?? current;
            return current;
          },
        }),
      };
      try {
        await body(stores);
      } finally {
        await current.close();
      }
    },
  };
}

/** Throws unless both are the same JSON. */
export function expectSame(actual: unknown, expected: unknown, what: string): void {
  if (sameJson(jsonOf(actual), jsonOf(expected))) return;
  throw new Error(`${what}: expected ${print(expected)}, received ${print(actual)}`);
}

/** Throws unless the write was made. */
export function expectWritten(answer: StoreConflict | WrittenWithInbox | undefined, what: string): void {
  if (answer?.conflict !== undefined)
    throw new Error(`${what}: expected to be written, was refused with ${print(answer)}`);
}

/** Throws unless the write was refused in exactly this way. Which slot has refused it may be said as well. */
export function expectConflict(
  answer: StoreConflict | WrittenWithInbox | undefined,
  expected: StoreConflict,
  what: string,
): void {
  if (answer?.conflict === "full" && expected.conflict === "full" && expected.key === undefined)
    expectSame({ ...answer, key: undefined }, expected, what);
  else expectSame(answer, expected, what);
}

/** Throws unless exactly one of several writes was made. */
export function expectOneWritten(
  answers: readonly (StoreConflict | WrittenWithInbox | undefined)[],
  what: string,
): void {
  const written = answers.filter((answer) => answer?.conflict === undefined).length;
  if (written !== 1)
    throw new Error(`${what}: expected exactly one to be written, were ${written} of ${answers.length}`);
}

/** Throws unless the call throws or rejects. */
export async function expectFailure(call: () => MaybePromise<unknown>, what: string): Promise<void> {
  try {
    await call();
  } catch {
    return;
  }
  throw new Error(`${what}: expected an error, there was none`);
}

/** The value as JSON carries it; undefined stays undefined. */
function jsonOf(value: unknown): unknown {
  const text: string | undefined = JSON.stringify(value);
  return text === undefined ? undefined : JSON.parse(text);
}

const MAX_PRINTED = 400;

function print(value: unknown): string {
  const text = String(JSON.stringify(value));
  return text.length <= MAX_PRINTED ? text : `${text.slice(0, MAX_PRINTED)}… (${text.length} characters)`;
}
