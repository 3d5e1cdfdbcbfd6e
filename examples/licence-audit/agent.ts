import { dirname } from "node:path";
import type { Message } from "cadenza";
import { AgentError, defineAgent } from "cadenza";
import * as z from "zod";
import { ALLOWED } from "./allow-list.ts";
import type { Finding } from "./installed.ts";
import { inspect } from "./installed.ts";
import type { LockedPackage } from "./lockfile.ts";
import { readLockfile, UNKNOWN } from "./lockfile.ts";
import type { AuditReport, LicenceCount } from "./report.ts";
import { parseExpression, verdictOn } from "./spdx.ts";

/** The number of packages between two lines of progress. */
const STRIDE = 100;
const decisionSchema = z.object({ allow: z.boolean() });

/**
 * Audits the licences of the packages in a `package-lock.json`. Its input is the path of that file. It asks about each licence
 * that is not on the allow-list. Its last part is the report, as JSON. All disk access is in steps, so that a durable run
 * continues after a crash.
 */
export const licenceAudit = defineAgent(
  "licence-audit",
  {
    description: "Audits the licences of the packages in a package-lock.json.",
    version: "1",
    durable: true,
    inputContentTypes: ["text/plain"],
    outputContentTypes: ["text/plain", "application/json"],
    metadata: { license: "MIT", programming_language: "TypeScript", natural_languages: ["en"] },
  },
  async function* (input, context) {
    const file = pathIn(input);
    const packages = await context.step("read the lock file", () => readLockfile(file));
    yield `${file} names ${packages.length} packages.\n`;

    const findings: Partial<Record<Finding, number>> = {};
    for (const [index, each] of packages.entries()) {
      const finding = await context.step(`inspect ${each.path}`, () => inspect(dirname(file), each));
      findings[finding] = (findings[finding] ?? 0) + 1;
      const looked = index + 1;
      if (looked % STRIDE === 0 || looked === packages.length) yield `Looked at ${looked} of ${packages.length}.\n`;
    }

    const known = new Map(ALLOWED.map((licence) => [licence, true]));
    const licences: LicenceCount[] = [];
    for (const [licence, names] of byLicence(packages)) {
      const expression = parseExpression(licence);
      let verdict = verdictOn(expression, known);
      const asked = typeof verdict === "string";
      while (typeof verdict === "string") {
        const { allow } = await context.ask(question(verdict, licence, names), { schema: decisionSchema });
        known.set(verdict, allow);
        verdict = verdictOn(expression, known);
      }
      licences.push({ licence, packages: names.length, verdict: verdict ? "allowed" : "refused", asked });
    }

    const report: AuditReport = { file, packages: packages.length, licences, findings };
    yield { name: "report.json", content_type: "application/json", content: JSON.stringify(report) };
  },
);

function pathIn(input: readonly Message[]): string {
  const [path, ...others] = input.flatMap(({ parts }) => parts.map(({ content }) => content ?? ""));
  if (path === undefined || path === "" || others.length > 0) {
    throw new AgentError("invalid_input", "The input has to be one text: the path of a package-lock.json.");
  }
  return path;
}

/** The names of the packages under each licence, the most used licence first. */
function byLicence(packages: readonly LockedPackage[]): readonly (readonly [string, readonly string[]])[] {
  const groups = new Map<string, string[]>();
  for (const { licence, name } of packages) {
    const names = groups.get(licence);
    if (names === undefined) groups.set(licence, [name]);
    else names.push(name);
  }
  return [...groups].sort(([a, inA], [b, inB]) => inB.length - inA.length || (a < b ? -1 : 1));
}

function question(undecided: string, licence: string, names: readonly string[]): string {
  const some = [...new Set(names)];
  const shown = some.length > 4 ? `${some.slice(0, 3).join(", ")} and ${some.length - 3} more` : some.join(", ");
  const count = names.length === 1 ? "1 package" : `${names.length} packages`;
  if (licence === UNKNOWN) return `Allow packages whose licence the lock file does not name? (${count}: ${shown})`;
  const within = undecided === licence ? "" : ` as part of ${licence}`;
  return `Allow ${undecided}${within}? It is not on the list of allowed licences. (${count}: ${shown})`;
}
