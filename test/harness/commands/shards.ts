import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";

/** Seeds, which are tried by a function of a module in as many processes as there are processors. */
export interface Seeds {
  readonly from: number;
  readonly count: number;
  /** After so many seeds a process reports what it has found. */
  readonly chunk: number;
}

const SHARD = fileURLToPath(new URL("./shard.ts", import.meta.url));

/**
 * Tries seeds in several processes.
 *
 * @param tried The module, and the name of its function, which gets the first seed of a chunk and how many there are.
 * @param onFound Gets what the function resolves with for each chunk.
 */
export async function inShards<Found>(
  tried: { readonly module: URL; readonly name: string },
  { from, count, chunk }: Seeds,
  onFound: (found: Found) => void,
): Promise<void> {
  const shards = Math.min(availableParallelism(), Math.ceil(count / chunk));
  const size = Math.ceil(count / shards);
  const inShard = async (shard: number): Promise<void> => {
    const first = from + shard * size;
    const given = [first, Math.min(size, count - shard * size), chunk].map(String);
    const child = fork(SHARD, [tried.module.href, tried.name, ...given]);
    child.on("message", (found) => onFound(found as Found));
    await new Promise<void>((resolve, reject) => {
      child.once("exit", (code, signal) => {
        if (code === 0) resolve();
        else reject(new Error(`The process for the seeds from ${first} on ended with ${code ?? signal}.`));
      });
    });
  };
  await Promise.all(Array.from({ length: shards }, (_, shard) => inShard(shard)));
}
