import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { PROCESS_TIMEOUT_MS, runMain } from "./run-main.ts";

/** What each example prints, in the order in which it prints it. */
const outputs: Readonly<Record<string, readonly RegExp[]>> = {
  "echo.ts": [/sync: +completed "Hello"/, /async: +created/, /stream: 1 run\.created/, /stream: 6 run\.completed/],
  "approval.ts": [/awaiting: Book it\?/, /"approved"/, /answer_rejected/, /still awaiting/, /completed: .*Booked 2/s],
  "ai-sdk.ts": [/Soft the soloist plays/, /\d+ tokens/],
  "chat.ts": [/user: I am Ada\./, /assistant: Pleased/, /user: Do you/, /assistant: .* number 2\./],
  "orchestrator.ts": [/The jury withdraws/, /critic: .*drama/, /fan: .*tears/, /two jurors/, /all three: 212/],
  "cancel.ts": [/Opened/, /Read page 3/, /-- cancelling/, /Closed the browser/, /-- cancelled/],
  "statistics.ts": [/before: {}/, /failed: A die/, /avg_run_tokens: 42/, /success_rate: 75/, /cancelled: 1/],
};

describe("each example runs with one command", { timeout: PROCESS_TIMEOUT_MS }, () => {
  it.concurrent.each(Object.entries(outputs))("%s", async (file, expected) => {
    const { code, stdout, stderr } = await runMain(file);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    let rest = stdout;
    for (const pattern of expected) {
      const found = pattern.exec(rest);
      expect(found, `${pattern} in what follows:\n${rest}`).not.toBeNull();
      rest = rest.slice((found?.index ?? 0) + (found?.[0].length ?? 0));
    }
  });
});

it("every example that has a main is among them, or is tested with its own topic", () => {
  const testedElsewhere = ["model.ts", "serve.ts", "durable-approval.ts"];
  const folder = fileURLToPath(new URL("../../examples/", import.meta.url));
  const files = readdirSync(folder).filter((file) => file.endsWith(".ts") && !testedElsewhere.includes(file));
  expect(files.sort()).toEqual(Object.keys(outputs).sort());
});
