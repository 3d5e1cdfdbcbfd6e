import type { AgentRuntime, DurableContext } from "cadenza";

/** Called with each body of a step that begins. */
export type OnBody = (run_id: string, version: string) => void;

/** How long the body of a step takes, in milliseconds. */
const BODY_MS = 100;
/** How many steps follow the question. */
const STEPS = 2;
/** So many of them take longer than a move waits for a run at work before it has the run given back. */
const SLOW_STEPS = 40;

/**
 * Registers both versions of the agents of the trial. New runs get the first. `odd` has a second version that does not match.
 * `slow` is at work for long after its question.
 */
export function registerBoth(runtime: AgentRuntime, onBody: OnBody): void {
  for (const version of ["1", "2"]) {
    const kind = { durable: true, version, current: version === "1" } as const;
    const step = (context: DurableContext, key: string): Promise<string> =>
      context.step(key, async () => {
        onBody(context.run_id, version);
        await new Promise((resolve) => setTimeout(resolve, BODY_MS));
        return version;
      });
    const code = async (context: DurableContext, steps = STEPS): Promise<string> => {
      await step(context, "pack");
      await context.ask("Ship it?");
      for (let done = 0; done < steps; done++) await step(context, "ship");
      return version;
    };
    runtime.register("order", kind, (_input, context) => code(context));
    runtime.register("slow", kind, (_input, context) => code(context, SLOW_STEPS));
    runtime.register("odd", kind, (_input, context) => (version === "1" ? code(context) : step(context, "pack")));
  }
}
