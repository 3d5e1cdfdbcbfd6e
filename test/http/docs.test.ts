import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { CadenzaErrorCode } from "cadenza";
import { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import { readAcpOptions } from "../../src/faces/acp/options.ts";
import { errorResponse } from "../../src/http/errors.ts";
import { checkSchema, extendedOpenApi } from "./openapi-check.ts";

const page = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../docs/${path}.md`, import.meta.url)), "utf8");
const logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** The cells of all tables of a page. */
function rowsOf(text: string): readonly (readonly string[])[] {
  return text
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) =>
      line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

const number = (cell: string | undefined): number => Number((cell ?? "").replaceAll(",", ""));

describe("the documentation of the HTTP part", () => {
  it("has every limit with its default", () => {
    const { limits, sessions, heartbeatMs, stallMs } = readAcpOptions({});
    const rows = new Map(
      [...rowsOf(page("guides/securing")), ...rowsOf(page("guides/mounting"))].map(([name = "", value]) => [
        name,
        value,
      ]),
    );
    for (const [name, value] of Object.entries(limits))
      expect(number(rows.get(`\`limits.${name}\``)), name).toBe(value);
    for (const name of ["timeoutMs", "maxBytes"] as const)
      expect(number(rows.get(`\`sessions.${name}\``))).toBe(sessions[name]);
    expect(number(rows.get("`heartbeatMs`"))).toBe(heartbeatMs);
    expect(number(rows.get("`stallMs`"))).toBe(stallMs);
  });

  it("has every endpoint", () => {
    const text = page("reference/wire");
    for (const [path, methods] of Object.entries(extendedOpenApi.paths)) {
      for (const method of Object.keys(methods)) {
        if (path !== "/openapi.json")
          expect(text).toMatch(new RegExp(`\`${method.toUpperCase()} ${path.replace(/[{}]/g, "\\$&")}[\`?]`));
      }
    }
  });

  it("shows records that match the OpenAPI document", () => {
    const records = [...page("reference/wire").matchAll(/^```json (\w*)\n([\s\S]*?)^```$/gm)];
    expect(records).toHaveLength(9);
    for (const [, name, json = ""] of records)
      checkSchema({ $ref: `#/components/schemas/${name}`, unevaluatedProperties: false }, JSON.parse(json), json);
  });

  it("has every reason of the library's errors, with its status", () => {
    const told = rowsOf(page("reference/wire")).filter(([status = ""]) => /^\d{3}/.test(status));
    const codes: readonly CadenzaErrorCode[] = [
      ...(["invalid_argument", "agent_not_found", "run_not_found", "session_not_found", "not_awaiting"] as const),
      ...(["run_cancelling", "run_finished", "answer_rejected", "answer_conflict", "idempotency_conflict"] as const),
      ...(["limit_reached", "runtime_closed", "run_blocked", "store_failed", "lost_ownership", "events_lost"] as const),
      "answer_pending",
    ];
    for (const code of codes) {
      const { status, body } = errorResponse(new CadenzaError(code, "why"), logger);
      const row = told.find(
        ([statuses = "", reasons = ""]) => statuses.includes(String(status)) && reasons.includes(`\`${code}\``),
      );
      expect(row, `${code}: ${status}`).toBeDefined();
      expect(JSON.parse(String(body))).toMatchObject({ data: { reason: code } });
    }
  });
});
