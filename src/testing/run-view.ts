import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { StreamedEvent } from "../core/project.ts";
import { project } from "../core/project.ts";
import type { RunState } from "../core/state.ts";
import { initialState } from "../core/state.ts";
import type { DriveEvent } from "./drive-event.ts";
import { driveEventOf } from "./drive-event.ts";

/** All views of one run, updated entry by entry: the log, the state, the events, and what the agent did. */
export class RunView {
  readonly state: RunState;
  readonly entries: Entry[] = [];
  readonly events: StreamedEvent[] = [];
  readonly driveEvents: DriveEvent[] = [];

  constructor(runId: string) {
    this.state = initialState(runId);
  }

  /** Adds an entry, and returns its drive event, if it has one. `cause` is what the agent threw, if it did. */
  add(entry: Entry, cause: unknown): DriveEvent | undefined {
    evolve(this.state, entry);
    this.entries.push(entry);
    for (let index = 0; index < this.state.last_events; index++) {
      const event = project(this.state, entry, index);
      if (event !== undefined) this.events.push(event);
    }
    const driveEvent = driveEventOf(entry, this.state, cause);
    if (driveEvent !== undefined) this.driveEvents.push(driveEvent);
    return driveEvent;
  }
}
