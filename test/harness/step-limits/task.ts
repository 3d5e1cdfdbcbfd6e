import type { Task as LimitTask } from "../limits/task.ts";

/** What a worker gets to do. */
export interface Task extends Pick<LimitTask, "place"> {
  /** For how long it makes runs, in milliseconds. */
  readonly ms: number;
  readonly count: number;
  readonly max: number;
  /** How long a step under `max` works, in milliseconds. */
  readonly work: number;
}
