import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AgentError, CadenzaError } from "../../src/core/errors.ts";
import { copyJson, sameJson } from "../../src/core/json.ts";
import { ignore, isPromise } from "../../src/core/promises.ts";
import { agentStatus, counterNames, countRun, noCounters } from "../../src/core/statistics.ts";
import { isoTime } from "../../src/core/time.ts";
import { addUsage, subtractUsage } from "../../src/core/usage.ts";
import { agentStatusSchema } from "../../src/protocol/agent.ts";
import type { Usage } from "../../src/protocol/extensions.ts";
import { fold, logs } from "../harness/logs.ts";

const usage: Usage = {
  input_tokens: 10,
  output_tokens: 5,
  total_tokens: 15,
  cached_input_tokens: 4,
  cache_write_tokens: 2,
  reasoning_tokens: 1,
};

describe("JSON values", () => {
  it.each([
    [1, 1, true],
    ["a", "a", true],
    [null, null, true],
    [{ a: 1, b: [2] }, { b: [2], a: 1 }, true],
    [1, 2, false],
    [1, "1", false],
    [null, {}, false],
    [{}, null, false],
    [[], {}, false],
    [[1, 2], [2, 1], false],
    [{ a: 1 }, { a: 1, b: 2 }, false],
    [{ a: undefined }, { b: undefined }, false],
    [{ a: { b: 1 } }, { a: { b: 2 } }, false],
  ])("%j and %j are equal: %s", (a, b, same) => {
    expect(sameJson(a, b)).toBe(same);
    expect(sameJson(b, a)).toBe(same);
  });

  it("a copy is equal and shares nothing", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const copy = copyJson(value);
        expect(sameJson(copy, JSON.parse(JSON.stringify(value)))).toBe(true);
        if (typeof value === "object" && value !== null) expect(copy).not.toBe(value);
      }),
    );
  });

  it("a copy of any value is what JSON makes of it", () => {
    const any = fc.anything({
      withBoxedValues: true,
      withDate: true,
      withMap: true,
      withNullPrototype: true,
      withObjectString: true,
      withSet: true,
      withSparseArray: true,
      withTypedArray: true,
    });
    const withOwnWays = fc.record({
      plain: any,
      __proto__: any,
      asked: any.map((value) => ({ toJSON: (key: string) => [key, value] })),
      list: fc.array(any.map((value) => ({ toJSON: (key: string) => ({ key, value }) }))),
      number: fc.constantFrom(-0, Number.NaN, Number.POSITIVE_INFINITY, 1e308),
      function: fc.constant(() => 1),
    });
    fc.assert(
      fc.property(fc.oneof(any, withOwnWays), (value) => {
        const text: string | undefined = JSON.stringify(value);
        expect(copyJson(value)).toStrictEqual(text === undefined ? undefined : JSON.parse(text));
      }),
    );
    const prototype = JSON.parse('{"a":{"__proto__":{"b":1}}}');
    expect(JSON.stringify(copyJson(prototype))).toBe('{"a":{"__proto__":{"b":1}}}');
  });

  it("a value may be nested 1,000 levels deep", () => {
    const nested = (levels: number): unknown => JSON.parse(`${"[".repeat(levels)}1${"]".repeat(levels)}`);
    expect(copyJson(nested(1_000))).toStrictEqual(nested(1_000));
    expect(() => copyJson(nested(1_001))).toThrow("1,000 levels");
    expect(() => copyJson({ toJSON: () => nested(1_001) })).toThrow("1,000 levels");
  });

  it("a copy holds what JSON would hold, and nothing else", () => {
    expect(copyJson({ at: new Date(0), gone: undefined, nan: Number.NaN })).toEqual({
      at: "1970-01-01T00:00:00.000Z",
      nan: null,
    });
    expect(copyJson(7)).toBe(7);
    expect(copyJson(true)).toBe(true);
    expect(copyJson("text")).toBe("text");
    expect(copyJson(null)).toBeNull();
    expect(copyJson(undefined)).toBeUndefined();
    expect(copyJson(() => 1)).toBeUndefined();
    expect(copyJson(Symbol("s"))).toBeUndefined();
  });

  it("a cycle and a bigint are refused", () => {
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    expect(() => copyJson(cycle)).toThrow(TypeError);
    expect(() => copyJson({ big: 1n })).toThrow(TypeError);
  });
});

