import { CadenzaError, MemoryStore, AgentRuntime as Runtime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { operatorCases } from "../harness/operator-cases.ts";
import { operatorStores } from "../harness/operator-stores.ts";
import { openDatabase, withFile } from "../harness/sqlite-files.ts";

describe.each(operatorStores)("%s, an operator", (_name, withStore) => operatorCases(withStore));

it.each<[string, (admin: ReturnType<typeof createAdmin>) => Promise<unknown>, string]>([
  ["an unknown condition", (admin) => admin.runs({ states: [] } as object), "there is no option"],
  ["a cursor of its own", (admin) => admin.runs({ cursor: "abc" }), "cursor"],
  ["a cursor of another call", (admin) => admin.lines({ cursor: "MQ==" }), "cursor"],
  ["an empty page", (admin) => admin.questions({ limit: 0 }), "from 1 to 500"],
  ["the beginning of an id that is too short", (admin) => admin.runs({ id: "ab" }), "at least 4 characters"],
  ["an unknown status", (admin) => admin.runs({ status: "waiting" as "awaiting" }), "status"],
  ["a cursor beside runs", (admin) => admin.runs({ among: [], cursor: "MQ==" }), "no cursor"],
  ["too many runs", (admin) => admin.runs({ among: new Array(501).fill("x") }), "at most 500"],
  ["an id that is none", (admin) => admin.log("x"), "expected a UUID"],
])("an admin refuses %s", async (_what, call, message) => {
  const runtime = new Runtime();
  const refused = call(createAdmin(runtime));
  await expect(refused).rejects.toThrow(CadenzaError);
  await expect(refused).rejects.toThrow(message);
  await runtime.close();
});

it("a query that is null is refused as any other that is no object", async () => {
  const admin = createAdmin({ store: new MemoryStore() });
  const query = null as never;
  const run = { tenant: "", run_id: "00000000-0000-4000-8000-000000000000" };
  const asked = {
    runs: () => admin.runs(query),
    blocked: () => admin.blocked(query),
    lines: () => admin.lines(query),
    log: () => admin.log(run, query),
    timeline: () => admin.timeline(run, query),
    watch: () => admin.watch(query).next(),
  };
  for (const [name, ask] of Object.entries(asked))
    await expect(ask(), name).rejects.toMatchObject({ code: "invalid_argument" });
});

describe("without a runtime", () => {
  it("an admin reads a store, knows no code, and changes nothing", () =>
    withFile(async (file) => {
      const runtime = new Runtime({ store: new SqliteStore(openDatabase(file), { closeDatabase: true }) });
      runtime.register("refund", { durable: true, version: "1" }, async (_input, { ask }) => {
        await ask("Refund 40 €?");
      });
      const { run_id } = await runtime.createRun({ agent_name: "refund", input: "" });
      const store = new SqliteStore(openDatabase(file), { readOnly: true, closeDatabase: true });
      const [withRuntime, admin] = [createAdmin(runtime), createAdmin({ store })];

      expect(await admin.runs()).toEqual(await withRuntime.runs());
      expect(await admin.questions()).toEqual(await withRuntime.questions());
      expect(await admin.timeline(run_id)).toEqual(await withRuntime.timeline(run_id));
      expect(await admin.versions()).toMatchObject([{ agent_name: "refund", version: "1", code: "unknown", total: 1 }]);
      expect(await admin.backlog()).toMatchObject([{ agent_name: "refund", waiting: 1 }]);
      expect(await admin.unregistered()).toEqual([]);
      for (const change of [admin.fork(run_id), admin.cancel(run_id), admin.delete(run_id)])
        await expect(change).rejects.toMatchObject({
          code: "invalid_argument",
          message: expect.stringContaining("only reads"),
        });
      expect((await runtime.getRun(run_id)).status).toBe("awaiting");
      store.close();
      await runtime.close();
    }));

  it.each<[string, unknown]>([
    ["nothing", undefined],
    ["a store that is not in an object", new MemoryStore()],
  ])("%s is refused", (_what, operated) => {
    expect(() => createAdmin(operated as { store: Store })).toThrow("operated: expected");
  });
});
