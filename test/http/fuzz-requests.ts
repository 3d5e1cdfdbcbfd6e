import type { Random } from "../harness/random.ts";

/** A request of a malicious or faulty client. */
export interface FuzzRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array<ArrayBuffer> | undefined;
}

const methods = ["GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"] as const;
const agents = [
  "echo",
  "plain",
  "words",
  "notes",
  "asker",
  "twofold",
  "picky",
  "failing",
  "leaky",
  "odd",
  "memory",
  "missing",
] as const;
const texts = [
  ...["", "hi", "\u0000", "\ud800", "\u2028\u2029\u0085", "__proto__", "constructor", "a\r\nb: c\n\n", "💥".repeat(9)],
  ...["data: x\n\nid: 7\n\n", "-0", "1e999", "../../etc/passwd", "%00", "x".repeat(3_000), "null", "\\u0000", "🏴‍☠️"],
] as const satisfies readonly [string, ...string[]];
const types = [
  "application/json",
  "application/json; charset=utf-8",
  "text/plain",
  "",
  "application/vnd.x+json",
  "nonsense",
] as const;
const keys = [
  ...["agent_name", "input", "mode", "session_id", "session", "role", "parts", "content", "content_url", "metadata"],
  ...[
    "kind",
    "type",
    "message",
    "await_resume",
    "await_id",
    "run_id",
    "created_at",
    "toString",
    "__proto__",
    "history",
  ],
] as const satisfies readonly string[];

/** A random request; `ids` are those of existing runs and sessions. */
export function fuzzRequest(random: Random, ids: readonly string[]): FuzzRequest {
  const [method, path] = random.chance(0.8) ? operation(random, ids) : [random.pick(methods), fuzzPath(random, ids)];
  return { method, path, headers: fuzzHeaders(random), body: fuzzBody(random, ids, path) };
}

/** A random operation of the service. Operations with more input are chosen more often. */
function operation(random: Random, ids: readonly string[]): readonly [method: string, path: string] {
  const id = fuzzId(random, ids);
  const path = random.pick([
    ...(["POST /runs", "POST /runs", "POST /runs", "POST /runs", "POST /runs"] as const),
    ...[`POST /runs/${id}`, `POST /runs/${id}`, `POST /runs/${id}/cancel`, `GET /runs/${id}`, `GET /runs/${id}/events`],
    ...[`GET /sessions/${id}`, `GET /resources/${id}.${random.below(4)}`, `GET /agents/${random.pick(agents)}`],
    ...["GET /runs?limit=3", "GET /agents", `GET /runs/${id}/details`, `GET /runs/${id}/events?detail=true`],
    `POST /runs/${id}/messages/${random.pick(["payment", "%00", "%F0%9F%92%A5", "%", "__proto__"])}`,
  ]);
  const [method = "", rest = ""] = path.split(" ");
  return [method, rest];
}

function fuzzPath(random: Random, ids: readonly string[]): string {
  const id = fuzzId(random, ids);
  const path = random.pick([
    ...(["/runs", "/runs", "/runs", `/runs/${id}`, `/runs/${id}`, `/runs/${id}/cancel`, `/runs/${id}/events`] as const),
    ...[`/sessions/${id}`, `/session/${id}`, `/resources/${id}.${random.below(4)}`, `/resources/${id}.state`],
    ...[
      `/agents/${random.pick(agents)}`,
      "/agents",
      "/ping",
      "/openapi.json",
      "/",
      "//",
      `/${encodeURIComponent("💥")}`,
    ],
    ...["/runs/%ff", "/runs/..", "/runs/__proto__", "/agents/constructor", "/agents/toString", `/${"a/".repeat(40)}`],
  ]);
  if (random.chance(0.8)) return path;
  return `${path}?limit=${random.pick(["1", "0", "-1", "x", "1e9", "5"])}&offset=${random.below(3)}&status=${random.pick(["failed", "awaiting", "x"])}&roots=${random.pick(["true", "false", "1"])}&=&%ff`;
}

