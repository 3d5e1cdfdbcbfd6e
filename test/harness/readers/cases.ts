const MB = 1_000_000;

/** Readers of a run with long events. */
export interface Case {
  readonly name: string;
  readonly readers: number;
  /** Default: that of the library. */
  readonly stallMs?: number;
  readonly parts: number;
  readonly partLength: number;
  /** Bytes that a reader reads at a time. */
  readonly gulp: number;
}

export const cases: readonly Case[] = [
  { name: "one of 8 MB", readers: 1, stallMs: 2_000, parts: 1, partLength: 8 * MB, gulp: 65_536 },
  { name: "200 of 2.2 MB", readers: 200, stallMs: 2_000, parts: 2_000, partLength: 1_100, gulp: 65_536 },
  { name: "200 slower ones of 2.2 MB", readers: 200, parts: 2_000, partLength: 1_100, gulp: 2_400 },
  { name: "200 slower ones of one part", readers: 200, parts: 1, partLength: 2.2 * MB, gulp: 2_400 },
];

/** What the server says when it is ready. */
export interface Listening {
  readonly port: number;
  readonly run_id: string;
}
