import { parseArgs } from "node:util";
import { AgentRuntime, defineAgent } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import { createAcpHandler } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import { z } from "zod";

/*
 * What a body of 10 MB costs, whatever its shape: `npm run bench:json`, `npm run bench:json -- --mb 1 --only lists`. Each
 * shape is sent to every endpoint that takes JSON, with the limit on bytes switched off. Prints the CPU time of each
 * request in milliseconds, the least of three, and what was answered. What was too slow is tried again after all others,
 * since a shared machine is slow for minutes at a time. Exits with 1 if a request costs more than `--most` then too.
 */
const { values } = parseArgs({
  options: {
    mb: { type: "string", default: "10" },
    most: { type: "string", default: "250" },
    only: { type: "string", default: "" },
  },
});
const BYTES = Number(values.mb) * 1_000_000;
const MOST_MS = Number(values.most);
const TRIES = 3;
/** How often a request that was too slow is tried again after all others, at most. */
const MORE_TRIES = 10;
/** As many values as a body may hold, with some room for what is around them. */
const VALUES = 45_000;
const limits = { maxBodyBytes: Number.POSITIVE_INFINITY };

/** A text of about so many characters. */
type Shape = (length: number) => string;

/** A text again and again. */
const fill =
  (text: string, separator = "", before = "", after = ""): Shape =>
  (length) =>
    before +
    Array.from({ length: Math.floor(length / (text.length + separator.length)) }, () => text).join(separator) +
    after;
/** So many items, which are all as long as it takes. */
const items =
  (many: number, item: (length: number, index: number) => string, before = "[", after = "]"): Shape =>
  (length) =>
    before + Array.from({ length: many }, (_, index) => item(Math.floor(length / many) - 1, index)).join(",") + after;

/** JSON values. */
const shapes: Readonly<Record<string, Shape>> = {
  "open lists": fill("["),
  "nested lists": (length) => `${"[".repeat(length / 2)}${"]".repeat(length / 2)}`,
  "nested objects": (length) => `${'{"a":'.repeat(length / 6)}1${"}".repeat(length / 6)}`,
  "empty lists": fill("[]", ",", "[", "]"),
  "empty objects": fill("{}", ",", "[", "]"),
  "one-digit numbers": fill("1", ",", "[", "]"),
  nulls: fill("null", ",", "[", "]"),
  "empty strings": fill('""', ",", "[", "]"),
  "keys of one object": (length) => items(length / 12, (_, index) => `"k${index}":0`, "{", "}")(length),
  "a few long keys": items(10, (length, index) => `"${index}${"k".repeat(length - 6)}":0`, "{", "}"),
  "45,000 keys": items(VALUES, (length, index) => `"${String(index).padStart(length - 4, "k")}":0`, "{", "}"),
  "45,000 keys that are numbers": items(
    VALUES,
    (length, index) => `"${index * 40_000}":${" ".repeat(Math.max(length - 14, 0))}0`,
    "{",
    "}",
  ),
  "one string": (length) => `"${"x".repeat(length - 2)}"`,
  "one string of escapes": fill("\\u00e4", "", '"', '"'),
  "one string of backslashes": fill("\\\\", "", '"', '"'),
  "one string of quotes": fill('\\"', "", '"', '"'),
  "one string of lone surrogates": fill("\\ud800", "", '"', '"'),
  "one string of two-byte characters": (length) => `"${"ä".repeat(length / 2)}"`,
  "45,000 strings": items(VALUES, (length) => `"${"x".repeat(length - 2)}"`),
  "45,000 escaped strings": items(VALUES, (length) => `"${"\\n".repeat(length / 2 - 1)}"`),
  spaces: (length) => `[${" ".repeat(length)}]`,
  "one number": (length) => "1".repeat(length),
  "one fraction": (length) => `0.${"1".repeat(length)}`,
  "one exponent": (length) => `1e${"1".repeat(length)}`,
  "one small exponent": (length) => `1e-${"1".repeat(length)}`,
  "45,000 numbers of 15 digits": items(VALUES, (length) => `${" ".repeat(Math.max(length - 15, 0))}999999999999999`),
  "45,000 long fractions": items(VALUES, (length) => `0.${"9".repeat(length - 2)}`),
  "45,000 long exponents": items(VALUES, (length) => `${"9".repeat(length - 6)}.5e-9`),
  "45,000 empty lists": items(9, () => items(4_998, () => "[]")(0)),
  "1,500 lists at the limit": items(
    1_500,
    (length) => `${"[".repeat(58)}"${"x".repeat(Math.max(length - 118, 0))}"${"]".repeat(58)}`,
  ),
  "no JSON, but quotes": fill('"a" '),
  "no JSON, but an open string": fill('\\"', "", '"'),
};

