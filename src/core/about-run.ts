import type { RunKey } from "./ports.ts";
import type { RunState } from "./state.ts";

/** The fields of a line for the logger that say which run it is about. */
export interface AboutRun extends RunKey {
  /** Undefined: it is not known, since the run could not be read. */
  readonly agent_name: string | undefined;
}

/** The fields of a line about the run of this log. */
export function aboutRun({ key, state }: { readonly key: RunKey; readonly state: RunState }): AboutRun {
  return { ...key, agent_name: state.created?.agent_name };
}

/** The fields of a line about a run in the store. */
export function aboutStored({
  key,
  created,
}: {
  readonly key: RunKey;
  readonly created: { readonly agent_name: string } | null;
}): AboutRun {
  return { ...key, agent_name: created?.agent_name };
}
