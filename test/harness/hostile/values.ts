import type { JsonObject, StandardSchema } from "cadenza";
import { AgentError } from "cadenza";
import { z } from "zod";
import type { Random } from "../random.ts";

/* Hostile values from a seed. The same seed gives the same value in every process, so that a replay meets it again. */

/** A hostile value, and what is hostile about it. */
export interface Hostile {
  readonly name: string;
  readonly value: unknown;
  /** Whether something may never settle because of it. */
  readonly hangs?: boolean;
}

const DEPTH = 20_000;
const half = "x\ud800y";
const deepText = `${"[".repeat(DEPTH)}${"]".repeat(DEPTH)}`;
/** Not JSON, or JSON that no JavaScript value can say. Never `undefined`. */
const rawTexts: Readonly<Record<string, string>> = {
  "cut off": '{"ok":',
  "a rounded number": '{"n":9007199254740993}',
  "a number without end": '{"n":1e400}',
  "a repeated key": '{"ok":1,"ok":2}',
  __proto__: '{"__proto__":{"isAdmin":true},"ok":1}',
  "a lone escape": '{"half":"\\ud800"}',
  deep: deepText,
  "deep objects": `${'{"a":'.repeat(DEPTH)}1${"}".repeat(DEPTH)}`,
  "no JSON": "<xml/>",
  empty: "",
};

/** Hostile values that JSON can carry. */
const jsonValues: Readonly<Record<string, () => unknown>> = {
  null: () => null,
  boolean: () => false,
  zero: () => -0,
  "huge number": () => 1e308,
  "tiny number": () => 5e-324,
  "empty text": () => "",
  NUL: () => "\0",
  "half a character": () => half,
  "other half": () => ({ "\udc00": "\udfff", text: half }),
  "NUL in keys": () => ({ "\0": "\0", "": "" }),
  "long text": () => "💥".repeat(30_000),
  "empty list": () => [],
  "nested lists": () => nested(60),
  ["__proto__"]: () => JSON.parse('{"__proto__":{"isAdmin":true},"ok":1}'),
  "names of methods": () => JSON.parse('{"constructor":"x","toString":"x","hasOwnProperty":1,"valueOf":null,"then":1}'),
  "a message that is none": () => ({ type: "message", message: { parts: [half] } }),
  "a message without parts": () => ({ type: "message", message: { role: "user", parts: [] } }),
  "a message of an agent": () => ({ type: "message", message: { role: "agent/x", parts: [{ content: half }] } }),
  "a message of a deep text": () => ({ type: "message", message: { parts: [{ content: deepText }] } }),
  "deep JSON in a part": () => jsonMessage("application/json", deepText),
  "broken JSON in a part": () => jsonMessage("application/json", "{"),
  "broken schema in a part": () => jsonMessage("application/schema+json", "{"),
  "a schema of itself": () => jsonMessage("application/schema+json", '{"$ref":"#"}'),
  "half a character in a part": () => jsonMessage("application/json", '"\\ud800"'),
  "NUL in a part": () => jsonMessage("application/json", '"\\u0000"'),
  "no keys": () => ({}),
  "keys of the library": () => ({ "~standard": {}, toJSON: 1, code: "run_cancelled", kind: "await", parts: 1 }),
};

function jsonMessage(content_type: string, content: string): object {
  return { type: "message", message: { parts: [{ content_type, content }] } };
}

function nested(depth: number): unknown {
  let value: unknown = [];
  for (let level = 0; level < depth; level++) value = [value];
  return value;
}

class Odd {
  readonly field = 1;
}

const secret = (): Error => new Error("the password of the database is 1234");

