import type { EmittedGeneric, Entry } from "../../core/log.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  created,
  message,
  part,
  parts,
  runKey,
  sessionId,
  sessionKey,
  waiting,
  write,
} from "./samples.ts";

const MEBIBYTE = 1_048_576;
const LETTERS = "abcdefghij";

/** JSON that an encoding, an escape or a parser may lose. */
const oddValues: readonly JsonValue[] = [
  "",
  "line\nbreak\r\n\ttab \u0000 \u0008 \u001f \u007f quote\" backslash\\ slash/ apostrophe' percent% question? dollar$1",
  "é e\u0301 ß 日本語 👩‍👩‍👧‍👦 \u2028 \u2029 \ufeff \uffff",
  "a lone \ud800 surrogate \udfff",
  JSON.parse('{ "__proto__": { "polluted": true }, "constructor": 1, "toString": null, "": [] }') as JsonValue,
  [0, -1, 0.1, 1e-7, 1e21, 1.7976931348623157e308, 5e-324, 9007199254740991, 2 ** 53, 2 ** 64],
  [true, false, null, [], {}, [[[[[]]]]]],
  { 2: "b", 1: "a", z: 1, a: 2 },
  "'; DROP TABLE runs; --",
];

/** `read`, `find`, `list` and the separation of tenants. */
export const readChecks: readonly StoreCheck[] = [
  check("read: any range of the log, also across several writes", async ({ first }) => {
    const log: Entry[] = [created(1), ...parts(...LETTERS)];
    const key = runKey(1);
    expectWritten(await first.create(key, write(log.slice(0, 3)), null), "create");
    for (const [from, to] of [
      [3, 4],
      [4, 9],
      [9, 11],
    ] as const) {
      await append(first, key, from, write(log.slice(from, to)));
    }
    for (let from = 0; from <= log.length + 1; from++) {
      for (const limit of [0, 1, 2, 3, 5, log.length, 1_000, Number.POSITIVE_INFINITY]) {
        const expected = log.slice(from, from + limit);
        expectSame(await first.read(key, from, limit), expected, `${limit} entries from position ${from} on`);
      }
    }
  }),

  check("read: an empty list beyond the end, and undefined for a missing run", async ({ first }) => {
    const key = await create(first, 1);
    expectSame(await first.read(key, 1, 10), [], "beyond the end");
    expectSame(await first.read(key, 1_000, 10), [], "far beyond the end");
    expectSame(await first.read(runKey(2), 0, 10), undefined, "a run that is not there");
    expectSame(await first.find(runKey(2)), undefined, "find of a run that is not there");
  }),

  check("read: every JSON value is returned unchanged", async ({ first }) => {
    const key = await create(first, 1, { created: { principal: oddValues } });
    const session = { session_id: sessionId(1), create: true, messages: () => oddValues.map(oddMessage), at: NOW };
    const entries = oddValues.map(generic);
    await append(first, key, 1, write(entries, { session: { ...session, state: { value: oddValues } } }));
    expectSame(await first.read(key, 1, 100), entries, "the entries");
    expectSame((await first.find(key))?.created.principal, oddValues, "the first entry");
    const stored = await first.session(sessionKey(1));
    expectSame(stored, { history: oddValues.map(oddMessage), state: oddValues }, "the session");
  }),

  check("read: a value that JSON cannot express is returned as JSON writes it", async ({ first }) => {
    const key = await create(first, 1);
    const step = { type: "step", at: NOW, key: "a#1", result: undefined, error: null, usage: null } as const;
    const entries = [step, generic(Number.NaN), generic(Number.POSITIVE_INFINITY)];
    await append(first, key, 1, write(entries));
    expectSame(await first.read(key, 1, 10), entries, "the entries");
  }),

  check("read: a text of a mebibyte is returned whole", async ({ first }) => {
    const key = await create(first, 1);
    const text = "0123456789abcdef".repeat(MEBIBYTE / 16);
    await append(first, key, 1, write(parts(text, "after it")));
    const read = await first.read(key, 1, 10);
    const [big] = read ?? [];
    const content = big?.type === "emitted" && big.kind === "part" ? big.part.content : undefined;
    expectSame(content?.length, MEBIBYTE, "the length of the text");
    expectSame(content === text, true, "that the text is the same");
    expectSame(read?.[1] ?? (await first.read(key, 2, 10))?.[0], part("after it"), "the entry after it");
  }),

  check("read: a log of large entries is returned in parts, without a gap", async ({ first }) => {
    const key = await create(first, 1);
    const large = "x".repeat(MEBIBYTE);
    for (let n = 0; n < 10; n++) await append(first, key, 1 + n, write(parts(`${n} ${large}`)));
    const read: Entry[] = [];
    for (let chunk: readonly Entry[] | undefined = []; read.length < 10; read.push(...(chunk ?? []))) {
      chunk = await first.read(key, 1 + read.length, 1_000);
      if (chunk === undefined || chunk.length === 0) break;
    }
    const begins = read.map((entry) =>
      entry.type === "emitted" && entry.kind === "part" ? entry.part.content?.[0] : "",
    );
    expectSame(begins.join(" "), "0 1 2 3 4 5 6 7 8 9", "the entries");
  }),

  check("tenants: a run of another tenant does not exist", async ({ first }) => {
    const key = await create(first, 1, { idempotencyKey: "key", head: waiting() });
    const foreign = runKey(1, "other");
    expectSame(await first.find(foreign), undefined, "find");
    expectSame(await first.read(foreign, 0, 10), undefined, "read");
    expectSame(await first.findByIdempotencyKey("other", "key"), undefined, "findByIdempotencyKey");
    expectSame(await first.list({ tenant: "other", limit: 10, offset: 0 }), [], "list");
    const expected = { epoch: 1, position: 1 };
    expectConflict(await first.append(foreign, expected, write(parts("a"))), { conflict: "missing" }, "append");
    expectConflict(await first.claim(foreign, expected, waiting()), { conflict: "missing" }, "claim");
    expectSame((await first.find(key))?.position, 1, "the length of the run afterwards");
  }),

  check("tenants: each has its own runs, sessions and idempotency keys under the same names", async ({ first }) => {
    const pairs = [
      ["", "3:abcd"],
      ["abc", "d"],
      ["a", "bc"],
      ["ab", "c"],
      ["x", "y:z"],
      ["x:y", "z"],
      ["n", "\0b"],
      ["n\0", "b"],
      ["\ud800", "x"],
      ["\ud801", "x"],
      ["é", "x"],
      ["e\u0301", "x"],
      ["E", "x"],
      ["e", "x"],
      ["e ", "x"],
      ['"e"', "x"],
    ] as const;
    for (const [tenant, name] of pairs) {
      const session = { session_id: sessionId(1), create: true, state: { value: [tenant, name] }, at: NOW };
      await create(first, 1, { tenant, idempotencyKey: name, session, created: { principal: [tenant, name] } });
    }
    for (const [tenant, name] of pairs) {
      const label = `of tenant ${JSON.stringify(tenant)}`;
      expectSame((await first.find(runKey(1, tenant)))?.created.principal, [tenant, name], `the run ${label}`);
      expectSame((await first.find(runKey(1, tenant)))?.key, runKey(1, tenant), `the key of the run ${label}`);
      const byKey = await first.findByIdempotencyKey(tenant, name);
      expectSame(byKey?.created.principal, [tenant, name], `the run by idempotency key ${label}`);
      expectSame((await first.session(sessionKey(1, tenant)))?.state, [tenant, name], `the session ${label}`);
      expectSame((await first.list({ tenant, limit: 10, offset: 0 })).length, 1, `how many runs ${label} there are`);
    }
  }),
];

function generic(value: JsonValue): EmittedGeneric {
  return { type: "emitted", kind: "generic", at: NOW, generic: { value } };
}

function oddMessage(value: JsonValue) {
  return { ...message(JSON.stringify(value)), odd: value };
}
