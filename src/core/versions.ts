import type { CreatedEntry } from "./log.ts";

/** The first entry of a run that was moved to a version, as states and stores show it: the log keeps the first version. */
export function movedTo(created: CreatedEntry, version: string | null): CreatedEntry {
  const { version: _, ...others } = created;
  return version === null ? { ...others, moved: true } : { ...others, version, moved: true };
}

/** The first entry of a run of which a store has another version by now. */
export function ofVersion(created: CreatedEntry, version: string | null): CreatedEntry {
  return (created.version ?? null) === version ? created : movedTo(created, version);
}
