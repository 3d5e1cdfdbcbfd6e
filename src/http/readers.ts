import type { RunKey } from "../core/ports.ts";
import { RunMap } from "../core/run-map.ts";
import { shareOf, TenantCounts } from "../core/tenants.ts";
import { busyError } from "./errors.ts";

/** Counts the open streams, in total, for each tenant and for each run. */
export class Readers {
  readonly #maxReaders: number;
  readonly #maxPerRun: number;
  readonly #maxPerTenant: number | undefined;
  readonly #open = new TenantCounts();
  readonly #perRun = new RunMap<number>();

  /** `perTenant`: how many each tenant may have. Undefined: a share of all. */
  constructor(
    { maxReaders, maxReadersPerRun }: { readonly maxReaders: number; readonly maxReadersPerRun: number },
    perTenant: number | undefined,
  ) {
    this.#maxReaders = maxReaders;
    this.#maxPerRun = maxReadersPerRun;
    this.#maxPerTenant = perTenant;
  }

  /** Counts another reader of a tenant, or refuses it. */
  enter(tenant: string): Reader {
    if (this.#open.total >= this.#maxReaders)
      throw busyError("maxReaders", "Too many streams are open. Try again later.");
    if (this.#open.of(tenant) >= shareOf(tenant, this.#maxPerTenant, this.#maxReaders))
      throw busyError("perTenant.readers", "The tenant has too many streams open. Try again later.");
    this.#open.add(tenant, 1);
    let run: RunKey | undefined;
    let left = false;
    return {
      join: (key) => {
        const count = this.#perRun.get(key) ?? 0;
        if (count >= this.#maxPerRun)
          throw busyError("maxReadersPerRun", "Too many streams of this run are open. Try again later.");
        this.#perRun.set(key, count + 1);
        run = key;
      },
      leave: () => {
        if (left) return;
        left = true;
        this.#open.add(tenant, -1);
        if (run !== undefined) this.#leaveRun(run);
      },
    };
  }

  #leaveRun(key: RunKey): void {
    const count = (this.#perRun.get(key) ?? 0) - 1;
    if (count > 0) this.#perRun.set(key, count);
    else this.#perRun.delete(key);
  }
}

/** A reader that is counted. */
export interface Reader {
  /** Sets the run that is read. Refused if that run has too many readers. */
  join(key: RunKey): void;
  /** The reader is no longer counted. */
  leave(): void;
}