const image = (length: number): string =>
  `{"content_type":"image/png","content_encoding":"base64","content":"${"A".repeat(4 * Math.floor((length - 80) / 4))}"}`;

/** The parts of a message. */
const parts: Readonly<Record<string, Shape>> = {
  "9,999 parts": items(9_999, (length) => `{"content":"${"x".repeat(length - 14)}"}`),
  "12,000 parts": items(12_000, (length) => `{"content":"${"x".repeat(length - 14)}"}`),
  "9,000 parts with metadata": items(
    9_000,
    (length) => `{"content":"","metadata":{"kind":"citation","url":"${"x".repeat(length - 60)}"}}`,
  ),
  "16,000 parts that are none": items(16_000, (length) => `{"content":5,"y":"${"x".repeat(length - 20)}"}`),
  "45,000 strings in place of parts": items(45_000, (length) => `"${"x".repeat(length - 2)}"`),
  "9,000 images": items(9_000, image),
  "one image": items(1, image),
};

const runtime = new AgentRuntime({ limits: { maxPartBytes: Number.POSITIVE_INFINITY } })
  .register("plain", () => "ok")
  .register(defineAgent("typed", { input: z.object({ a: z.number() }) }).run(() => "ok"))
  .register("asks", async (_input, { ask }) => void (await ask("Well?", { schema: z.object({ a: z.number() }) })))
  .register("receives", async (_input, { receive }) => void (await receive("never")));
const acp = createAcpHandler(runtime, { limits, extensions: true });
const chat = createChatHandler(runtime, { limits });
const agUi = createAgUiHandler(runtime, { limits });
const inspector = createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }), limits });

const input = (agent: string, parts: string): string =>
  `{"agent_name":"${agent}","input":[{"role":"user","parts":${parts}}]}`;
const text = (value: string): string => `[{"content_type":"application/json","content":${JSON.stringify(value)}}]`;
const answer = (parts: string): string =>
  `{"await_resume":{"type":"message","message":{"role":"user","parts":${parts}}}}`;
const runPath = async (agent_name: string): Promise<string> =>
  `/runs/${(await runtime.createRun({ agent_name, input: "", mode: agent_name === "asks" ? "sync" : "async" })).run_id}`;
/** The body of an inspector's action on a new run of an agent that waits. */
const onRun =
  (agent_name: string, more: (shape: string) => string): Target["body"] =>
  async (shape) =>
    `{"run_id":"${(await runPath(agent_name)).split("/")[2]}",${more(shape)}}`;
const chatBody = (message: string): string =>
  `{"id":"${crypto.randomUUID()}","messages":[{"id":"m","role":"user",${message}}]}`;
const agUiBody = (more: string): string =>
  `{"threadId":"${crypto.randomUUID()}","runId":"r","messages":[{"id":"m","role":"user","content":"hi"}],${more}}`;

/** An endpoint that takes JSON, and a body for it that holds a shape. `quotes`: in a string. */
interface Target {
  readonly name: string;
  readonly handler: typeof acp;
  readonly path: string | (() => Promise<string>);
  readonly body: (shape: string) => string | Promise<string>;
  readonly quotes?: boolean;
}

