/**
 * Prints as JSON which objects of the library's own classes a run in memory holds while it waits for one question, and
 * how many of each: the built package, by snapshots of the heap with and without 1,000 such runs.
 */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { getHeapSnapshot } from "node:v8";
import type * as Cadenza from "cadenza";

const COUNT = 1_000;

const dist = fileURLToPath(new URL("../../dist/", import.meta.url));
const code = readdirSync(dist)
  .filter((name) => name.endsWith(".js"))
  .map((name) => readFileSync(dist + name, "utf8"))
  .join("\n");
const named = [/\bclass (\w+)/g, /\b(\w+) = class\b/g];
const own = new Set(named.flatMap((pattern) => [...code.matchAll(pattern)].map(([, name]) => name)));

const { AgentRuntime } = (await import(`${dist}index.js`)) as typeof Cadenza;
const runtime = new AgentRuntime();
runtime.register("asks", async (_input, { ask }) => {
  await ask("Well?");
});
const before = await objects();
for (let n = 0; n < COUNT; n++) await runtime.createRun({ agent_name: "asks", input: "Hello" });
const after = await objects();
const counts = [...after].map(([name, count]) => [name, (count - (before.get(name) ?? 0)) / COUNT] as const);
process.stdout.write(JSON.stringify(Object.fromEntries(counts.filter(([, count]) => count > 0.01))));
process.exit(0);

/** How many objects of our own classes there are, by class. */
async function objects(): Promise<ReadonlyMap<string, number>> {
  const chunks: Buffer[] = [];
  for await (const chunk of getHeapSnapshot()) chunks.push(chunk as Buffer);
  const { snapshot, nodes, strings } = JSON.parse(Buffer.concat(chunks).toString()) as {
    snapshot: { meta: { node_fields: string[]; node_types: [string[]] } };
    nodes: number[];
    strings: string[];
  };
  const fields = snapshot.meta.node_fields;
  const object = snapshot.meta.node_types[0].indexOf("object");
  const [type, name] = [fields.indexOf("type"), fields.indexOf("name")];
  const found = new Map<string, number>();
  for (let at = 0; at < nodes.length; at += fields.length) {
    const of = strings[nodes[at + name] ?? -1] ?? "";
    if (nodes[at + type] === object && own.has(of)) found.set(of, (found.get(of) ?? 0) + 1);
  }
  return found;
}
