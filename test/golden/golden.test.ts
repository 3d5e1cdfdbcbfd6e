import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { agents } from "./agents.ts";
import type { GoldenLog } from "./play.ts";
import { goOn } from "./play.ts";

const FOLDER = new URL("./", import.meta.url);
const logs = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".json"))
  .map((file) => [file, JSON.parse(readFileSync(new URL(file, FOLDER), "utf8")) as GoldenLog] as const);

it("there is a golden log of every agent of test/golden", () => {
  expect(new Set(logs.map(([, { agent_name }]) => agent_name))).toEqual(new Set(Object.keys(agents)));
});

it.each(logs)("%s still gives the same record and events", async (_, golden) => {
  const { run, events } = await goOn(golden, golden.writes.length);
  expect(json(run)).toEqual(golden.run);
  expect(json(events)).toEqual(golden.events);
});

it.concurrent.each(logs)("%s goes on to the same end from each of its writes", async (_, golden) => {
  for (let count = 1; count < golden.writes.length; count++) {
    const { run, events, blocked, differences } = await goOn(golden, count);
    expect({ count, blocked, differences, end: endOf(run) }).toEqual({
      count,
      blocked: 0,
      differences: 0,
      end: endOf(golden.run),
    });
    expect(events.map(({ id }) => id)).toEqual(events.map((_event, index) => index + 1));
  }
});

/** The end of a run without times. */
function endOf({ status, error, output }: GoldenLog["run"]): unknown {
  return { status, error, output: output.map(({ role, parts }) => ({ role, parts })) };
}

function json(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}
