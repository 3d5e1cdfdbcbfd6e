import { readFileSync } from "node:fs";
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { describe, expect, it } from "vitest";
import { readDurability } from "../../src/durable/recovery/options.ts";
import { readInspectorOptions } from "../../src/inspector/options.ts";
import { readOptions } from "../../src/runtime/runs/options.ts";
import { withChatTable } from "../browser/chat-table.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import { ROOT, readPage, rowsOf } from "./pages.ts";

describe("docs/reference/errors.md", () => {
  const { path, text } = readPage("docs/reference/errors.md");
  const [, codeTables = ""] = /^## Calls that are refused\n([\s\S]*)^## Log lines$/m.exec(text) ?? [];
  const documented = rowsOf({ path, text: codeTables }).flatMap(([names]) => names);
  const source = readFileSync(`${ROOT}src/core/errors.ts`, "utf8");
  const union = /export type CadenzaErrorCode =([^;]*);/.exec(source)?.[1] ?? "";
  const codes = [...union.matchAll(/"(\w+)"/g)].map(([, code = ""]) => code);

  it("has a row for every code, and for nothing else", () => {
    expect(codes.length).toBeGreaterThan(20);
    expect([...new Set(documented)].sort()).toEqual(codes.sort());
  });
});

describe("docs/guides/pages.md", () => {
  const { text } = readPage("docs/guides/pages.md");

  it("has the table of what chat pages do, as `npm run generate -- chat-table` writes it", () => {
    expect(text).toBe(withChatTable(text));
    expect(text).toContain("\n| the page is loaded again | yes |");
  });

  it("would notice a row that says something else", () => {
    const other = text.replace("\n| the page is loaded again | yes |", "\n| the page is loaded again | no |");
    expect(withChatTable(other)).toBe(text);
  });
});

describe("docs/project/performance.md", () => {
  const budgets = JSON.parse(readFileSync(`${ROOT}.size-limit.json`, "utf8")) as readonly Budget[];
  const { text } = readPage("docs/project/performance.md");

  it("has the budgets of .size-limit.json, in their order, and no others", () => {
    const [, section = ""] = text.split("\n## Budgets\n");
    const shown = [...section.matchAll(/^\| (.*`cadenza.*) \| (.*) \|$/gm)].map(([, name = "", limit]) => ({
      name: name.replaceAll("`", ""),
      limit,
    }));
    expect(shown).toEqual(budgets.map(({ name, limit }) => ({ name, limit })));
  });

  it("has the budget of the client, as the page about it", () => {
    const client = budgets.find(({ name }) => name === "cadenza/client")?.limit;
    expect(readPage("docs/guides/pages.md").text).toContain(`[at most ${client}](../project/performance.md#budgets)`);
  });
});

describe("docs/reference/limits.md", () => {
  const [ofRuntimes = "", ofInspectors = ""] = readPage("docs/reference/limits.md").text.split("## The inspector");
  const tableOf = (text: string) => rowsOf({ path: "docs/reference/limits.md", text });
  const rows = tableOf(ofRuntimes).map(([[name = ""], ...cells]) => [name, ...cells] as const);
  const inMemory = flat({ ...readOptions({}), ...readDurability({}) }, ["isShared", "feed"]);
  const store = lastingStore();
  const persistent = flat(readOptions({ store }));

  it("has a row for every option, and for nothing else", () => {
    expect(rows.map(([name]) => name).sort()).toEqual([...inMemory.keys()].sort());
  });

  it.each(rows.filter(([name]) => typeof inMemory.get(name) === "number"))(
    "gives the default of %s",
    (name, shown, other) => {
      expect(amount(shown)).toBe(inMemory.get(name));
      if (name.startsWith("retention.")) expect(amount(other)).toBe(persistent.get(name));
    },
  );

  it("gives the limits of an inspector", () => {
    const known = flat(readInspectorOptions({}, true));
    const shown = tableOf(ofInspectors).flatMap(([names, amounts = ""]) =>
      names.map((name, index) => [name, amount(amounts.split("; ")[index])] as const),
    );
    expect(shown.map(([name]) => name)).toEqual(expect.arrayContaining(["refreshMs", "heartbeatMs", "stallMs"]));
    expect(shown).toEqual(shown.map(([name]) => [name, known.get(name)]));
  });
});

describe("docs/project/own-store.md", () => {
  it("has a row for every member of a store, and for nothing else", () => {
    const [, own = ""] = readPage("docs/project/own-store.md").text.split("## A store of your own");
    const [port = ""] = own.split("### The contract");
    const documented = rowsOf({ path: "docs/project/own-store.md", text: port }).flatMap(([names]) => names);
    const bodyOf = (file: string, start: RegExp): string => {
      const [, body = ""] =
        new RegExp(`${start.source}([\\s\\S]*?)^\\}`, "m").exec(readFileSync(ROOT + file, "utf8")) ?? [];
      return body;
    };
    const body =
      bodyOf("src/core/ports.ts", /export interface Store extends Surveys<FoundRun, RunKey> \{/) +
      bodyOf("src/core/survey.ts", /export interface Surveys<Run, Key> \{/);
    const members = [...body.matchAll(/^ {2}(?:readonly )?(\w+)\??[(:]/gm)].map(([, name = ""]) => name);

    expect(members.length).toBeGreaterThan(20);
    expect(documented.toSorted()).toEqual(members.toSorted());
  });
});

describe("docs/guides/statistics.md", () => {
  it("has a row for every figure of stats(), of an agent's status and over time, and for nothing else", async () => {
    const runtime = new AgentRuntime().register("counted", (_, { usage }) => {
      usage.add({ inputTokens: 1, outputTokens: 1 });
      return null;
    });
    await runtime.createRun({ agent_name: "counted", input: "" });
    const { status = {} } = await runtime.getAgent("counted");
    const { total } = (await createAdmin(runtime).figures()).all;
    const figures = [status, await runtime.stats(), total].flatMap(Object.keys);
    const { path, text } = readPage("docs/guides/statistics.md");
    const [own = ""] = text.split("\n## OpenTelemetry\n");
    const documented = rowsOf({ path, text: own }).flatMap(([names]) => names);
    expect(documented.toSorted()).toEqual(figures.toSorted());
  });
});

/** What may be loaded of an entry. */
interface Budget {
  readonly name: string;
  readonly limit: string;
}

/** The values by their names, those in a group with the group's name in front. `without`: one that is no option. */
function flat(settings: object, without: readonly string[] = []): ReadonlyMap<string, unknown> {
  const groups = new Map([
    ["retention", "retention"],
    ["limits", "limits"],
    ["perTenant", "limits.perTenant"],
  ]);
  return new Map(
    Object.entries(settings)
      .filter(([name]) => !without.includes(name))
      .flatMap(([name, value]) => {
        const group = groups.get(name);
        if (group === undefined) return [[name, value] as const];
        return Object.entries(value as object).map(([key, inner]) => [`${group}.${key}`, inner] as const);
      }),
  );
}

/** The number that a cell begins with. */
function amount(cell = ""): number {
  return cell.startsWith("Infinity") ? Number.POSITIVE_INFINITY : Number(/^[\d,]+/.exec(cell)?.[0].replaceAll(",", ""));
}
