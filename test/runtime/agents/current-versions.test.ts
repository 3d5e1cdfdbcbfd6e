import type { AgentRuntime } from "cadenza";
import { CadenzaError, defineAgent } from "cadenza";
import { describe, expect, it } from "vitest";
import type { Setup } from "../../harness/runtimes.ts";
import { setUp } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";

/* Which version of an agent new runs use. */

const ORDER = "New runs of an agent use an older version";

async function used(runtime: AgentRuntime): Promise<string | undefined> {
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  return (await runtime.details(run_id)).version ?? undefined;
}

function versions(
  { runtime }: Setup,
  ...registered: readonly { readonly version?: string; readonly current?: boolean; readonly replace?: boolean }[]
): void {
  for (const options of registered) runtime.register("agent", options, () => "done");
}

function demotions({ said }: Setup): readonly unknown[] {
  return said.filter(({ message }) => message.startsWith(ORDER)).map(({ fields }) => fields);
}

describe("without an option, new runs use the version that was registered last", () => {
  it.each([
    { before: "1", version: "2" },
    { before: "1.9.0", version: "1.10.0" },
    { before: "v9", version: "v10" },
    { before: "2026-01-31", version: "2026-02-01" },
    { before: "b37af", version: "a91ce" },
    { before: undefined, version: "1" },
  ])("and the logger says nothing of $before, then $version", async ({ before, version }) => {
    const set = setUp();
    versions(set, before === undefined ? {} : { version: before }, { version });
    expect(await used(set.runtime)).toBe(version);
    expect(demotions(set)).toEqual([]);
  });

  it.each([
    { before: "2", version: "1" },
    { before: "1.10.0", version: "1.9.0" },
    { before: "v1.0.1", version: "v1.0" },
    { before: "2026-02-01", version: "2026-01-31" },
    { before: "1", version: undefined },
  ])("and the logger is warned of $before, then $version", async ({ before, version }) => {
    const set = setUp();
    versions(set, { version: before }, version === undefined ? {} : { version });
    expect(await used(set.runtime)).toBe(version);
    expect(demotions(set)).toEqual([{ agent_name: "agent", version: version ?? null, before }]);
  });

  it("and the logger is warned when an earlier one is registered again, whatever their names", async () => {
    const set = setUp();
    versions(set, { version: "alpha" }, { version: "beta" }, { version: "alpha", replace: true });
    expect(await used(set.runtime)).toBe("alpha");
    expect(demotions(set)).toMatchObject([{ version: "alpha", before: "beta" }]);
  });

  it("and the logger says nothing when the current one is registered again", () => {
    const set = setUp();
    versions(set, { version: "1" }, { version: "2" }, { version: "2", replace: true });
    expect(demotions(set)).toEqual([]);
  });
});

describe("`current: true`", () => {
  it("names the version for new runs, whatever the order", async () => {
    const set = setUp();
    versions(set, { version: "2", current: true }, { version: "1" });
    expect(await used(set.runtime)).toBe("2");
    expect(demotions(set)).toEqual([]);
  });

  it("goes back to an older version without a warning", async () => {
    const set = setUp();
    versions(set, { version: "2" }, { version: "1", current: true });
    expect(await used(set.runtime)).toBe("1");
    expect(demotions(set)).toEqual([]);
  });

  it("is refused for a second version, which then is not registered", async () => {
    const set = setUp();
    versions(set, { version: "1", current: true });
    expect(() => versions(set, { version: "2", current: true })).toThrow(
      'options.current: expected one current version of agent "agent", which is "1"',
    );
    expect(await used(set.runtime)).toBe("1");
    versions(set, { version: "2" });
    expect(await used(set.runtime)).toBe("1");
  });

  it("moves to another version with `replace`", async () => {
    const set = setUp();
    versions(set, { version: "1", current: true }, { version: "2", current: true, replace: true }, { version: "3" });
    expect(await used(set.runtime)).toBe("2");
  });

  it("holds for agents as values, and for those that other processes execute", async () => {
    const set = setUp({ store: lastingStore() });
    set.runtime.register(
      defineAgent("agent", { version: "2" }, () => "done"),
      { current: true },
    );
    set.runtime.declare({ name: "agent", version: "3", durable: true });
    expect(await used(set.runtime)).toBe("2");
    set.runtime.declare({ name: "other", version: "1", current: true }, { name: "other", version: "2" });
    const { run_id } = await set.runtime.createRun({ agent_name: "other", input: "", mode: "async" });
    expect((await set.runtime.details(run_id)).version).toBe("1");
  });
});

describe("`current: false`", () => {
  it("keeps a version for the open runs alone", async () => {
    const set = setUp();
    versions(set, { version: "2" }, { version: "1", current: false });
    expect(await used(set.runtime)).toBe("2");
    expect(demotions(set)).toEqual([]);
  });

  it("gives new runs back to the version before", async () => {
    const set = setUp();
    versions(set, { version: "1" }, { version: "2" }, { version: "2", current: false, replace: true });
    expect(await used(set.runtime)).toBe("1");
  });

  it("refuses new runs where no other version is", async () => {
    const set = setUp();
    versions(set, { version: "1", current: false });
    const refused = await set.runtime.createRun({ agent_name: "agent", input: "" }).catch((error: unknown) => error);
    expect(CadenzaError.is(refused) && [refused.code, refused.message]).toEqual([
      "agent_not_found",
      'Agent "agent" has no current version: all are registered with { current: false }.',
    ]);
  });
});

it("the option current is true or false", () => {
  // @ts-expect-error: it is neither.
  expect(() => versions(setUp(), { current: "yes" })).toThrow("options.current: expected true or false");
});