const forValues: readonly Target[] = [
  { name: "ACP body", handler: acp, path: "/runs", body: (value) => value },
  { name: "ACP metadata", handler: acp, path: "/runs", body: (value) => input("plain", `[{"metadata":${value}}]`) },
  {
    name: "ACP unknown field",
    handler: acp,
    path: "/runs",
    body: (value) => `{"agent_name":"plain","input":[],"x":${value}}`,
  },
  { name: "ACP typed input", handler: acp, path: "/runs", body: (value) => input("typed", text(value)), quotes: true },
  {
    name: "ACP answer",
    handler: acp,
    path: () => runPath("asks"),
    body: (value) => `{"await_resume":{"value":${value}}}`,
  },
  {
    name: "ACP answer's text",
    handler: acp,
    path: () => runPath("asks"),
    body: (value) => answer(text(value)),
    quotes: true,
  },
  {
    name: "ACP message",
    handler: acp,
    path: async () => `${await runPath("receives")}/messages/x`,
    body: (value) => value,
  },
  {
    name: "chat part",
    handler: chat,
    path: "/plain",
    body: (value) => chatBody(`"parts":[{"type":"text","text":"hi"},{"type":"data-x","data":${value}}]`),
  },
  {
    name: "chat metadata",
    handler: chat,
    path: "/plain",
    body: (value) => chatBody(`"parts":[{"type":"text","text":"hi"}],"metadata":${value}`),
  },
  {
    name: "AG-UI state",
    handler: agUi,
    path: "/plain",
    body: (value) => agUiBody(`"state":${value},"tools":[],"context":[],"forwardedProps":{}`),
  },
  {
    name: "AG-UI tool",
    handler: agUi,
    path: "/plain",
    body: (value) =>
      agUiBody(
        `"state":{},"tools":[{"name":"t","description":"","parameters":${value}}],"context":[],"forwardedProps":{}`,
      ),
  },
  {
    name: "inspector's input",
    handler: inspector,
    path: "/api/create",
    body: (value) => `{"agent_name":"plain","input":${value}}`,
  },
  {
    name: "inspector's typed input",
    handler: inspector,
    path: "/api/create",
    body: (value) => `{"agent_name":"typed","input":${value}}`,
  },
  {
    name: "inspector's unknown field",
    handler: inspector,
    path: "/api/create",
    body: (value) => `{"agent_name":"plain","x":${value}}`,
  },
  {
    name: "inspector's answer",
    handler: inspector,
    path: "/api/answer",
    body: onRun("asks", (value) => `"await_id":"ask#1","answer":${value}`),
  },
  {
    name: "inspector's message",
    handler: inspector,
    path: "/api/send",
    body: onRun("receives", (value) => `"name":"x","data":${value}`),
  },
];
const forParts: readonly Target[] = [
  { name: "ACP parts", handler: acp, path: "/runs", body: (all) => input("plain", all) },
  { name: "ACP typed parts", handler: acp, path: "/runs", body: (all) => input("typed", all) },
  {
    name: "inspector's parts",
    handler: inspector,
    path: "/api/create",
    body: (all) => `{"agent_name":"plain","input":[{"role":"user","parts":${all}}]}`,
  },
  {
    name: "inspector's list of parts",
    handler: inspector,
    path: "/api/create",
    body: (all) => `{"agent_name":"plain","input":${all}}`,
  },
  { name: "ACP answer's parts", handler: acp, path: () => runPath("asks"), body: answer },
  {
    name: "ACP history",
    handler: acp,
    path: "/runs",
    body: (all) => `{"agent_name":"plain","input":[],"session":{"history":[{"role":"user","parts":${all}}]}}`,
  },
];

/** A request that costs too much: where it is sent, and its body. */
interface SlowRequest {
  readonly target: Target;
  readonly name: string;
  readonly shape: Shape;
  readonly ms: number;
}
const slow: SlowRequest[] = [];
let worst = 0;
for (const [all, targets] of [
  [shapes, forValues],
  [parts, forParts],
] as const) {
  for (const [name, shape] of Object.entries(all)) {
    if (!name.includes(values.only)) continue;
    const texts = textsOf(shape);
    const row: string[] = [];
    for (const target of targets) {
      const { ms, said } = await cost(target, texts, TRIES);
      if (ms > MOST_MS) slow.push({ target, name, shape, ms });
      else worst = Math.max(worst, ms);
      row.push(`${ms > MOST_MS ? "SLOW " : ""}${target.name} ${ms.toFixed(0)} (${said})`);
    }
    console.log(`${name.padEnd(34)} ${row.join(", ")}`);
  }
}
for (const { target, name, shape, ms: before } of slow) {
  const { ms } = await cost(target, textsOf(shape), MORE_TRIES);
  worst = Math.max(worst, Math.min(ms, before));
  console.log(`Once more: ${name}, ${target.name}: ${ms.toFixed(0)}, before ${before.toFixed(0)}`);
}
console.log(`At most ${worst.toFixed(0)} ms of CPU time.`);
await runtime.close({ drainMs: 0 });
process.exitCode = worst > MOST_MS ? 1 : 0;

/** A shape as a body holds it, and as much of it as a string in a body of the length holds. */
interface Texts {
  readonly whole: string;
  readonly quoted: string;
}

function textsOf(shape: Shape): Texts {
  const whole = shape(BYTES);
  return { whole, quoted: shape((BYTES * BYTES) / JSON.stringify(whole).length) };
}

/** The least CPU time of some requests with the shape, and what the last of them was answered. */
async function cost(
  { handler, path, body, quotes }: Target,
  { whole, quoted }: Texts,
  tries: number,
): Promise<{ readonly ms: number; readonly said: string }> {
  const sent = quotes === true ? quoted : whole;
  let ms = Number.POSITIVE_INFINITY;
  let said = "";
  for (let attempt = 0; attempt < tries; attempt++) {
    const url = `http://localhost${typeof path === "string" ? path : await path()}`;
    const headers = { "content-type": "application/json" };
    const bytes = new TextEncoder().encode(await body(sent));
    const request = new Request(url, { method: "POST", headers, body: bytes });
    const before = process.cpuUsage();
    const response = await handler(request);
    const answered = await response.text();
    const { user, system } = process.cpuUsage(before);
    ms = Math.min(ms, (user + system) / 1_000);
    said = `${response.status} ${/"reason":"(\w+)"/.exec(answered)?.[1] ?? ""}`.trim();
  }
  return { ms, said };
}
