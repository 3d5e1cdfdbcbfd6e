import type { ConcurrencyOptions } from "../agent/agent.ts";
import { RunSlot } from "../log/run-slot.ts";
import type { Slots } from "../log/slots.ts";

/** A slot of this process: no other one knows of it. */
export class LocalSlot extends RunSlot {
  readonly #slots: Slots;
  readonly #key: string;
  readonly #max: number;
  readonly #tenant: string;
  #isTaken = false;
  /** Takes the run out of the queue. Undefined: it is not in the queue. */
  #leaveQueue: (() => void) | undefined;

  constructor(slots: Slots, key: string, { max, per }: ConcurrencyOptions, tenant: string) {
    super(per === "session");
    this.#slots = slots;
    this.#key = key;
    this.#max = max;
    this.#tenant = tenant;
  }

  override get isHeld(): boolean {
    return this.#isTaken;
  }

  override get needsMemory(): boolean {
    return this.isKept;
  }

  protected override request(): void {
    this.#leaveQueue = this.#slots.take(this.#key, this.#max, this.#tenant, () => {
      this.#leaveQueue = undefined;
      this.#isTaken = true;
      this.goOn();
    });
  }

  /** Takes a slot even if none is free. */
  override occupy(callback: () => void): void {
    this.#slots.take(this.#key, Number.POSITIVE_INFINITY, this.#tenant, () => {
      this.#isTaken = true;
    });
    callback();
  }

  override onCommit(waits: boolean): void {
    if (!waits || this.isKept) return;
    this.giveBack();
    this.goOnWithout();
  }

  protected override giveBack(): void {
    this.#leaveQueue?.();
    this.#leaveQueue = undefined;
    if (!this.#isTaken) return;
    this.#isTaken = false;
    this.#slots.give(this.#key, this.#max);
  }
}
