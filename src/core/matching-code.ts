import type { Mismatch } from "./ports.ts";

/** What to change in code that does not match the history of a run, in one or two sentences. */
export function matchingCode({ expected, asked, newer }: Mismatch): string {
  if (newer === true) return "Update cadenza in the processes that execute the agent.";
  if (asked.includes("with another schema"))
    return "Accept what the log holds as well: widen the schema, or ask context.patched before it changes.";
  if (/^the agent threw: .* does not match (the|its) schema/.test(asked))
    return "Accept what the log holds as well: widen the schema.";
  if (/ after \d+ emitted values$/.test(expected))
    return `Emit as many values before it as the log holds where context.patched("…") is false.`;
  if (/^(the text|the end of a message|a part|a message|an object)\b/.test(expected))
    return `Emit ${expected} for this run: do it where context.patched("…") is false.`;
  if (/^the agent (returned|threw)/.test(asked))
    return `Keep ${expected} for this run: do it where context.patched("…") is false.`;
  if (asked === "nothing")
    return "The code waits for something that is no operation, or takes long. Put that into a step.";
  return `Do ${asked} only where context.patched("…") is true, and keep ${expected} where it is false. Or give the new code another version.`;
}
