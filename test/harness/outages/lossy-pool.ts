import type { Hook } from "../hooked-pool.ts";

/** Which answers of the server are lost: every n-th one to statements of a kind, in turns as an error and for good. */
export interface Losses {
  /** One of {@link kinds}; `all`: each of them, counted for itself. */
  readonly kind: string;
  readonly nth: number;
  /** Until when, in milliseconds since 1970. */
  readonly until: number;
}

/** The kinds of statements, with a part of their text. Those of writes stand in their parameter. */
const patterns: readonly (readonly [kind: string, pattern: RegExp])[] = [
  ["take", /take_v2/],
  ["read", /AS length, e\.position/],
  ["moved", /WITH ORDINALITY k \(run, n\)/],
  ["owned", /r\.owner = \$1::text ORDER BY r\.id LIMIT/],
  ["session read", /SELECT s\.state, m\.message/],
  ["find by key", /r\.idempotency_key = /],
  ["find", /r\.run_id = \$2::text/],
  ["blocked", /r\.blocked IS NOT NULL/],
  ["notify", /pg_notify/],
  ["listen", /^LISTEN|^SELECT 1$/],
];
const writes = ["create", "append", "post", "claim", "lease", "session"] as const;

/** All kinds of statements that a process with runs sends again and again. */
export const kinds: readonly string[] = [...writes, ...patterns.map(([kind]) => kind)];

/** The kinds of a statement. A batch has those of all its writes. */
function kindsOf(sql: string, parameter: unknown): readonly string[] {
  if (sql.includes("write_v1")) return writes.filter((kind) => String(parameter).includes(`"kind":"${kind}"`));
  const [kind = "other"] = patterns.find(([, pattern]) => pattern.test(sql)) ?? [];
  return [kind];
}

/** What becomes of statements under losses. */
export function lossy({ kind, nth, until }: Losses): Hook {
  const counts = new Map<string, number>();
  let lost = 0;
  return async (run, sql, parameter) => {
    const result = await run();
    if (Date.now() > until) return result;
    let isLost = false;
    for (const one of kindsOf(sql, parameter)) {
      if (kind !== "all" && kind !== one) continue;
      const count = (counts.get(one) ?? 0) + 1;
      counts.set(one, count);
      isLost ||= count % nth === 0;
    }
    if (!isLost) return result;
    lost += 1;
    if (lost % 2 === 0) return new Promise(() => {});
    throw Object.assign(new Error("planted"), { code: "ECONNRESET" });
  };
}
