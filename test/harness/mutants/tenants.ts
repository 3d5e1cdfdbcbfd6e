// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are texts of the sources
import type { Edit, Mutant } from "./mutants.ts";
import { mutant } from "./mutants.ts";

/*
 * The tenant is left out of each key and each query that contains one, one after the other. `npm run stress -- mutants` tries
 * them all. A condition that only repeats another one of its query, for an index, is not in the list.
 */

const runs = [
  "test/durable/tenants.test.ts",
  "test/runtime/callers/tenants.test.ts",
  "test/durable/trials/isolation.test.ts",
];
const stores = ["test/stores/contract.test.ts", "test/stores/agreement.test.ts", "test/stores/sqlite/work.test.ts"];
const postgres = ["test/postgres/contract/contract.test.ts"];
const http = ["test/http/same-ids.test.ts", "test/http/tenants.test.ts"];
const inspector = ["test/inspector/tenants.test.ts"];
const admin = ["test/admin/tenants.test.ts", "test/admin/admin.test.ts"];
const acts = ["test/admin/acts.test.ts"];
const traces = ["test/otel/traces.test.ts"];

/** A map like `RunMap`, whose keys are the ids of runs alone. */
const byIdAlone: Edit = {
  file: "src/core/run-map.ts",
  find: "/** Whether two keys are those of one run. */",
  put: `export class ByIdAlone {
  map = new Map();
  get size() { return this.map.size; }
  get({ run_id }) { return this.map.get(run_id)?.[1]; }
  has({ run_id }) { return this.map.has(run_id); }
  set(key, value) { this.map.set(key.run_id, [key, value]); }
  delete({ run_id }) { return this.map.delete(run_id); }
  clear() { this.map.clear(); }
  sizeOf() { return this.map.size; }
  valuesOf() { return this.values(); }
  *values() { for (const [, value] of this.map.values()) yield value; }
  *entries() { yield* this.map.values(); }
}
/** Whether two keys are those of one run. */`,
};

