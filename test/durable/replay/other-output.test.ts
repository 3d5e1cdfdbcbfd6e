import type { AgentContext } from "cadenza";
import { expect, it } from "vitest";
import { textsOf } from "../../harness/runtimes.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* A replay that emits another value of the same kind than its history holds: the log stays, and stats() counts it. */

type Emitted = Parameters<AgentContext["emit"]>[0];

/** What an agent emits before it is replayed, and what it emits then. */
const emitted: Readonly<Record<string, readonly [before: Emitted, after: Emitted]>> = {
  "a part with another text": [{ content: "one" }, { content: "two" }],
  "a part with metadata": [{ content: "one" }, { content: "one", metadata: { kind: "citation" } }],
  "a message with another text": [{ parts: [{ content: "one" }] }, { parts: [{ content: "two" }] }],
  "a message with more parts": [{ parts: [{ content: "one" }] }, { parts: [{ content: "one" }, { content: "two" }] }],
  "an object with another field": [
    { type: "state", count: 1 },
    { type: "state", count: 2 },
  ],
};

function start(replicas: Replicas, value: Emitted): Replica {
  const replica = replicas.start();
  replica.runtime.register("speaker", { durable: true }, async (_input, { ask, emit }) => {
    await emit(value);
    await ask("Go on?");
    return "end";
  });
  return replica;
}

/** What a process counts after it has gone on with a run that another process began, and how the run has ended. */
async function replayed(before: Emitted, after: Emitted): Promise<{ differences: number; texts: readonly string[] }> {
  const replicas = inMemory();
  const first = start(replicas, before);
  const { run_id } = await first.runtime.createRun({ agent_name: "speaker", input: "" });
  first.kill();
  const second = start(replicas, after);
  const run = await second.runtime.resume({ run_id, await_resume: { ok: true } });
  return { differences: (await second.runtime.stats()).differences, texts: textsOf(run) };
}

it.each(Object.entries(emitted))("%s is counted, and the log keeps its own", async (_name, [before, after]) => {
  const same = await replayed(before, before);
  expect(same.differences).toBe(0);
  expect(await replayed(before, after)).toEqual({ differences: 1, texts: same.texts });
});
