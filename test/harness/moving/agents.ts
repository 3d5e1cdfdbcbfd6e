import type { AgentRuntime, DurableContext } from "cadenza";

/** Called with each body of a step that begins. */
export type OnBody = (run_id: string, version: string) => void;

/** How long the body of a step takes, in milliseconds. */
const BODY_MS = 100;

/** Registers both versions of the agents of the trial. New runs get the first. `odd` has a second version that does not match. */
export function registerBoth(runtime: AgentRuntime, onBody: OnBody): void {
  for (const version of ["1", "2"]) {
    const kind = { durable: true, version, current: version === "1" } as const;
    const step = (context: DurableContext, key: string): Promise<string> =>
      context.step(key, async () => {
        onBody(context.run_id, version);
        await new Promise((resolve) => setTimeout(resolve, BODY_MS));
        return version;
      });
    const code = async (context: DurableContext): Promise<string> => {
      await step(context, "a");
      await context.ask("Ship it?");
      await step(context, "b");
      await step(context, "c");
      return version;
    };
    runtime.register("order", kind, (_input, context) => code(context));
    runtime.register("odd", kind, (_input, context) => (version === "1" ? code(context) : step(context, "a")));
  }
}
