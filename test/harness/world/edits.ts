import type { Entry } from "cadenza/store";
import type { Block, Statement } from "../program.ts";
import { perform } from "../program-player.ts";
import { playerIn } from "./bodies.ts";
import type { Process } from "./world.ts";

/* An agent as a list of statements, so that its code can be edited. */

export interface Edit {
  readonly name: string;
  readonly code: Block;
}

export const original: Block = [
  step("plan"),
  emission("part", "planned"),
  step("search"),
  step("compare"),
  { does: "ask", schema: false },
  emission("part", "answered"),
  step("pay"),
  emission("object", "receipt"),
  { does: "await" },
  step("book"),
  emission("part", "booked"),
];

/** The ways to change one line of the code. */
export function edits(): Edit[] {
  return original.flatMap((line, at) => {
    const before = original.slice(0, at);
    const after = original.slice(at + 1);
    const replaced = (name: string, ...by: Block): Edit => ({
      name: `line ${at + 1} (${nameOf(line)}) ${name}`,
      code: [...before, ...by, ...after],
    });
    const inserted = replaced("with a step inserted before it", step("new"), line);
    const next = original[at + 1];
    switch (line.does) {
      case "step":
        return [
          replaced("renamed", step("renamed")),
          replaced("removed"),
          inserted,
          ...(next?.does === "step"
            ? [{ name: `lines ${at + 1} and ${at + 2} swapped`, code: [...before, next, line, ...after.slice(1)] }]
            : []),
        ];
      case "emit":
        return line.what === "part"
          ? [replaced("as an object", emission("object", "object")), inserted]
          : [replaced("as a text", emission("part", "text")), inserted];
      case "ask":
        return [
          replaced("as a yield", { does: "await" }),
          replaced("removed"),
          replaced("asked twice", line, line),
          inserted,
        ];
      default:
        return [
          replaced("as an ask", { does: "ask", schema: false }),
          replaced("removed"),
          replaced("asked twice", line, line),
          inserted,
        ];
    }
  });
}

/** Registers the code as the agent, with a `finally` block that emits a text. */
export function register(process: Process, body: Block, replace: boolean): void {
  const named = { name: "edited", program: { body, fails: false } } as const;
  process.runtime.register("agent", { durable: true, version: "1", replace }, async function* (_input, context) {
    try {
      yield* perform(named, context, playerIn(process));
    } finally {
      if (context.signal.aborted) yield "finally";
    }
  });
}

/** The entry of a log at which the code does not match it; undefined if the code matches all entries. */
export function mismatchAt(log: readonly Entry[], code: Block): number | undefined {
  const does = marksOf(code);
  const index = log.findIndex((entry, position) => position >= 2 && markOf(entry) !== does[position - 2]);
  return index < 0 ? undefined : index;
}

function step(name: string): Statement {
  return { does: "step", name, ms: 5, failures: 0 };
}

function emission(what: "part" | "object", text: string): Statement {
  return { does: "emit", what, text, by: "yield" };
}

function nameOf(line: Statement): string {
  return line.does === "emit" ? `emits a ${line.what}` : line.does;
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

function marksOf(code: Block): string[] {
  const counts = new Map<string, number>();
  const keyOf = (name: string): string => {
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return `${name}#${counts.get(name)}`;
  };
  return code.flatMap((line) => {
    if (line.does === "emit") return [line.what === "part" ? "part" : "generic"];
    const key = keyOf(line.does === "step" ? line.name : line.does);
    return line.does === "step" ? [`intent ${key}`, `step ${key}`] : [`awaited ${key}`, `resumed ${key}`];
  });
}