/** Throws whatever is done with it. */
function thrower(): object {
  const fail = (): never => {
    throw secret();
  };
  const traps = ["get", "set", "has", "ownKeys", "getPrototypeOf", "getOwnPropertyDescriptor", "isExtensible"] as const;
  return new Proxy({}, Object.fromEntries(traps.map((trap) => [trap, fail])));
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function cycle(): object {
  const list: unknown[] = [{ ok: true }];
  list.push({ list });
  return { list, content: "x" };
}

/** Hostile values that only code in the same process can give. */
const liveValues: Readonly<Record<string, () => unknown>> = {
  undefined: () => undefined,
  symbol: () => Symbol("x"),
  bigint: () => 10n,
  function: () => () => secret(),
  NaN: () => Number.NaN,
  "list with holes": () => Object.assign([], { 5: 1 }),
  instance: () => new Odd(),
  "invalid date": () => new Date(Number.NaN),
  map: () => new Map([[{}, 1]]),
  bytes: () => new Uint8Array([1, 2]),
  "a proxy that throws": thrower,
  "a proxy within": () => ({ content: "x", name: thrower() }),
  "a revoked proxy": revoked,
  "an object without prototype": () => Object.assign(Object.create(null), { content: "x" }),
  "an heir of a proxy": () => Object.create(thrower()),
  cycle,
  "deep lists": () => nested(DEPTH),
  "rather deep lists": () => ({ list: nested(4_000) }),
  "a rather deep part": () => ({ content: "x", extra: nested(2_500) }),
  "a rather deep JSON part": () => ({ content_type: "application/json", content: JSON.stringify(nested(3_000)) }),
  "a deep part": () => ({ content: "x", metadata: nested(DEPTH) }),
  "getters that throw": () => ({
    get content() {
      throw secret();
    },
    get parts() {
      throw secret();
    },
    get type() {
      throw secret();
    },
  }),
  "a getter that throws within": () => ({
    ok: {
      get n() {
        throw secret();
      },
    },
  }),
  "a getter that changes": () => {
    let count = 0;
    return {
      get content() {
        count += 1;
        return count % 2 === 1 ? "x" : 1;
      },
    };
  },
  "toJSON that throws": () => ({ content: "x", name: { toJSON: () => fail() } }),
  "toJSON that gives nothing": () => ({ toJSON: () => undefined }),
  "toJSON that gives a deep value": () => ({ toJSON: () => nested(DEPTH) }),
  "a thenable that throws": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then: () => fail(),
  }),
  "a getter of then that throws": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    get then() {
      return fail();
    },
  }),
  "a thenable that rejects twice": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then: (_resolve: unknown, reject: (error: unknown) => void) => {
      reject(secret());
      reject(secret());
    },
  }),
  "an error": secret,
  "an error with getters that throw": () =>
    Object.defineProperties(new Error("x"), {
      // First: Node 20 writes the stack, with name and message, when it is replaced.
      stack: { get: () => fail() },
      message: { get: () => fail() },
      cause: { get: () => fail() },
      name: { get: () => fail() },
    }),
  "an error that causes itself": () => {
    const error: Error & { cause?: unknown } = new Error(half);
    error.cause = error;
    return error;
  },
  "an error of the agent": () => new AgentError(half, half, cycle() as JsonObject),
  "an error of the agent with a hostile code": () => Object.assign(new AgentError("x", "y"), { code: thrower() }),
  "an error with a code of the library": () => Object.assign(new Error(half), { code: "store_failed" }),
  "an object that is no text": () => ({ toString: () => fail(), [Symbol.toPrimitive]: () => fail() }),
  "an iterator that throws": () => ({ [Symbol.iterator]: () => fail() }),
  "an iterator of hostile values": () => [thrower(), half, cycle()],
  "an iterator without next": () => ({ [Symbol.iterator]: () => ({}) }),
  "a generator that throws at its end": function* () {
    try {
      yield half;
    } finally {
      fail();
    }
  },
};

const hanging: Readonly<Record<string, () => unknown>> = {
  "an iterator without end": () => ({ [Symbol.asyncIterator]: () => ({ next: () => 1 }) }),
  "a promise that never settles": () => new Promise(() => {}),
  "a thenable that does nothing": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then() {},
  }),
  "an iterator that never settles": () => ({ [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) }),
};

function fail(): never {
  throw secret();
}

