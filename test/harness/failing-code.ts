import type { Clock, Interceptor, Logger } from "cadenza";
import type * as z from "zod";

/** What no client may see. */
export const SECRET = "password hunter2";

/** Code of a user, of which one call fails. */
export class UserCode {
  /** What was called, in order. */
  readonly called: string[] = [];
  readonly #failing: number;
  readonly #rejects: boolean;

  /** `failing`: which call fails, from 1 on; 0: none does. `rejects`: calls that may be asynchronous reject instead of throwing. */
  constructor(failing = 0, rejects = false) {
    this.#failing = failing;
    this.#rejects = rejects;
  }

  /** A call of something synchronous. */
  call(what: string): void {
    this.called.push(what);
    if (this.called.length === this.#failing) throw new Error(SECRET);
  }

  /** A call of something that may be asynchronous. */
  begin(what: string): Promise<void> | undefined {
    this.called.push(what);
    if (this.called.length !== this.#failing) return undefined;
    if (this.#rejects) return Promise.reject(new Error(SECRET));
    throw new Error(SECRET);
  }

  /** A schema whose own code runs at each value: a refinement, an asynchronous one, and a transformation. */
  schema<Value>(what: string, type: z.ZodType<Value>): z.ZodType<Value> {
    return type
      .refine(() => {
        this.call(`${what}: refine`);
        return true;
      })
      .refine(async () => {
        await this.begin(`${what}: asynchronous refine`);
        return true;
      })
      .transform((value) => {
        this.call(`${what}: transform`);
        return value;
      }) as unknown as z.ZodType<Value>;
  }

  get interceptor(): Interceptor {
    const around =
      (what: string) =>
      async <Result>(_info: unknown, next: () => Promise<Result>): Promise<Result> => {
        this.call(`${what}, before`);
        const result = await next();
        this.call(`${what}, after`);
        return result;
      };
    return {
      create: () => {
        this.call("interceptor create");
        return { trace: "1" };
      },
      run: around("interceptor run"),
      step: around("interceptor step"),
      ask: around("interceptor ask"),
    };
  }

  get logger(): Logger {
    const log = (level: string) => () => this.call(`logger ${level}`);
    return { debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") };
  }

  /** A clock whose calls count too. */
  clock(clock: Clock & { monotonic(): number }): Clock {
    return {
      now: () => {
        this.call("clock now");
        return clock.now();
      },
      monotonic: () => {
        this.call("clock monotonic");
        return clock.monotonic();
      },
      setTimeout: (callback, ms) => {
        this.call("clock setTimeout");
        return clock.setTimeout(callback, ms);
      },
      turn: () => clock.turn(),
    };
  }
}
