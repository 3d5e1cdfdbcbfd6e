/** Which figure of a case is shown, and how. */
export interface Measure {
  /** The case that `measure/worker.mjs` knows, and the name of the figure in its answer. */
  readonly case: string;
  readonly figure: string;
  readonly title: string;
  readonly unit: string;
  readonly lessIsBetter?: boolean;
}

/** One case, and its subjects. */
export interface Turn {
  readonly case: string;
  readonly subjects: readonly string[];
}

const FLOORS = ["bare", "bare-duties"];
export const PEERS = ["a2a", "langgraph", "mastra", "xstate"];
const CASES = ["runs", "awaits", "streams", "waiting", "live"];
const GROWTH = ["growth-live", "growth-waiting", "growth-remembered", "growth-parts"];

/** The packages of the peers in each command. */
export const peerPackages: Readonly<Record<string, readonly string[]>> = {
  peers: [
    "@a2a-js/sdk",
    "@langchain/core",
    "@langchain/langgraph",
    "@langchain/langgraph-checkpoint",
    "@mastra/core",
    "xstate",
  ],
  postgres: ["@dbos-inc/dbos-sdk", "pg"],
};

/** What each command measures. */
export const plans: Readonly<Record<string, readonly Turn[]>> = {
  floors: [
    ...CASES.map((name) => ({ case: name, subjects: [...FLOORS, "cadenza"] })),
    { case: "runs", subjects: ["cadenza, late store"] },
    { case: "waiting", subjects: ["cadenza, asking"] },
    { case: "http", subjects: ["bare-duties", "cadenza"] },
    { case: "sqlite", subjects: ["bare-duties", "cadenza"] },
    { case: "imports", subjects: ["zod", "cadenza"] },
    { case: "installed", subjects: ["zod", "cadenza"] },
  ],
  peers: [
    ...CASES.map((name) => ({ case: name, subjects: ["bare-duties", "cadenza", ...PEERS] })),
    { case: "imports", subjects: ["zod", "cadenza", ...PEERS] },
    { case: "installed", subjects: ["zod", "cadenza", ...PEERS] },
  ],
  growth: [
    ...GROWTH.map((name) => ({ case: name, subjects: ["bare-duties", "cadenza"] })),
    { case: "growth-listeners", subjects: ["cadenza"] },
  ],
  postgres: [
    { case: "one process", subjects: ["floor", "floor, alone", "cadenza", "dbos"] },
    { case: "four processes", subjects: ["cadenza", "dbos"] },
    { case: "sessions", subjects: ["cadenza, one session", "cadenza, sessions"] },
    { case: "session writes", subjects: ["cadenza, one session", "cadenza, sessions"] },
    { case: "hints", subjects: ["cadenza", "cadenza, no hints"] },
    { case: "following", subjects: ["cadenza", "cadenza, no hints"] },
    { case: "appends", subjects: ["cadenza"] },
    { case: "looking", subjects: ["cadenza"] },
    { case: "log", subjects: ["cadenza"] },
  ],
};

/** The rows of the tables, in their order. */
export const measures: readonly Measure[] = [
  { case: "runs", figure: "in turn", title: "Runs, one after the other", unit: "runs/s" },
  { case: "runs", figure: "100 at once", title: "Runs, 100 at once", unit: "runs/s" },
  { case: "awaits", figure: "in turn", title: "Ask and answer, one after the other", unit: "runs/s" },
  { case: "streams", figure: "1,000 parts", title: "Stream of 1,000 parts", unit: "parts/s" },
  { case: "streams", figure: "10,000 parts", title: "Stream of 10,000 parts", unit: "parts/s" },
  { case: "live", figure: "runs a second", title: "10,000 runs begun at once", unit: "runs/s" },
  { case: "waiting", figure: "resume", title: "Answers to 5,000 waiting runs", unit: "answers/s" },
  { case: "waiting", figure: "bytes", title: "Heap of a run that waits", unit: "bytes", lessIsBetter: true },
  { case: "http", figure: "requests", title: "Runs over HTTP, 50 connections", unit: "requests/s" },
  { case: "http", figure: "one stream", title: "Stream of 1,000 parts over HTTP", unit: "parts/s" },
  { case: "http", figure: "ten streams", title: "Ten such streams at once", unit: "parts/s" },
  { case: "sqlite", figure: "run in turn", title: "Durable runs in SQLite, one after the other", unit: "runs/s" },
  { case: "sqlite", figure: "run at once", title: "Durable runs in SQLite, 50 at once", unit: "runs/s" },
  { case: "sqlite", figure: "cycle in turn", title: "Ask and answer in SQLite, one after the other", unit: "runs/s" },
  { case: "sqlite", figure: "cycle at once", title: "Ask and answer in SQLite, 50 at once", unit: "runs/s" },
  { case: "imports", figure: "milliseconds", title: "Import", unit: "ms", lessIsBetter: true },
  { case: "installed", figure: "packages", title: "Packages installed", unit: "packages", lessIsBetter: true },
  { case: "installed", figure: "megabytes", title: "Size installed", unit: "MB", lessIsBetter: true },
];