function fuzzId(random: Random, ids: readonly string[]): string {
  const known = ids[random.below(ids.length)];
  if (known !== undefined && random.chance(0.7)) return random.chance(0.9) ? known : known.toUpperCase();
  return random.pick(["00000000-0000-4000-8000-000000000000", "42", "%00", "x".repeat(200), "{run_id}", "a.b"]);
}

function fuzzHeaders(random: Random): Record<string, string> {
  const headers: Record<string, string> = {};
  if (random.chance(0.8)) headers["content-type"] = random.chance(0.9) ? "application/json" : random.pick(types);
  if (random.chance(0.1)) headers["idempotency-key"] = random.pick(["a", "b", "", "x".repeat(300), "{}"]);
  if (random.chance(0.1)) headers["accept"] = random.pick(["text/event-stream", "*/*", "text/html", ""]);
  if (random.chance(0.1)) headers["last-event-id"] = random.pick(["0", "3", "-1", "x", "99999999999999999999"]);
  if (random.chance(0.03)) headers["origin"] = random.pick(["https://evil.example", "null", "", "http://service.test"]);
  if (random.chance(0.03)) headers["sec-fetch-site"] = random.pick(["cross-site", "same-origin", "x"]);
  return headers;
}

function fuzzBody(random: Random, ids: readonly string[], path: string): FuzzRequest["body"] {
  const dice = random.below(100);
  if (dice < 10) return undefined;
  if (dice < 14) return Uint8Array.from({ length: random.below(40) }, () => random.below(256));
  const text = JSON.stringify(dice < 70 ? plausible(random, ids, path) : fuzzValue(random, 0));
  if (dice < 90) return text;
  if (dice < 92) return `${"[".repeat(random.below(3_000))}${text}`;
  // A text with one random fault.
  const at = random.below(text.length + 1);
  return random.chance(0.5)
    ? text.slice(0, at)
    : text.slice(0, at) + random.pick(texts) + text.slice(at + random.below(3));
}

/** A body that may be valid. */
function plausible(random: Random, ids: readonly string[], path: string): unknown {
  const message = (): unknown => ({
    ...(random.chance(0.8) && { role: random.pick(["user", "agent", "agent/x", "assistant"]) }),
    parts: Array.from({ length: random.below(3) }, () => ({
      content: random.pick(texts),
      ...(random.chance(0.2) && {
        [random.pick(["name", "content_type", "metadata", "content_url"])]: fuzzValue(random, 3),
      }),
    })),
  });
  if (random.chance(0.05) || path.length > "/runs".length) {
    const await_resume = random.chance(0.5) ? { type: "message", message: message() } : fuzzValue(random, 2);
    if (random.chance(0.2)) return { decline: random.chance(0.5) ? {} : fuzzValue(random, 2) };
    return { await_resume, mode: random.pick(["sync", "async", "stream", null]) };
  }
  return {
    agent_name: random.pick(agents),
    input: Array.from({ length: random.below(3) }, message),
    ...(random.chance(0.9) && { mode: random.pick(["sync", "async", "stream", "x", null]) }),
    ...(random.chance(0.2) && { session_id: fuzzId(random, ids) }),
    ...(random.chance(0.1) && {
      session: {
        id: fuzzId(random, ids),
        history: [random.pick(["http://10.0.0.1/x", "x", "http://service.test/resources/x"])],
      },
    }),
  };
}

function fuzzValue(random: Random, depth: number): unknown {
  const dice = random.below(depth > 4 ? 5 : 8);
  if (dice === 0) return random.pick([null, true, false, 0, -1, 1e21, 0.1]);
  if (dice < 5) return random.pick(texts);
  if (dice === 5) return Array.from({ length: random.below(4) }, () => fuzzValue(random, depth + 1));
  const entries = Array.from({ length: random.below(5) }, () => [
    keys[random.below(keys.length)],
    fuzzValue(random, depth + 1),
  ]);
  // `__proto__` becomes an own key here, as with JSON.parse.
  return Object.fromEntries(entries);
}
