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
  const kept = expected.replace(/^the result of /, "");
  const hasEnded = /^the agent (returned|threw)/.test(asked);
  const isOperation = !hasEnded && /#[\d.]+$/.test(asked);
  if (/^(the text|the end of a message|a part|a message|an object)\b/.test(expected)) {
    const help = `Emit ${expected} for this run: do it where context.patched("…") is false.`;
    if (!isOperation) return help;
    // The history may hold the question too, behind an output that the code has lost. It holds no other operation.
    if (/^ask#/.test(asked))
      return `${help} If the code emits it later, do ${asked} only where context.patched("…") is true.`;
  }
  if (hasEnded) return `Keep ${kept} for this run: do it where context.patched("…") is false.`;
  if (asked === "nothing")
    return "The code waits for something that is no operation, or takes long. Put that into a step.";
  return `Do ${asked} only where context.patched("…") is true, and keep ${kept} where it is false. Or give the new code another version.`;
}