describe("errors", () => {
  it("carry their code, their ids and their cause", () => {
    const cause = new Error("deeper");
    const details = { agent_name: "a", run_id: "r", session_id: "s", await_id: "w", limit: "l", issues: [], cause };
    const error = new CadenzaError("limit_reached", "Too much.", details);

    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name: "CadenzaError", code: "limit_reached", message: "Too much.", ...details });
    expect("cause" in new CadenzaError("limit_reached", "Too much.")).toBe(false);
    expect(new AgentError("not_found", "Gone.", { id: 1 }, { cause })).toMatchObject({
      name: "AgentError",
      code: "not_found",
      data: { id: 1 },
      cause,
    });
  });

  it("are recognised by their brand, also those of another copy of the library", () => {
    const stranger = runInNewContext('Object.assign(new Error("x"), { [Symbol.for("cadenza.error")]: true })');
    expect(CadenzaError.is(stranger)).toBe(true);
    expect(CadenzaError.is(new CadenzaError("store_failed", ""))).toBe(true);
    expect(AgentError.is(new AgentError("any", ""))).toBe(true);
    for (const other of [new Error(""), null, undefined, "text", 5, {}]) {
      expect(CadenzaError.is(other)).toBe(false);
      expect(AgentError.is(other)).toBe(false);
    }
    expect(CadenzaError.is(new AgentError("any", ""))).toBe(false);
    expect(AgentError.is(new CadenzaError("store_failed", ""))).toBe(false);
  });

  it("the brand is not visible when an error is printed or copied", () => {
    expect(Object.keys(new AgentError("any", ""))).not.toContain("Symbol(cadenza.agent-error)");
    expect(Symbol.for("cadenza.error") in { ...new CadenzaError("store_failed", "") }).toBe(false);
  });
});

describe("usage", () => {
  it("adds up figure by figure, and a missing one counts as nothing", () => {
    expect(addUsage(null, null)).toBeNull();
    expect(addUsage(usage, null)).toBe(usage);
    expect(addUsage(null, usage)).toBe(usage);
    expect(addUsage(usage, { ...usage, input_tokens: 1 })).toEqual({
      input_tokens: 11,
      output_tokens: 10,
      total_tokens: 30,
      cached_input_tokens: 8,
      cache_write_tokens: 4,
      reasoning_tokens: 2,
    });
  });
});

describe("the rest of a usage", () => {
  it("is the difference, figure by figure, if it holds the part", () => {
    expect(subtractUsage(addUsage(usage, usage) ?? usage, usage)).toEqual(usage);
    expect(subtractUsage(usage, { ...usage, reasoning_tokens: 2 })).toBeUndefined();
  });
});

describe("statistics", () => {
  it.each([
    ["completed", { completed: 1, active_ms: 40, waiting_ms: 0 }],
    ["failed", { failed: 1, active_ms: 40, waiting_ms: 0 }],
    ["cancelled", { cancelled: 1, active_ms: 0, waiting_ms: 0 }],
  ] as const)("a run that has %s counts as such", (status, counters) => {
    expect(countRun(fold(...logs[status]))).toEqual({ ...noCounters, ...counters });
  });

  it("a run that reported usage counts with it", () => {
    const counters = countRun({ ...fold(...logs.completed), usage });
    expect(counters).toMatchObject({ reported: 1, ...usage });
    expect(counterNames.every((name) => typeof counters[name] === "number")).toBe(true);
    expect(counterNames).toHaveLength(Object.keys(counters).length);
  });

  it("a figure is absent until it has a basis", () => {
    expect(agentStatus(noCounters)).toStrictEqual({});
    expect(agentStatus({ ...noCounters, cancelled: 5 })).toStrictEqual({});
    expect(agentStatus({ ...noCounters, cancelled: 1, reported: 1, total_tokens: 9 })).toStrictEqual({
      avg_run_tokens: 9,
    });
  });

  it("figures are averages over the runs that count for them", () => {
    const counters = {
      ...noCounters,
      completed: 3,
      failed: 1,
      cancelled: 7,
      active_ms: 8_000,
      reported: 2,
      total_tokens: 30,
    };
    const status = agentStatus(counters);
    expect(status).toStrictEqual({ avg_run_tokens: 15, avg_run_time_seconds: 2, success_rate: 75 });
    expect(agentStatusSchema.parse(status)).toStrictEqual(status);
  });
});

describe("time", () => {
  it("is written as ISO 8601 in UTC, whatever time was written before", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 4e12 }), { minLength: 1 }), (times) => {
        for (const at of [...times, ...times]) expect(isoTime(at)).toBe(new Date(at).toISOString());
      }),
    );
  });
});

describe("promises", () => {
  it("are recognised by their method `then`", () => {
    expect(isPromise(Promise.resolve())).toBe(true);
    for (const value of [null, undefined, 1, "then", {}, JSON.parse('{ "then": 1 }')])
      expect(isPromise(value)).toBe(false);
    expect(ignore()).toBeUndefined();
  });
});
