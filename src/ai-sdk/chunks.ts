import type { MessagePartInput } from "../protocol/message.ts";
import type { Chunk } from "./model-types.ts";

/** A piece of a block: of text, of a thought or of the input of a tool. */
interface Delta extends Chunk {
  readonly id: string;
  readonly delta: string;
  readonly providerMetadata?: unknown;
}

const DELTAS: ReadonlySet<string> = new Set(["text-delta", "reasoning-delta", "tool-input-delta"]);
/** Chunks that only concern the transport. */
const LEFT_OUT: ReadonlySet<string> = new Set(["raw", "ping"]);

interface Source extends Chunk {
  readonly sourceType?: string;
  readonly url?: string;
  readonly title?: string;
}

/** What a chunk shows: a piece of the answer, a piece of a thought, or a source. Undefined: nothing. */
export function shownIn(chunk: Chunk): string | MessagePartInput | undefined {
  const { delta } = chunk as Delta;
  if (chunk.type === "text-delta") return delta === "" ? undefined : delta;
  if (chunk.type === "reasoning-delta")
    return delta === "" ? undefined : { content: "", metadata: { kind: "trajectory", message: delta } };
  const { sourceType, url, title } = chunk as Source;
  if (chunk.type !== "source" || sourceType !== "url" || url === undefined) return undefined;
  return { content: "", metadata: { kind: "citation", url, ...(title !== undefined && { title }) } };
}

/**
 * The chunks of a stream as they are recorded. The deltas of a block become one, up to a delta with metadata of its
 * provider, which stays by itself.
 */
export class RecordedChunks {
  readonly #chunks: Chunk[] = [];
  /** Where the delta lies to which the next one of its block is added. */
  readonly #open = new Map<string, number>();

  add(chunk: Chunk): void {
    if (LEFT_OUT.has(chunk.type)) return;
    if (!DELTAS.has(chunk.type)) {
      this.#chunks.push(chunk);
      return;
    }
    const delta = chunk as Delta;
    const block = `${delta.type} ${delta.id}`;
    const at = this.#open.get(block);
    const before = at === undefined ? undefined : (this.#chunks[at] as Delta);
    if (delta.providerMetadata !== undefined) {
      this.#open.delete(block);
      this.#chunks.push(delta);
    } else if (at === undefined || before === undefined) {
      this.#open.set(block, this.#chunks.push(delta) - 1);
    } else {
      this.#chunks[at] = { ...before, delta: before.delta + delta.delta } as Delta;
    }
  }

  get list(): readonly Chunk[] {
    return this.#chunks;
  }
}

/** A stream of chunks that are there already. */
export function streamOf(chunks: readonly Chunk[]): ReadableStream<Chunk> {
  return new ReadableStream<Chunk>({
    start: (controller) => {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}
