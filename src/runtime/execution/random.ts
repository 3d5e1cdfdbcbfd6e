import type { CreatedEntry, ParentRun } from "../../core/log.ts";
import { hashedUuid } from "../agent/uuid.ts";

/**
 * A random sequence that is the same for the same seed, so that an agent that is executed again draws the same numbers. Not for
 * secrets. (xoshiro128**, seeded by splitmix32 over an FNV-1a hash of the seed.)
 */
export class SeededRandom {
  readonly #state = new Uint32Array(4);

  constructor(seed: string) {
    let hash = 2166136261;
    for (let i = 0; i < seed.length; i++) hash = Math.imul(hash ^ seed.charCodeAt(i), 16777619);
    for (let i = 0; i < 4; i++) {
      hash = (hash + 0x9e3779b9) | 0;
      let mixed = Math.imul(hash ^ (hash >>> 16), 0x21f0aaad);
      mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
      this.#state[i] = mixed ^ (mixed >>> 15);
    }
  }

  /** A number from 0 up to, but not including, 1. */
  number(): number {
    return this.#next() / 2 ** 32;
  }

  /** A UUID in the form of version 4. */
  uuid(): string {
    const digits = Array.from({ length: 4 }, () => this.#next().toString(16).padStart(8, "0")).join("");
    const variant = ((Number.parseInt(digits.charAt(16), 16) & 3) | 8).toString(16);
    return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-4${digits.slice(13, 16)}-${variant}${digits.slice(17, 20)}-${digits.slice(20)}`;
  }

  #next(): number {
    const [a = 0, b = 0, c = 0, d = 0] = this.#state;
    const result = Math.imul(rotate(Math.imul(b, 5), 7), 9) >>> 0;
    const e = c ^ a;
    const f = d ^ b;
    this.#state.set([a ^ f, b ^ e, e ^ (b << 9), rotate(f, 11)]);
    return result;
  }
}

function rotate(value: number, by: number): number {
  return (value << by) | (value >>> (32 - by));
}

/* What the random numbers and the idempotency keys of a run are made of. A fork has the same as its origin. */

/** What `uuid` and `random` of a run are made of. */
export function seedOf({ seed, parent }: CreatedEntry, runId: string): string {
  if (seed !== undefined) return seed;
  return parent === undefined ? runId : idempotencyKeyOf(parent.seed ?? parent.run_id, parent.key);
}

/** What the idempotency keys of a run are made of. */
export function keySeedOf(created: CreatedEntry, runId: string): string {
  return created.key_seed ?? seedOf(created, runId);
}

/** The parent of a sub-run, as the sub-run's log names it. */
export function parentOf(created: CreatedEntry, runId: string, key: string): ParentRun {
  const depth = (created.parent?.depth ?? 0) + 1;
  const seed = keySeedOf(created, runId);
  return seed === runId ? { run_id: runId, key, depth } : { run_id: runId, key, depth, seed };
}

/**
 * The idempotency key of a step. It is the UUID of the SHA-1 hash of the run's seed and the step's key, each with its
 * length in front. A step may be tried by several versions of the library, so the key of a seed and a step never changes.
 */
export function idempotencyKeyOf(seed: string, stepKey: string): string {
  return hashedUuid(new TextEncoder().encode(`${seed.length}:${seed}${stepKey.length}:${stepKey}`));
}