const contentTypes = [
  ...["text/plain", "application/json", "application/schema+json", "image/svg+xml", "image/png", "APPLICATION/JSON"],
  ...[
    "",
    "x",
    "\0",
    "é/é",
    "text\r\nx: y",
    'text/plain; charset="',
    "application/json;;",
    "a/b+json",
    "t".repeat(5_000),
  ],
  ...["text/html", "application/vnd.cadenza", half],
] as const;
const contents = [
  ...["{", "[1,", "null", "1e400", '"\\ud800"', '"\\u0000"', '{"__proto__":{"a":1}}', '{"$ref":"#"}', '{"type":["x"]}'],
  ...["\0", half, "%", "%F0", "!!!", "=", "aGk", "", deepText, "💥".repeat(10_000), '{"properties":1,"anyOf":{}}'],
  '{"type":"object","properties":{"__proto__":{"type":"string"},"ok":{"$ref":"#/$defs/100%"}}}',
] as const;
const names = [half, "../../x", "__proto__", "\0", "", "note.txt", "a\r\nb"] as const;
const urls = ["javascript:1", "http://", "data:,%", "file:///etc/passwd", "http://x/\0", `http://x/${half}`] as const;
const metadata: readonly unknown[] = [
  { kind: "citation", start_index: 1e308, end_index: -1, url: "javascript:1", title: half },
  { kind: "trajectory", message: half, tool_name: "ask", tool_input: { $url: "no url" }, tool_call_id: "\0" },
  { kind: "trajectory", tool_name: "\0", tool_output: { nested: nested(40) } },
  { kind: "trajectory", tool_name: "__proto__", tool_input: null, tool_output: 1 },
  { kind: "other" },
  { kind: 1 },
  null,
];

/** A part of a message, whose fields may not agree. */
export function hostilePart(random: Random): Hostile {
  const content_type = random.pick(contentTypes);
  const part: Record<string, unknown> = {};
  if (random.chance(0.9)) part["content_type"] = content_type;
  if (random.chance(0.85)) part["content"] = random.pick(contents);
  else part["content_url"] = random.pick(urls);
  if (random.chance(0.3)) part["content_encoding"] = random.pick(["plain", "base64", "base64", "odd"]);
  if (random.chance(0.3)) part["name"] = random.pick(names);
  if (random.chance(0.3)) part["metadata"] = random.pick(metadata);
  if (random.chance(0.05)) part["content"] = hostileJson(random).value;
  return { name: `part of ${content_type.slice(0, 30)}`, value: part };
}

/** A value that JSON can carry. */
export function hostileJson(random: Random): Hostile {
  return made(random, jsonValues);
}

/** A text that is to be JSON, and is not, or says more than a JavaScript value can. */
export function hostileText(random: Random): Hostile & { readonly value: string } {
  const name = random.pick(Object.keys(rawTexts));
  return { name: `text: ${name}`, value: rawTexts[name] ?? "" };
}

/** Any value that code in the same process can give. */
export function hostileValue(random: Random): Hostile {
  const draw = random.number();
  if (draw < 0.02) return { ...made(random, hanging), hangs: true };
  if (draw < 0.6) return made(random, liveValues);
  return draw < 0.8 ? hostileJson(random) : hostilePart(random);
}

function made(random: Random, kinds: Readonly<Record<string, () => unknown>>): Hostile {
  const name = random.pick(Object.keys(kinds));
  return { name, value: kinds[name]?.() };
}

/** A schema of a question or a message. */
export interface HostileSchema {
  readonly name: string;
  /** Undefined: the question has none. */
  readonly schema: StandardSchema<unknown, unknown> | undefined;
  /** Whether it takes {@link GOOD}, at the latest at the third time. */
  readonly takesGood: boolean;
  /** Whether a value is looked at for as long as a schema may take. */
  readonly isSlow: boolean;
}

/** The answer that every schema takes which takes any. */
export const GOOD = { ok: true } as const;

const Deep: z.ZodType = z.lazy(() => z.union([z.array(Deep), z.object({ ok: z.boolean() })]));

/** What a schema does with a value, in place of judging it. */
const verdicts: Readonly<Record<string, () => unknown>> = {
  throws: fail,
  "throws nothing": () => {
    throw undefined;
  },
  "throws a proxy": () => {
    throw thrower();
  },
  rejects: () => Promise.reject(secret()),
  "rejects with nothing": () => Promise.reject(undefined),
  "gives nothing": () => undefined,
  "gives null later": async () => null,
  "gives a text": () => "valid",
  "gives a proxy": thrower,
  "gives a revoked proxy later": async () => ({ issues: revoked() }),
  "gives issues that are no list": () => ({ issues: 1 }),
  "gives issues without messages": () => ({ issues: [null, 1, undefined] }),
  "gives endless paths": () => ({ issues: [{ message: half, path: [Symbol("x"), { key: {} }, thrower(), half] }] }),
  "gives issues of proxies": () => ({ issues: [thrower()] }),
  "gives issues of NUL": () => ({ issues: [{ message: "\0", path: ["\0", half] }] }),
  "gives messages that are no text": () => ({ issues: [{ message: { toString: fail } }, { message: Symbol("x") }] }),
  "gives no issues": () => ({ issues: [] }),
  "gives a getter that throws": () => ({
    get issues() {
      return fail();
    },
  }),
  "gives a value that throws": () => ({
    get value() {
      return fail();
    },
  }),
  "gives a thenable that throws": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then: fail,
  }),
  "gives a thenable that rejects at once": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then: (_resolve: unknown, reject: (error: unknown) => void) => reject(secret()),
  }),
  overflows: () => Deep["~standard"].validate(nested(DEPTH)),
};

