/* What the driver of a trial of watches and its processes tell each other. */

/** The addresses that each question is mailed to. */
export const TEAM = ["ann@shop.example", "ben@shop.example"] as const;

export interface WatchSettings {
  readonly host: string;
  readonly port: number;
  readonly schema: string;
  readonly name: string;
  readonly is: "worker" | "watcher";
}

/** What a run is to do: it asks so many questions, one after the other, and then ends. */
export interface Plan {
  readonly questions: number;
  readonly end: "completed" | "failed";
}

export interface WatchReport {
  readonly is: "ready";
}
