import { awaitMessage } from "cadenza";
import type { Entry } from "../../../src/core/log.ts";
import { body } from "./play.ts";
import type { Process } from "./world.ts";

/* An agent as a list of lines, so that its code can be edited. */

export type Line =
  | { readonly does: "step"; readonly name: string }
  | { readonly does: "says" | "emits"; readonly text: string }
  | { readonly does: "asks" | "awaits" };

export interface Edit {
  readonly name: string;
  readonly code: readonly Line[];
}

export const original: readonly Line[] = [
  { does: "step", name: "plan" },
  { does: "says", text: "planned" },
  { does: "step", name: "search" },
  { does: "step", name: "compare" },
  { does: "asks" },
  { does: "says", text: "answered" },
  { does: "step", name: "pay" },
  { does: "emits", text: "receipt" },
  { does: "awaits" },
  { does: "step", name: "book" },
  { does: "says", text: "booked" },
];

/** The ways to change one line of the code. */
export function edits(): Edit[] {
  return original.flatMap((line, at) => {
    const before = original.slice(0, at);
    const after = original.slice(at + 1);
    const replaced = (name: string, ...by: readonly Line[]): Edit => ({
      name: `line ${at + 1} (${line.does}) ${name}`,
      code: [...before, ...by, ...after],
    });
    const inserted = replaced("with a step inserted before it", { does: "step", name: "new" }, line);
    const next = original[at + 1];
    switch (line.does) {
      case "step":
        return [
          replaced("renamed", { does: "step", name: "renamed" }),
          replaced("removed"),
          inserted,
          ...(next?.does === "step"
            ? [{ name: `lines ${at + 1} and ${at + 2} swapped`, code: [...before, next, line, ...after.slice(1)] }]
            : []),
        ];
      case "says":
        return [replaced("as an object", { does: "emits", text: "object" }), inserted];
      case "emits":
        return [replaced("as a text", { does: "says", text: "text" }), inserted];
      case "asks":
        return [
          replaced("as a yield", { does: "awaits" }),
          replaced("removed"),
          replaced("asked twice", line, line),
          inserted,
        ];
      default:
        return [
          replaced("as an ask", { does: "asks" }),
          replaced("removed"),
          replaced("asked twice", line, line),
          inserted,
        ];
    }
  });
}

/** Registers the code as the agent, with a `finally` block that emits a text. */
export function register(process: Process, code: readonly Line[], replace: boolean): void {
  process.runtime.register("agent", { durable: true, version: "1", replace }, async function* (_input, context) {
    try {
      for (const line of code) {
        if (line.does === "step") await context.step(line.name, (s) => body(process, context, s, line.name));
        else if (line.does === "says") yield line.text;
        else if (line.does === "emits") yield { emitted: line.text };
        else if (line.does === "asks") await context.ask("Well?");
        else yield awaitMessage("And?");
      }
    } finally {
      if (context.signal.aborted) yield "finally";
    }
  });
}

/** The entry of a log at which the code does not match it; undefined if the code matches all entries. */
export function mismatchAt(log: readonly Entry[], code: readonly Line[]): number | undefined {
  const does = marksOf(code);
  const index = log.findIndex((entry, position) => position >= 2 && markOf(entry) !== does[position - 2]);
  return index < 0 ? undefined : index;
}

function markOf(entry: Entry): string {
  switch (entry.type) {
    case "intent":
    case "step":
      return `${entry.type} ${entry.key}`;
    case "awaited":
      return `awaited ${entry.await_id}`;
    case "resumed":
      return `resumed ${entry.await_id}`;
    case "emitted":
      return entry.kind;
    default:
      return entry.type;
  }
}

function marksOf(code: readonly Line[]): string[] {
  const counts = new Map<string, number>();
  const keyOf = (name: string): string => {
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return `${name}#${counts.get(name)}`;
  };
  return code.flatMap((line) => {
    if (line.does === "says") return ["part"];
    if (line.does === "emits") return ["generic"];
    const key = keyOf(line.does === "step" ? line.name : line.does === "asks" ? "ask" : "await");
    return line.does === "step" ? [`intent ${key}`, `step ${key}`] : [`awaited ${key}`, `resumed ${key}`];
  });
}