/** A schema that does something else than to judge: with any value, or with all but {@link GOOD}. */
export function hostileSchema(random: Random): HostileSchema {
  const takesGood = random.chance(0.8);
  const kind = random.weighted([
    [2, "none"],
    [4, "sound"],
    [3, "library"],
    [1, "parses"],
    [1, "converts"],
    [1, "flaky"],
    [0.15, "slow"],
    [12, "verdict"],
  ] as const);
  const sound = { takesGood: true, isSlow: false };
  switch (kind) {
    case "none":
      return { name: "no schema", schema: undefined, ...sound };
    case "sound":
      return { name: "sound", schema: z.object({ ok: z.boolean() }), ...sound };
    case "library": {
      const [name, schema] = random.pick(ofLibrary);
      return { name, schema, ...sound };
    }
    case "parses": {
      const schema = z.union([
        z.object({ ok: z.boolean() }),
        z.string().transform((text): unknown => JSON.parse(text)),
      ]);
      return { name: "parses", schema, ...sound };
    }
    case "converts":
      return { name: "cannot be converted", schema: converting(random), ...sound };
    case "flaky": {
      const key = random.bits();
      const validate = (value: unknown): unknown => {
        const calls = (callsOf.get(key) ?? 0) + 1;
        callsOf.set(key, calls);
        return calls % 2 === 1 ? fail() : { value };
      };
      return { name: "throws every other time", schema: standard(validate), ...sound };
    }
    case "slow":
      return {
        name: "never settles",
        schema: judging(() => new Promise(() => {}), takesGood),
        takesGood,
        isSlow: true,
      };
    default: {
      const name = random.pick(Object.keys(verdicts));
      return { name, schema: judging(verdicts[name] ?? fail, takesGood), takesGood, isSlow: false };
    }
  }
}

/** How often the schemas that throw every other time were called, also by earlier executions of their agents. */
const callsOf = new Map<number, number>();

const ofLibrary: readonly (readonly [string, StandardSchema<unknown, unknown>])[] = [
  ["recursive", Deep],
  [
    "refine that rejects",
    z.object({ ok: z.boolean() }).refine(async ({ ok }) => (ok ? true : Promise.reject(secret()))),
  ],
  ["transform that throws", z.looseObject({ ok: z.boolean() }).transform(({ ok }) => (ok ? ok : fail()))],
  ["gives a proxy as the value", standard((value) => ({ value: isGood(value) ? thrower() : value }))],
  ["gives a bigint as the value", z.object({ ok: z.boolean() }).transform(() => 10n)],
];

function isGood(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 1 && "ok" in value;
}

function judging(verdict: () => unknown, takesGood: boolean): StandardSchema<unknown, unknown> {
  return standard((value) => (takesGood && isGood(value) ? { value } : verdict()));
}

function standard(validate: (value: unknown) => unknown, jsonSchema?: () => unknown): StandardSchema<unknown, unknown> {
  const input = jsonSchema && { jsonSchema: { input: jsonSchema } };
  return { "~standard": { version: 1, vendor: "hostile", validate, ...input } } as StandardSchema<unknown, unknown>;
}

function converting(random: Random): StandardSchema<unknown, unknown> {
  const valid = (value: unknown): unknown => ({ value });
  return standard(
    valid,
    random.pick([
      fail,
      cycle,
      thrower,
      () => 10n,
      () => half,
      () => ({ toJSON: () => undefined }),
      () => nested(DEPTH),
      () => ({ $ref: "#/$defs/100%", title: half, properties: { __proto__: 1, a: { anyOf: 1 } } }),
      () => ({ type: "object", properties: { approved: { type: "boolean" }, "\0": { enum: [half, "\0"] } } }),
    ]),
  );
}
