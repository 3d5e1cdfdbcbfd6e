import type { AgentManifest, Run } from "cadenza";
import type { Finding } from "./installed.ts";

/** The result of an audit. */
export interface AuditReport {
  readonly file: string;
  readonly packages: number;
  /** The most used licence first. */
  readonly licences: readonly LicenceCount[];
  /** How many packages of each kind are on the disk. */
  readonly findings: Readonly<Partial<Record<Finding, number>>>;
}

export interface LicenceCount {
  readonly licence: string;
  readonly packages: number;
  readonly verdict: "allowed" | "refused";
  /** Whether the agent asked about it. */
  readonly asked: boolean;
}

const BAR_WIDTH = 36;
/** Blocks of one to eight eighths. */
const BLOCKS = "▏▎▍▌▋▊▉█";

/** The report in the output of a completed run. */
export function reportIn(run: Run): AuditReport | undefined {
  const part = run.output.flatMap(({ parts }) => parts).find(({ name }) => name === "report.json");
  return part?.content === undefined ? undefined : (JSON.parse(part.content) as AuditReport);
}

/** The report as text, with a bar for each licence. */
export function renderReport({ packages, licences, findings }: AuditReport): string {
  const width = Math.max(0, ...licences.map(({ licence }) => licence.length));
  const most = Math.max(1, ...licences.map((one) => one.packages));
  const rows = licences.map(({ licence, packages: used, verdict, asked }) => {
    const cells = [licence.padEnd(width), bar(used / most).padEnd(BAR_WIDTH), String(used).padStart(6), verdict];
    return `  ${cells.join("  ")}${asked ? " by answer" : ""}`;
  });
  const refused = licences.filter(({ verdict }) => verdict === "refused");
  const count = refused.reduce((sum, one) => sum + one.packages, 0);
  const found = Object.entries(findings).map(([finding, count]) => `${count} ${finding}`);
  return [
    `Packages: ${packages}`,
    ...rows,
    `On the disk: ${found.join(", ") || "nothing"}.`,
    refused.length === 0
      ? "Verdict: every licence is allowed."
      : `Verdict: refused are ${refused.map(({ licence }) => licence).join(", ")} (packages: ${count}).`,
  ].join("\n");
}

/** A bar for a share of 1. Every share above 0 is visible. */
function bar(share: number): string {
  const eighths = Math.max(1, Math.round(share * BAR_WIDTH * 8));
  return "█".repeat(Math.floor(eighths / 8)) + (BLOCKS[(eighths % 8) - 1] ?? "");
}

/** The agent's statistics as text. A figure without a value is missing. */
export function renderStatistics({ name, status = {} }: AgentManifest): string {
  const { success_rate, avg_run_time_seconds, avg_run_tokens } = status;
  return [
    `Statistics of agent ${name}`,
    `  success_rate          ${success_rate ?? "none yet"}`,
    `  avg_run_time_seconds  ${avg_run_time_seconds?.toFixed(3) ?? "none yet"} (waiting for answers not counted)`,
    `  avg_run_tokens        ${avg_run_tokens ?? "none: this agent calls no model"}`,
  ].join("\n");
}
