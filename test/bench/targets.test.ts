import { expect, it } from "vitest";
import type { Figures } from "./figures.ts";
import { targetTable } from "./targets.ts";

it("a target is met by the ratio of two medians, or by a median alone", () => {
  const lines = targetTable(
    figuresOf([
      ["one process", "cadenza", "runs", [200, 900, 300]],
      ["one process", "dbos", "runs", [100, 90, 110]],
      ["log", "cadenza", "begins", [2]],
    ]),
  );
  expect(lines.slice(2)).toEqual([
    "| Runs/s, one process | 300 | 200 – 900 | DBOS | 100 | 3.00 | ≥ 3 | yes |",
    "| `BEGIN` in the server's log | 2 | | | | | ≤ 0 | **no** |",
  ]);
});

function figuresOf(results: readonly (readonly [string, string, string, readonly number[]])[]): Figures {
  const machine = { processor: "", cores: 2, system: "", load: 0 };
  return {
    plan: "postgres",
    date: "",
    node: "",
    commit: "",
    packages: {},
    machine,
    rounds: 3,
    results: results.map(([name, subject, figure, values]) => ({ case: name, subject, figure, values })),
  };
}