function unkeyed(file: string, map: string, tests: readonly string[]): Mutant {
  return {
    name: `${file}: ${map} by id alone`,
    edits: [
      byIdAlone,
      { file, find: "RunMap } from", put: "RunMap, ByIdAlone } from" },
      { file, find: map, put: map.replace(/RunMap(<.*>)?\(/, "ByIdAlone(") },
    ],
    tests,
  };
}

/** A mutant with one more edit. */
function withMore(one: Mutant, file: string, find: string, put: string): Mutant {
  return { ...one, edits: [...one.edits, { file, find, put }] };
}

/** The maps whose keys are those of one tenant: the relatives of one run, or what one call looks at. */
export const ofOneTenant: readonly string[] = [
  "src/runtime/runs/deleting.ts",
  "src/runtime/execution/run-family.ts",
  "src/runtime/runs/run-reader.ts",
  "src/runtime/execution/run-family.ts",
];

const maps: readonly Mutant[] = [
  unkeyed("src/runtime/log/trimming.ts", "readonly #last = new RunMap<Generation>()", [
    "test/runtime/runs/kept-generations.test.ts",
  ]),
  unkeyed("src/runtime/runs/runs.ts", "readonly #live = new RunMap<LiveRun>()", runs),
  unkeyed("src/durable/recovery/run-loader.ts", "readonly #loading = new RunMap<Promise<LiveRun | undefined>>()", runs),
  unkeyed("src/durable/recovery/damaged-runs.ts", "readonly #newer = new RunMap<number>()", runs),
  unkeyed("src/durable/recovery/damaged-runs.ts", "readonly #runs = new RunMap<Damaged>()", runs),
  unkeyed("src/durable/recovery/heartbeat.ts", "const loaded = new RunMap<true>()", runs),
  withMore(
    unkeyed("src/durable/recovery/heartbeat.ts", "this.#given = new RunMap()", runs),
    "src/durable/recovery/heartbeat.ts",
    "  #given = new RunMap<number>()",
    "  #given = new ByIdAlone()",
  ),
  unkeyed("src/durable/recovery/due-hints.ts", "readonly #later = new RunMap<number>()", runs),
  unkeyed("src/durable/recovery/due-hints.ts", "readonly #due = new RunMap<true>()", runs),
  unkeyed("src/durable/recovery/follower.ts", "readonly #followed = new RunMap<Set<Followed>>()", runs),
  unkeyed("src/durable/recovery/follower.ts", "readonly #hinted = new RunMap<true>()", runs),
  unkeyed(
    "src/durable/recovery/wakeups.ts",
    "readonly #looks = new RunMap<(again: number | undefined) => void>()",
    runs,
  ),
  unkeyed("src/durable/recovery/remote-posts.ts", "readonly #runs = new RunMap<Seen>()", runs),
  unkeyed("src/admin/figures.ts", "readonly #known = new RunMap<Known>()", ["test/admin/figures.test.ts"]),
  unkeyed("src/http/disconnects.ts", "readonly #runs = new RunMap<Presence>()", http),
  unkeyed("src/http/readers.ts", "readonly #perRun = new RunMap<number>()", http),
  unkeyed("src/otel/trace-runs.ts", "readonly #calls = new RunMap<Context>()", traces),
  mutant(
    "src/core/run-map.ts",
    "if (tenant === this.#tenant) return this.#runs;",
    "if (this.#runs !== undefined) return this.#runs;",
    runs,
  ),
  mutant("src/core/run-map.ts", " && one.tenant === other.tenant", "", [...runs, ...traces]),
];

const runtime: readonly Mutant[] = [
  mutant("src/runtime/runs/runs.ts", "this.#live.valuesOf(tenant)", "this.#live.values()", runs),
  mutant(
    "src/runtime/runs/runs.ts",
    "const key = { tenant: request.tenant, run_id: runId };",
    'const key = { tenant: "", run_id: runId };',
    runs,
  ),
  mutant(
    "src/runtime/runs/runs.ts",
    "const key = { tenant, run_id: runId };",
    'const key = { tenant: "", run_id: runId };',
    runs,
  ),
  mutant(
    "src/runtime/runs/runs.ts",
    "return { elsewhere: { tenant, run_id: runId }, of };",
    'return { elsewhere: { tenant: "", run_id: runId }, of };',
    runs,
  ),
  mutant("src/runtime/runs/sub-run.ts", "tenant: key.tenant,", 'tenant: "",', runs),
  mutant("src/runtime/runs/runs.ts", "slotsOf(agent, key.tenant, entry)", 'slotsOf(agent, "", entry)', runs),
  mutant("src/runtime/runs/runs.ts", "checkSlots(agent, slots, key.tenant,", 'checkSlots(agent, slots, "",', runs),
  mutant(
    "src/runtime/runs/admission.ts",
    "slotOf(name, concurrency, tenant, session_id)",
    'slotOf(name, concurrency, "", session_id)',
    runs,
  ),
  mutant("src/runtime/runs/admission.ts", '""}/${tenant}`, max }', '""}`, max }', runs),
  mutant("src/runtime/api/read-new-run.ts", "`${tenant.length}:${tenant}${key}`", "`${key}`", runs),
  mutant("src/runtime/api/scope-reads.ts", "    tenant,\n", '    tenant: "",\n', runs),
  ...[
    "cancel(run_id: string, options: CancelOptions = {}): Promise<Run> {",
    "fork(run_id: string, options: ForkOptions = {}): Promise<Run> {",
    "delete(run_id: string): Promise<void> {",
  ].map((method) =>
    mutant(
      "src/runtime/api/scope.ts",
      `${method}\n    const key = keyOf(this.#tenant, run_id);`,
      `${method}\n    const key = keyOf("", run_id);`,
      runs,
    ),
  ),
  mutant("src/runtime/api/scope.ts", "const key = { tenant: this.#tenant,", 'const key = { tenant: "",', runs),
  mutant("src/runtime/api/scope.ts", "this.#messages.send(this.#tenant,", 'this.#messages.send("",', runs),
  ...["current", "details", "transcript", "source"].map((name) =>
    mutant("src/runtime/api/scope-reads.ts", `.${name}(key)`, `.${name}({ ...key, tenant: "" })`, runs),
  ),
  mutant("src/runtime/api/scope-reads.ts", "readRunQuery(query, this.#tenant,", 'readRunQuery(query, "",', runs),
  mutant("src/runtime/api/scope-reads.ts", "findByIdempotencyKey(this.#tenant,", 'findByIdempotencyKey("",', runs),
  mutant(
    "src/runtime/api/scope-reads.ts",
    "this.#reader.session(this.#tenant, id)",
    'this.#reader.session("", id)',
    runs,
  ),
  mutant(
    "src/runtime/api/scope-reads.ts",
    'readSessionKey(this.#tenant, "sessionKey"',
    'readSessionKey("", "sessionKey"',
    runs,
  ),
  mutant("src/runtime/api/scope-reads.ts", "feed.watch(options, this.#tenant,", "feed.watch(options, undefined,", [
    "test/runtime/events/watch.test.ts",
  ]),
  mutant("src/runtime/log/watch.ts", ": tenant === this.#tenant;", ": true;", ["test/runtime/events/watch.test.ts"]),
  mutant("src/stores/feed.ts", "(tenant === undefined || key.tenant === tenant) && ", "", stores),
  mutant(
    "src/runtime/api/scope.ts",
    "readAnswer, request, options, this.#tenant,",
    'readAnswer, request, options, "",',
    runs,
  ),
  mutant(
    "src/runtime/api/scope.ts",
    "readNewRun, request, options, this.#tenant,",
    'readNewRun, request, options, "",',
    runs,
  ),
  mutant("src/runtime/runs/message-router.ts", "? { tenant, run_id: to }", '? { tenant: "", run_id: to }', runs),
  mutant("src/runtime/runs/message-router.ts", "{ tenant, creator, labels,", '{ tenant: "", creator, labels,', runs),
  mutant(
    "src/runtime/api/forks.ts",
    "const repeated = await this.#repeated(key.tenant,",
    'const repeated = await this.#repeated("",',
    runs,
  ),
  mutant("src/runtime/api/forks.ts", "user = { tenant: key.tenant,", 'user = { tenant: "",', runs),
  mutant("src/runtime/runs/session-entry.ts", "this.#find(namesake)", 'this.#find({ ...namesake, tenant: "" })', runs),
  mutant(
    "src/runtime/runs/session-entry.ts",
    "const key = { tenant, session_id: sessionId };",
    'const key = { tenant: "", session_id: sessionId };',
    runs,
  ),
  mutant(
    "src/runtime/runs/session-entry.ts",
    "this.#store.find(namesake)",
    'this.#store.find({ ...namesake, tenant: "" })',
    runs,
  ),
  mutant("src/runtime/runs/run-reader.ts", "{ tenant, parents: [run_id] }", '{ tenant: "", parents: [run_id] }', runs),
  mutant(
    "src/runtime/runs/run-reader.ts",
    "store.session({ tenant, session_id: id })",
    'store.session({ tenant: "", session_id: id })',
    runs,
  ),
  mutant(
    "src/runtime/runs/run-reader.ts",
    "const key = { tenant, run_id: id };",
    'const key = { tenant: "", run_id: id };',
    runs,
  ),
  mutant(
    "src/runtime/execution/run-session.ts",
    "return { tenant: key.tenant, session_id:",
    'return { tenant: "", session_id:',
    runs,
  ),
  mutant(
    "src/runtime/runs/answer-router.ts",
    "{ ...key, run_id: of.run_id }",
    '{ tenant: "", run_id: of.run_id }',
    runs,
  ),
  mutant(
    "src/runtime/runs/deleting.ts",
    "allRuns(store, { tenant, session_id }",
    'allRuns(store, { tenant: "", session_id }',
    runs,
  ),
  mutant(
    "src/runtime/runs/deleting.ts",
    "allRuns(store, { tenant, parents }",
    'allRuns(store, { tenant: "", parents }',
    runs,
  ),
  mutant("src/runtime/runs/deleting.ts", "store.find({ tenant, run_id })", 'store.find({ tenant: "", run_id })', runs),
  mutant(
    "src/runtime/runs/sub-run.ts",
    "return { tenant: this.#parent.log.key.tenant, run_id };",
    'return { tenant: "", run_id };',
    runs,
  ),
  mutant("src/runtime/runs/announcer.ts", "    tenant,\n    ...(cause", '    tenant: "",\n    ...(cause', runs),
  mutant(
    "src/runtime/agent/interceptors.ts",
    "return { tenant, run_id, agent_name, version,",
    'return { tenant: "", run_id, agent_name, version,',
    runs,
  ),
];

const durableRoom: readonly Mutant[] = [
  mutant("src/durable/recovery/wakeups.ts", "JSON.stringify([tenant, run_id])", "run_id", runs),
  mutant("src/durable/recovery/wakeups.ts", "tenant: key.tenant });", 'tenant: "" });', runs),
  mutant("src/durable/recovery/run-loader.ts", "isSameRun(found.key, key)", "found.key.run_id === key.run_id", runs),
  mutant(
    "src/runtime/runs/committed-above.ts",
    "find({ tenant: key.tenant, run_id: parent.run_id })",
    'find({ tenant: "", run_id: parent.run_id })',
    runs,
  ),
  mutant(
    "src/runtime/runs/committed-above.ts",
    "const key: RunKey = { tenant, run_id: above.run_id };",
    'const key: RunKey = { tenant: "", run_id: above.run_id };',
    runs,
  ),
  mutant(
    "src/durable/replay/cassette.ts",
    "store.session({ tenant: key.tenant, session_id }, range)",
    'store.session({ tenant: "", session_id }, range)',
    runs,
  ),
  mutant("src/durable/replay/cassette.ts", "{ tenant, parents: [run_id] }", '{ tenant: "", parents: [run_id] }', runs),
  mutant(
    "src/durable/recovery/remote-posts.ts",
    "placeOf(agent, key.tenant, created)",
    'placeOf(agent, "", created)',
    runs,
  ),
  mutant(
    "src/durable/replay/history.ts",
    "(run_id) => ({ tenant, run_id })",
    '(run_id) => ({ tenant: "", run_id })',
    runs,
  ),
  mutant(
    "src/durable/recovery/leased-residence.ts",
    "return { tenant: this.log.key.tenant, run_id: parent.run_id };",
    'return { tenant: "", run_id: parent.run_id };',
    runs,
  ),
  mutant(
    "src/durable/recovery/run-loader.ts",
    "isOver({ ...key, run_id: parent.run_id })",
    'isOver({ tenant: "", run_id: parent.run_id })',
    runs,
  ),
  mutant("src/durable/nats-waker.ts", "JSON.stringify({ tenant, run_id })", 'JSON.stringify({ tenant: "", run_id })', [
    "test/nats",
  ]),
];

const inMemory: readonly Mutant[] = [
  mutant(
    "src/stores/memory/memory.ts",
    "this.#tenants.get(tenant)?.idempotencyKeys.get(idempotencyKey)?.stored()",
    "this.anyTenant((one) => one.idempotencyKeys.get(idempotencyKey))?.stored()",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "return this.#tenants.get(query.tenant)?.list(query) ?? [];",
    "return [...this.#tenants.values()].flatMap((one) => one.list(query));",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "return this.#tenants.get(key.tenant)?.runs.get(key.run_id);",
    "return this.anyTenant((one) => one.runs.get(key.run_id));",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "if (tenant.runs.has(key.run_id)) return",
    "if (this.anyTenant((one) => one.runs.get(key.run_id))) return",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "const other = tenant.idempotencyKeys.get(idempotencyKey);",
    "const other = this.anyTenant((one) => one.idempotencyKeys.get(idempotencyKey));",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "const run = tenant?.runs.get(key.run_id);",
    "const run = this.anyTenant((one) => one.runs.get(key.run_id));",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "if (tenant.sessions.has(key.session_id)) return false;",
    "if (this.anyTenant((one) => one.sessions.get(key.session_id))) return false;",
    stores,
  ),
  ...["if (!tenant.needs(run))", "\n      if (!this.#tenant(run.key.tenant).needs(run))"].map((find) =>
    mutant(
      "src/stores/memory/memory.ts",
      find,
      "if (![...this.#tenants.values()].some((one) => one.needs(run)))",
      stores,
    ),
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "sessions.get(key.session_id);\n    return session && { history: session.history.slice(from, to)",
    "sessions.get(key.session_id) ?? this.anyTenant((one) => one.sessions.get(key.session_id));\n    return session && { history: session.history.slice(from, to)",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "sessions.get(key.session_id);\n    return session && { length:",
    "sessions.get(key.session_id) ?? this.anyTenant((one) => one.sessions.get(key.session_id));\n    return session && { length:",
    stores,
  ),
  mutant(
    "src/stores/memory/memory.ts",
    "deleteSession(key: SessionKey): boolean {\n    const tenant = this.#tenants.get(key.tenant);",
    "deleteSession(key: SessionKey): boolean {\n    const tenant = [...this.#tenants.values()].find((one) => one.sessions.has(key.session_id));",
    stores,
  ),
  mutant(
    "src/stores/memory/survey.ts",
    "if (query.tenant !== undefined && tenant.name !== query.tenant) continue;",
    "",
    stores,
  ),
].map(withAnyTenant);

/** The store in memory keeps its tenants apart. With this it finds what any of them has. */
function withAnyTenant(one: Mutant): Mutant {
  const file = "src/stores/memory/memory.ts";
  const put =
    "  anyTenant(find) { for (const one of this.#tenants.values()) { const found = find(one); if (found) return found; } }\n";
  const find = "  #tenant(name: string): Tenant {";
  return withMore(one, file, find, put + find);
}

/** In place of a condition on the tenant: it is bound, and selects nothing. */
const ANY = "? IS NOT NULL";
const bySqlite = (file: string, find: string, put: string = find.replace(/[\w.+]*tenant = \?/, ANY)): Mutant =>
  mutant(`src/stores/${file}`, find, put, stores);

const sqlite: readonly Mutant[] = [
  bySqlite("sqlite/entries.ts", "\n  WHERE r.tenant = ? AND r.run_id = ?"),
  mutant(
    "src/stores/sqlite/entries.ts",
    "} WHERE r.tenant = ? AND r.run_id = ?`;",
    `} WHERE ${ANY} AND r.run_id = ?\`;`,
    ["test/stores/sqlite/damage.test.ts"],
  ),
  bySqlite("sqlite/list.ts", 'cadenza_runs_by_parent", clause("tenant = ?", tenant)'),
  bySqlite("sqlite/list.ts", '"tenant = ? AND created_by = ?"'),
  bySqlite("sqlite/list.ts", `clause("tenant = ? AND tenant <> ''", tenant)`, 'clause("? IS NOT NULL", tenant)'),
  bySqlite("sqlite/list.ts", "l.tenant = ? AND name = ?"),
  bySqlite("sqlite/list.ts", 'const tenant = clause("tenant = ?", toText(query.tenant))'),
  bySqlite("sqlite/list.ts", 'const found = [clause("tenant = ?", toText(query.tenant)), ...timesOf'),
  bySqlite("sqlite/list.ts", "FROM cadenza_runs WHERE tenant = ? AND run_id = ?)`"),
  bySqlite("sqlite/list.ts", '? [clause("tenant = ?", toText(tenant))]'),
  bySqlite("sqlite/prune.ts", "WHERE r.tenant = s.tenant AND r.session_id", "WHERE r.session_id"),
  bySqlite("sqlite/prune.ts", "WHERE r.tenant = s.tenant AND r.run_id", "WHERE r.run_id"),
  bySqlite("sqlite/prune.ts", "WHERE p.tenant = r.tenant AND p.run_id", "WHERE p.run_id"),
  bySqlite("sqlite/prune.ts", "WHERE tenant = ? AND run_id = ? AND finished_at IS NOT NULL"),
  bySqlite("sqlite/prune.ts", "WHERE s.tenant = ? AND s.session_id = ?"),
  bySqlite("sqlite/reads.ts", "ON r.tenant = json_extract(k.value, '$[0]') AND", "ON"),
  bySqlite("sqlite/reads.ts", '"r.tenant = ? AND r.run_id = ?"'),
  bySqlite("sqlite/reads.ts", '"r.tenant = ? AND r.idempotency_key = ?"'),
  bySqlite("sqlite/reads.ts", '"SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ?"'),
  bySqlite(
    "sqlite/reads.ts",
    "SELECT length, state, generation, creator FROM cadenza_sessions WHERE tenant = ? AND session_id = ?",
  ),
  bySqlite("sqlite/reads.ts", "WHERE s.tenant = ? AND s.session_id = ? ORDER BY"),
  bySqlite("sqlite/run-row.ts", "FROM cadenza_runs WHERE tenant = ? AND run_id = ?"),
  bySqlite("sqlite/survey.ts", "SELECT position FROM cadenza_runs WHERE tenant = ? AND run_id = ?"),
  bySqlite("sqlite/survey.ts", 'clause("+tenant = ?", toText(tenant))'),
  bySqlite("sqlite/sessions.ts", "SELECT id, length FROM cadenza_sessions WHERE tenant = ? AND session_id = ?"),
  bySqlite("sqlite/writes.ts", "SELECT run_id FROM cadenza_runs WHERE tenant = ? AND idempotency_key = ?"),
  bySqlite(
    "sqlite/schema.ts",
    "cadenza_runs_by_idempotency_key ON cadenza_runs (tenant, idempotency_key)",
    "cadenza_runs_by_idempotency_key ON cadenza_runs (idempotency_key)",
  ),
  bySqlite(
    "sqlite/schema.ts",
    "cadenza_runs_by_key ON cadenza_runs (run_id, tenant)",
    "cadenza_runs_by_key ON cadenza_runs (run_id)",
  ),
  bySqlite(
    "sqlite/schema.ts",
    "cadenza_sessions_by_key ON cadenza_sessions (tenant, session_id)",
    "cadenza_sessions_by_key ON cadenza_sessions (session_id)",
  ),
];

const byPostgres = (file: string, find: string, put: string): Mutant =>
  mutant(`src/stores/${file}`, find, put, postgres);

/** Its text up to the tenant is in an earlier step of the schema too. */
const madeSession = `CREATE OR REPLACE FUNCTION \${schema}.session_v1(its_tenant text, change jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  session \${schema}.sessions;
  is_made boolean := false;
BEGIN
  LOOP
    SELECT * INTO session FROM \${schema}.sessions s
    WHERE `;

const inPostgres: readonly Mutant[] = [
  byPostgres("postgres/delete-sql.ts", "ON r.tenant = k ->> 0 AND r.run_id", "ON r.run_id"),
  byPostgres("postgres/delete-sql.ts", "WHERE r.tenant = session.tenant AND r.session_id", "WHERE r.session_id"),
  byPostgres("postgres/delete-sql.ts", "WHERE r.tenant = session.tenant AND r.run_id", "WHERE r.run_id"),
  byPostgres(
    "postgres/delete-sql.ts",
    "WHERE s.tenant = its_tenant AND s.session_id = its_id FOR UPDATE",
    "WHERE s.session_id = its_id FOR UPDATE",
  ),
  // Only processes of older releases call this function.
  mutant("src/stores/postgres/delete-sql.ts", "WHERE p.tenant = r.tenant AND p.run_id", "WHERE p.run_id", [
    "test/postgres/statements/upgrades.test.ts",
  ]),
  byPostgres("postgres/gate-sql.ts", "WHERE r.tenant = w ->> 'tenant' AND r.run_id", "WHERE r.run_id"),
  byPostgres(
    "postgres/list.ts",
    "const found = [`r.tenant = ${parameters.text(toText(query.tenant))}${behindLast",
    "const found = [`${parameters.text(toText(query.tenant))} IS NOT NULL${behindLast",
  ),
  byPostgres(
    "postgres/list.ts",
    "WHERE a.tenant = ${parameters.text(toText(query.tenant))} AND",
    "WHERE ${parameters.text(toText(query.tenant))} IS NOT NULL AND",
  ),
  byPostgres("postgres/prune.ts", "WHERE p.tenant = n.tenant AND p.run_id", "WHERE p.run_id"),
  byPostgres("postgres/reads.ts", "WHERE p.tenant = r.tenant AND p.run_id", "WHERE p.run_id"),
  byPostgres(
    "postgres/reads.ts",
    '"r.tenant = $1::text AND r.run_id = $2::text"',
    '"$1::text IS NOT NULL AND r.run_id = $2::text"',
  ),
  byPostgres(
    "postgres/reads.ts",
    "r.tenant = $1::text AND r.idempotency_key",
    "$1::text IS NOT NULL AND r.idempotency_key",
  ),
  byPostgres(
    "postgres/reads.ts",
    "WHERE r.tenant = $1::text AND r.run_id = $2::text ORDER BY",
    "WHERE $1::text IS NOT NULL AND r.run_id = $2::text ORDER BY",
  ),
  byPostgres("postgres/reads.ts", "ON r.tenant = k.run ->> 0 AND r.run_id", "ON r.run_id"),
  byPostgres("postgres/reads.ts", "WHERE a.tenant = $2::text AND a.run_id", "WHERE $2::text IS NOT NULL AND a.run_id"),
  byPostgres(
    "postgres/reads.ts",
    "WHERE s.tenant = $1::text AND s.session_id = $2::text ORDER BY",
    "WHERE $1::text IS NOT NULL AND s.session_id = $2::text ORDER BY",
  ),
  byPostgres(
    "postgres/reads.ts",
    "WHERE s.tenant = $1::text AND s.session_id = $2::text`",
    "WHERE $1::text IS NOT NULL AND s.session_id = $2::text`",
  ),
  byPostgres(
    "postgres/survey.ts",
    "found.push(`r.tenant = ${parameters.text(toText(tenant))}`)",
    "found.push(`${parameters.text(toText(tenant))} IS NOT NULL`)",
  ),
  byPostgres("postgres/survey.ts", "ON r.tenant = k.run ->> 0 AND r.run_id", "ON r.run_id"),
  byPostgres(
    "postgres/line-sql.ts",
    "WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;",
    "WHERE r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;",
  ),
  byPostgres(
    "postgres/write-sql.ts",
    "WHERE r.tenant = added.tenant AND r.run_id = added.run_id;",
    "WHERE r.run_id = added.run_id;",
  ),
  byPostgres("postgres/write-sql.ts", "WHERE r.tenant = added.tenant AND r.idempotency_key", "WHERE r.idempotency_key"),
  byPostgres(
    "postgres/line-sql.ts",
    "WHERE r.tenant = its_tenant AND r.run_id = its_id AND r.finished_at IS NULL",
    "WHERE r.run_id = its_id AND r.finished_at IS NULL",
  ),
  byPostgres(
    "postgres/write-sql.ts",
    "WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id')`)} AS agent_name",
    "WHERE r.run_id = w ->> 'run_id')`)} AS agent_name",
  ),
  byPostgres("postgres/write-sql.ts", `${madeSession}s.tenant = its_tenant AND `, madeSession),
  byPostgres(
    "postgres/tables.ts",
    "runs_by_idempotency_key ON ${runs} (tenant, idempotency_key)",
    "runs_by_idempotency_key ON ${runs} (idempotency_key)",
  ),
  byPostgres("postgres/tables.ts", "runs_by_id ON ${runs} (run_id, tenant)", "runs_by_id ON ${runs} (run_id)"),
  byPostgres(
    "postgres/feed.ts",
    "    JOIN ${schema}.runs r ON r.tenant = x.w ->> 'tenant' AND",
    "    JOIN ${schema}.runs r ON",
  ),
  byPostgres("postgres/feed.ts", "($4::text IS NULL OR c.tenant = $4::text) AND", "($4::text IS NULL OR true) AND"),
  byPostgres(
    "postgres/tables.ts",
    "sessions_by_key ON ${schema}.sessions (tenant, session_id)",
    "sessions_by_key ON ${schema}.sessions (session_id)",
  ),
  mutant("src/stores/postgres/hints.ts", "JSON.stringify([key.tenant, key.run_id])", "key.run_id", [
    "test/postgres/connections/hints.test.ts",
  ]),
];

const faces: readonly Mutant[] = [
  mutant(
    "src/http/caller.ts",
    "runtime.scope({ tenant, principal, owns })",
    'runtime.scope({ tenant: "", principal, owns })',
    http,
  ),
  mutant("src/http/caller.ts", "owns }),\n    tenant,\n", 'owns }),\n    tenant: "",\n', http),
  mutant("src/faces/acp/streams.ts", "reader.join({ tenant: call.caller.tenant,", 'reader.join({ tenant: "",', http),
  mutant("src/faces/acp/streams.ts", "reader.join({ tenant: caller.tenant,", 'reader.join({ tenant: "",', http),
  mutant("src/faces/chat/run-response.ts", "reader.join({ tenant: caller.tenant,", 'reader.join({ tenant: "",', [
    "test/faces/tenants.test.ts",
  ]),
  mutant("src/inspector/api.ts", "return `${tenant}/${run_id}`;", "return run_id;", inspector),
  mutant("src/inspector/queries.ts", "tenant: access.tenant ?? search", "tenant: search", inspector),
  mutant(
    "src/inspector/queries.ts",
    'return isForeign(search.get("tenant"), access) ? { ...query, status: [] } : query;',
    "return query;",
    inspector,
  ),
  mutant("src/inspector/queries.ts", "if (isForeign(key.tenant, access)) throw noSuchRun(key);", "", inspector),
  mutant("src/inspector/queries.ts", 'return access.tenant ?? "";', 'return "";', inspector),
  mutant("src/inspector/queries.ts", " && tenant !== access.tenant;", " && false;", inspector),
  mutant(
    "src/inspector/states.ts",
    "items.filter((run) => tenant === undefined || run.tenant === tenant)",
    "items",
    inspector,
  ),
  mutant("src/inspector/states.ts", ".filter((key) => tenant === undefined || key.tenant === tenant)", "", inspector),
  mutant(
    "src/inspector/states.ts",
    "tenant === undefined ? await inspected.admin.unregistered() : null",
    "await inspected.admin.unregistered()",
    inspector,
  ),
  mutant(
    "src/inspector/actions.ts",
    "runtime.scope({ tenant: key.tenant, principal })",
    'runtime.scope({ tenant: "", principal })',
    inspector,
  ),
  mutant(
    "src/inspector/actions.ts",
    "runtime.scope({ tenant, principal: access.principal })",
    'runtime.scope({ tenant: "", principal: access.principal })',
    inspector,
  ),
  mutant("src/inspector/actions.ts", 'if (tenant !== null && act.query["tenant"] !== tenant)', "if (false)", inspector),
  mutant(
    "src/inspector/actions.ts",
    "if (isForeign(tenant, access)) throw refusedTo(",
    "if (false) throw refusedTo(",
    inspector,
  ),
  mutant(
    "src/inspector/one-run.ts",
    "store.list({ tenant, session_id, roots",
    'store.list({ tenant: "", session_id, roots',
    inspector,
  ),
  mutant(
    "src/inspector/handlers.ts",
    'sessionFeed(inspected, tenant, isForeign(tenant, access) ? "" : session_id)',
    "sessionFeed(inspected, tenant, session_id)",
    inspector,
  ),
  mutant(
    "src/inspector/handlers.ts",
    "stuckFeed(inspected, access.tenant ?? undefined)",
    "stuckFeed(inspected, undefined)",
    inspector,
  ),
  mutant("src/inspector/handlers.ts", "if (access.tenant !== null)\n", "if (false)\n", inspector),
  mutant(
    "src/inspector/handlers.ts",
    'const status = isForeign(search.get("tenant"), access) ? [] : (["awaiting"] as const)',
    'const status = ["awaiting"] as const',
    inspector,
  ),
  mutant(
    "src/inspector/handlers.ts",
    'status: isForeign(search.get("tenant"), access) ? [] : (["failed"] as const)',
    'status: ["failed"] as const',
    inspector,
  ),
  mutant(
    "src/otel/trace-runs.ts",
    "this.#contextOf({ tenant: info.tenant, run_id",
    'this.#contextOf({ tenant: "", run_id',
    traces,
  ),
  mutant("src/otel/trace-runs.ts", "  return { tenant, run_id };", '  return { tenant: "", run_id };', traces),
  mutant(
    "src/admin/several-runs.ts",
    "keys.filter(({ tenant }) => query.tenant === undefined || query.tenant === tenant)",
    "keys",
    admin,
  ),
  mutant("src/admin/several-runs.ts", "survey({ ...query, tenant, idPrefix", "survey({ ...query, idPrefix", admin),
  mutant("src/admin/several-runs.ts", "JSON.stringify([key.tenant, key.run_id])", "key.run_id", admin),
  mutant("src/admin/admin.ts", "{ tenant: pair[0], run_id: pair[1] }", '{ tenant: "", run_id: pair[1] }', admin),
  mutant(
    "src/admin/admin.ts",
    "{ key: { tenant, run_id }, epoch, position }",
    '{ key: { tenant: "", run_id }, epoch, position }',
    admin,
  ),
  mutant(
    "src/admin/admin.ts",
    "this.#operated.scope({ tenant, principal",
    'this.#operated.scope({ tenant: "", principal',
    admin,
  ),
  mutant(
    "src/admin/acts.ts",
    "inside.scope(key.tenant, page.principal).cancel(",
    'inside.scope("", page.principal).cancel(',
    acts,
  ),
  mutant(
    "src/admin/acts.ts",
    "inside.scope(key.tenant, page.principal).fork(",
    'inside.scope("", page.principal).fork(',
    acts,
  ),
  mutant("src/admin/acts.ts", "findByIdempotencyKey(key.tenant,", 'findByIdempotencyKey("",', acts),
  mutant("src/admin/one-run.ts", "return { tenant, run_id: read(", 'return { tenant: "", run_id: read(', admin),
  mutant(
    "src/admin/one-run.ts",
    "store.list({ tenant, parents: [run_id],",
    'store.list({ tenant: "", parents: [run_id],',
    admin,
  ),
];

export const tenantMutants: readonly Mutant[] = [
  ...maps,
  ...runtime,
  ...durableRoom,
  ...inMemory,
  ...sqlite,
  ...inPostgres,
  ...faces,
];
