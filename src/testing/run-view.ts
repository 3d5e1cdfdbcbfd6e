import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { StreamedEvent } from "../core/project.ts";
import { eventCount, project } from "../core/project.ts";
import type { RunState } from "../core/state.ts";
import { initialState } from "../core/state.ts";
import type { DriveEvent } from "./drive-event.ts";
import { driveEventOf } from "./drive-event.ts";

/** One run in all its views, kept up to date entry by entry: the log, the state, the events, and what the agent did. */
export class RunView {
  readonly state: RunState;
  readonly entries: Entry[] = [];
  readonly events: StreamedEvent[] = [];
  readonly driveEvents: DriveEvent[] = [];

  constructor(runId: string) {
    this.state = initialState(runId);
  }

  /** `cause` is what the agent has thrown, if it has. Gives what the entry shows, if it shows anything. */
  add(entry: Entry, cause: unknown): DriveEvent | undefined {
    evolve(this.state, entry);
    this.entries.push(entry);
    for (let index = 0; index < eventCount(entry); index++) {
      const event = project(this.state, entry, index);
      if (event !== undefined) this.events.push(event);
    }
    const driveEvent = driveEventOf(entry, this.state, cause);
    if (driveEvent !== undefined) this.driveEvents.push(driveEvent);
    return driveEvent;
  }
}
