import type { EmittedGeneric, Entry } from "../core/log.ts";
import type { Store } from "../core/ports.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { StoreCheck } from "./store-check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./store-check.ts";
import {
  append,
  create,
  created,
  createEnded,
  message,
  over,
  part,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  TENANT,
  waiting,
  write,
} from "./store-samples.ts";

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
    expectSame(read?.[1], part("after it"), "the entry after it");
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

  check("list: the newest first, in pages", async ({ first }) => {
    // A store does not look at the times of entries.
    const ids = [5, 2, 9, 1, 7];
    for (const [index, n] of ids.entries()) await create(first, n, { created: { at: NOW - index } });
    const newest = ids.map(runId).reverse();
    for (const [offset, limit] of [
      [0, 10],
      [0, 2],
      [2, 2],
      [4, 2],
      [5, 2],
      [50, 2],
      [0, 0],
      [0, Number.POSITIVE_INFINITY],
    ] as const) {
      const page = await listed(first, { limit, offset });
      expectSame(page, newest.slice(offset, offset + limit), `${limit} runs from ${offset} on`);
    }
    await append(first, runKey(2), 1, write(parts("a")));
    expectSame(await listed(first, {}), newest, "the order after a write to an older run");
  }),

  check("list: a run as `find` gives it", async ({ first }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write(parts("a"), { head: waiting(77) }));
    expectSame(await first.list({ tenant: TENANT, limit: 1, offset: 0 }), [await first.find(key)], "the list");
  }),

  check("list: by agent, by session and by status, alone and together", async ({ first }) => {
    const shared = { session_id: sessionId(1) };
    await create(first, 1, { created: { agent_name: "echo", ...shared }, head: waiting() });
    await create(first, 2, { created: { agent_name: "ask", ...shared } });
    await create(first, 3, { created: { agent_name: "ask" } });
    await createEnded(first, 4, NOW, { created: { agent_name: "ask", ...shared } });
    // A run that joins the own session of another run.
    await create(first, 5, { created: { agent_name: "echo", session_id: runId(3) } });
    for (const [query, expected] of [
      [{ agent_name: "ask" }, [4, 3, 2]],
      [{ agent_name: "none" }, []],
      [{ session_id: sessionId(1) }, [4, 2, 1]],
      [{ session_id: runId(3) }, [5, 3]],
      [{ session_id: runId(1) }, []],
      [{ status: "in-progress" }, [5, 3, 2]],
      [{ status: "awaiting" }, [1]],
      [{ status: "completed" }, [4]],
      [{ status: "cancelling" }, []],
      [{ agent_name: "ask", status: "in-progress" }, [3, 2]],
      [{ agent_name: "ask", session_id: sessionId(1) }, [4, 2]],
      [{ agent_name: "ask", session_id: sessionId(1), status: "completed" }, [4]],
      [{ session_id: sessionId(1), status: "in-progress" }, [2]],
      [{ status: "in-progress", limit: 1, offset: 1 }, [3]],
      [{ session_id: sessionId(1), limit: 2, offset: 1 }, [2, 1]],
    ] as const) {
      expectSame(await listed(first, query), expected.map(runId), `the runs with ${JSON.stringify(query)}`);
    }
  }),

  check("list: with roots, sub-runs are left out before the page is taken", async ({ first, second }) => {
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    await create(first, 1, { head: waiting() });
    await create(first, 2, { created: { parent }, head: waiting() });
    await create(first, 3, { created: { parent: { ...parent, run_id: runId(2) } }, head: waiting(NOW) });
    await create(first, 4, { created: { agent_name: "ask", session_id: sessionId(1) }, head: waiting() });
    await create(first, 5, { created: { parent, agent_name: "ask", session_id: sessionId(1) } });
    await createEnded(first, 6, NOW, { created: { parent } });
    for (const [query, expected] of [
      [{}, [6, 5, 4, 3, 2, 1]],
      [{ roots: false }, [6, 5, 4, 3, 2, 1]],
      [{ roots: true }, [4, 1]],
      [{ roots: true, status: "awaiting" }, [4, 1]],
      [{ roots: false, status: "awaiting" }, [4, 3, 2, 1]],
      [{ roots: true, status: "awaiting", limit: 1, offset: 1 }, [1]],
      [{ roots: true, agent_name: "ask" }, [4]],
      [{ roots: true, session_id: sessionId(1) }, [4]],
      [{ roots: true, status: "completed" }, []],
      [{ roots: true, status: "in-progress" }, []],
    ] as const) {
      expectSame(await listed(second, query), expected.map(runId), `the runs with ${JSON.stringify(query)}`);
    }
  }),

  check("list: the status is that of the last write", async ({ first }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write(parts("a"), { head: waiting() }));
    expectSame(await listed(first, { status: "in-progress" }), [], "runs in progress, once it waits");
    expectSame(await listed(first, { status: "awaiting" }), [runId(1)], "runs that wait");
    await append(first, key, 2, write(parts("b"), { head: over() }));
    expectSame(await listed(first, { status: "awaiting" }), [], "runs that wait, once it has ended");
    expectSame(await listed(first, { status: "completed" }), [runId(1)], "completed runs");
  }),
];

async function listed(store: Store, query: object): Promise<readonly string[]> {
  const runs = await store.list({ tenant: TENANT, limit: 100, offset: 0, ...query });
  return runs.map((run) => run.key.run_id);
}

function generic(value: JsonValue): EmittedGeneric {
  return { type: "emitted", kind: "generic", at: NOW, generic: { value } };
}

function oddMessage(value: JsonValue) {
  return { ...message(JSON.stringify(value)), odd: value };
}
